// Summarises a model file once, then prints the summary as a page or as JSON.
// Source: core/gguf.h for what is in the file, core/model_source.h for what it means.
//
//   coppice inspect model.gguf
#include "experiments/inspect.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/model_source.h"
#include "core/quote.h"
#include "core/utf8.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

struct TypeShare {
  DType type{};
  size_t tensors = 0;
  int64_t parameters = 0;
  size_t bytes = 0;
};

struct Summary {
  std::string name;
  std::string architecture;
  std::optional<ModelConfig> config;  // of a model that can be run
  std::string refusal;                // why it cannot
  int64_t parameters = 0;
  size_t tensor_bytes = 0;
  bool tied = false;
  std::vector<TypeShare> types;  // most bytes first
};

/// The text of a key, empty when it is absent or not a text: inspecting forgives what running does
/// not.
std::string text_or_empty(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? "" : *text;
}

size_t count_tokens(const GgufFile& file) {
  const GgufValue* value = file.find("tokenizer.ggml.tokens");
  const auto* texts = value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
  return texts == nullptr ? 0 : texts->size();
}

Summary summarise(const GgufFile& file) {
  Summary summary;
  summary.name = text_or_empty(file, "general.name");
  summary.architecture = text_or_empty(file, "general.architecture");
  try {
    summary.config = read_model(file).config;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    summary.refusal = message.substr(std::min(message.size(), file.name().size() + 2));
  }
  summary.tied = file.find_tensor("output.weight") == nullptr;
  std::map<DType, TypeShare> shares;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeShare& share = shares[tensor.view.type];
    share.type = tensor.view.type;
    ++share.tensors;
    share.parameters += tensor.view.rows * tensor.view.cols;
    share.bytes += tensor.view.bytes();
  }
  for (const auto& [type, share] : shares) {
    summary.parameters += share.parameters;
    summary.tensor_bytes += share.bytes;
    summary.types.push_back(share);
  }
  std::stable_sort(summary.types.begin(), summary.types.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  return summary;
}

/// "134.5 M" with the prefixes of counts, "1.12 GB" with those of bytes: decimal thousands.
std::string in_thousands(double value, const std::array<std::string_view, 5>& units) {
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < units.size()) {
    value /= 1000.0;
    ++unit;
  }
  const int decimals = unit == 0 ? 0 : value < 9.995 ? 2 : 1;
  return fmt::format("{:.{}f}{}{}", value, decimals, units[unit].empty() ? "" : " ", units[unit]);
}
std::string count_text(int64_t count) {
  return in_thousands(static_cast<double>(count), {"", "k", "M", "B", "T"});
}
std::string bytes_text(size_t bytes) {
  return in_thousands(static_cast<double>(bytes), {"B", "kB", "MB", "GB", "TB"});
}

double bits_each(size_t bytes, int64_t parameters) {
  return parameters == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

class Page {
 public:
  void row(std::string_view label, const std::string& value) {
    text_ += fmt::format("  {:<14}{}\n", label, value);
  }
  void line(const std::string& text) { text_ += text + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void describe_shape(Page& page, const ModelConfig& config, bool tied) {
  page.row("layers", fmt::format("{}", config.layers.size()));
  const auto local = std::count_if(config.layers.begin(), config.layers.end(),
                                   [](const LayerKind& kind) { return kind.window > 0; });
  if (local > 0) {
    const auto first = std::find_if(config.layers.begin(), config.layers.end(),
                                    [](const LayerKind& kind) { return kind.window > 0; });
    page.row("", fmt::format("{} see a window of {}, {} see all", local, first->window,
                             static_cast<std::ptrdiff_t>(config.layers.size()) - local));
  }
  page.row("width", fmt::format("{}, feed-forward {}", config.dim, config.ffn));
  page.row("attention", fmt::format("{} heads, {} for keys and values, {} values each",
                                    config.heads, config.kv_heads, config.head_dim));
  page.row("rotary bases", fmt::format("{}", fmt::join(config.rotary_bases, ", ")));
  page.row("context", fmt::format("{} positions", config.context));
  page.row("vocabulary", fmt::format("{} rows, output {}", config.vocabulary,
                                     tied ? "tied to the embedding" : "of its own"));
}

void describe_text(Page& page, const GgufFile& file) {
  const std::string model = text_or_empty(file, "tokenizer.ggml.model");
  const std::string pre = text_or_empty(file, "tokenizer.ggml.pre");
  page.row("tokenizer",
           model.empty() ? "none"
                         : fmt::format("{}{}, {} tokens", escape(model),
                                       pre.empty() ? "" : " / " + escape(pre), count_tokens(file)));
  const std::string chat = text_or_empty(file, "tokenizer.chat_template");
  page.row("chat template", chat.empty() ? "none"
                                         : fmt::format("{} bytes, {}", chat.size(),
                                                       quote(chat.substr(0, chat.find('\n')))));
}

void describe_types(Page& page, const Summary& summary) {
  page.line(fmt::format("  {:<8}{:>9}{:>13}{:>12}{:>8}{:>8}", "type", "tensors", "parameters",
                        "bytes", "bits", "share"));
  for (const TypeShare& share : summary.types) {
    const double part =
        static_cast<double>(share.bytes) / static_cast<double>(summary.tensor_bytes);
    page.line(fmt::format("  {:<8}{:>9}{:>13}{:>12}{:>8.2f}{:>7.1f}%", traits(share.type).name,
                          share.tensors, count_text(share.parameters), bytes_text(share.bytes),
                          bits_each(share.bytes, share.parameters), 100.0 * part));
  }
}

std::string short_value(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return quote(v);
        } else if constexpr (std::is_same_v<T, double>) {
          return fmt::format("{}", static_cast<float>(v));  // most are floats: 1e-05
        } else if constexpr (std::is_arithmetic_v<T>) {
          return fmt::format("{}", v);
        } else {
          constexpr size_t kShown = 4;
          std::string out = "[";
          for (size_t i = 0; i < std::min(v.size(), kShown); ++i) {
            out += (i > 0 ? ", " : "") + short_value(GgufValue(typename T::value_type(v[i])));
          }
          return out + (v.size() > kShown ? fmt::format(", ...] ({} values)", v.size()) : "]");
        }
      },
      value);
}

nlohmann::json shape_json(const ModelConfig& config, bool tied) {
  std::vector<int> windows;
  for (const LayerKind& kind : config.layers) windows.push_back(kind.window);
  return {{"layers", config.layers.size()},
          {"dim", config.dim},
          {"ffn", config.ffn},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"vocabulary", config.vocabulary},
          {"tied_output", tied},
          {"context", config.context},
          {"norm_eps", config.norm_eps},
          {"rotary_bases", config.rotary_bases},
          {"windows", windows}};
}

nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(replace_ill_formed(text));
}

}  // namespace

std::string describe_model(const GgufFile& file) {
  const Summary summary = summarise(file);
  Page page;
  page.line(summary.name.empty() ? "unnamed model" : escape(summary.name));
  page.row("file", fmt::format("{}, {}, GGUF version {}", escape(file.name()),
                               bytes_text(file.bytes()), file.version()));
  page.row("architecture", summary.architecture.empty() ? "none" : escape(summary.architecture));
  page.row("runs", summary.config ? "yes" : "no: " + summary.refusal);
  page.row("parameters",
           fmt::format("{} in {} tensors, {:.2f} bits each", count_text(summary.parameters),
                       file.tensors().size(), bits_each(summary.tensor_bytes, summary.parameters)));
  if (summary.config) describe_shape(page, *summary.config, summary.tied);
  describe_text(page, file);
  page.line("");
  describe_types(page, summary);
  return page.text();
}

std::string list_tensors(const GgufFile& file) {
  size_t width = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    width = std::max(width, escape(tensor.name).size());
  }
  std::string out;
  for (const GgufTensor& tensor : file.tensors()) {
    const std::vector<int64_t> outputs_first(tensor.shape.rbegin(), tensor.shape.rend());
    out += fmt::format("{:<{}}  {:<5}{:>18}{:>14}\n", escape(tensor.name), width,
                       traits(tensor.view.type).name,
                       fmt::format("{}", fmt::join(outputs_first, " x ")), tensor.view.bytes());
  }
  return out;
}

std::string list_keys(const GgufFile& file) {
  size_t width = 0;
  for (const auto& [key, value] : file.metadata()) width = std::max(width, escape(key).size());
  std::string out;
  for (const auto& [key, value] : file.metadata()) {
    out += fmt::format("{:<{}}  {}\n", escape(key), width, short_value(value));
  }
  return out;
}

nlohmann::json model_json(const GgufFile& file) {
  const Summary summary = summarise(file);
  nlohmann::json types = nlohmann::json::array();
  for (const TypeShare& share : summary.types) {
    types.push_back({{"type", traits(share.type).name},
                     {"tensors", share.tensors},
                     {"parameters", share.parameters},
                     {"bytes", share.bytes}});
  }
  nlohmann::json tensors = nlohmann::json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back({{"name", replace_ill_formed(tensor.name)},
                       {"type", traits(tensor.view.type).name},
                       {"shape", tensor.shape},
                       {"bytes", tensor.view.bytes()}});
  }
  return {{"file", replace_ill_formed(file.name())},
          {"bytes", file.bytes()},
          {"gguf_version", file.version()},
          {"name", text_or_null(summary.name)},
          {"architecture", text_or_null(summary.architecture)},
          {"parameters", summary.parameters},
          {"shape", summary.config ? shape_json(*summary.config, summary.tied) : nlohmann::json()},
          {"refusal", text_or_null(summary.refusal)},
          {"tokenizer",
           {{"model", text_or_null(text_or_empty(file, "tokenizer.ggml.model"))},
            {"pre", text_or_null(text_or_empty(file, "tokenizer.ggml.pre"))},
            {"tokens", count_tokens(file)}}},
          {"chat_template", text_or_null(text_or_empty(file, "tokenizer.chat_template"))},
          {"types", types},
          {"tensors", tensors}};
}

}  // namespace coppice
