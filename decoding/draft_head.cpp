// See draft_head.h.
#include "decoding/draft_head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::json;

constexpr int kMost = 1 << 24;
constexpr const char* kConfigKey = "coppice";
constexpr std::string_view kMedusaPrefix = "medusa_head.";

/// Values of a JSON object, checked.
class Config {
 public:
  Config(std::string place, json object) : place_(std::move(place)), object_(std::move(object)) {
    if (!object_.is_object()) throw Error("{}: no JSON object", place_);
  }
  int integer(const char* key, int low, std::optional<int> fallback = {}) const {
    const auto found = object_.find(key);
    if (found == object_.end() && fallback) return *fallback;
    if (found == object_.end() || !found->is_number_integer() || *found < low || *found > kMost) {
      throw Error("{}: {} is {}; expected an integer of {} or more", place_, quote(key),
                  found == object_.end() ? "missing" : escape(found->dump()), low);
    }
    return found->get<int>();
  }
  float positive(const char* key, float fallback) const {
    const auto found = object_.find(key);
    if (found == object_.end()) return fallback;
    const float value = found->is_number() ? found->get<float>() : 0.0f;
    if (!(value > 0.0f) || !std::isfinite(value)) {
      throw Error("{}: {} is {}; expected a number above 0", place_, quote(key),
                  escape(found->dump()));
    }
    return value;
  }
  std::string text(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) return "";
    if (!found->is_string()) throw Error("{}: {} is no text", place_, quote(key));
    return found->get<std::string>();
  }
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  Config table(const char* key) const {
    const json* found = find(key);
    return {fmt::format("{}: {}", place_, key), found == nullptr ? json::object() : *found};
  }
  const std::string& place() const { return place_; }

 private:
  std::string place_;
  json object_;
};

Config parse_config(const std::string& place, std::string_view text) {
  try {
    return {place, json::parse(text)};
  } catch (const json::exception& error) {
    throw Error("{}: no JSON: {}", place, escape(error.what()));
  }
}

/// Numbers of the target's layers, `last` the highest.
std::vector<int> layers_of(const Config& in, const char* key, int last) {
  const json* found = in.find(key);
  std::vector<int> layers;
  for (const json& layer : found == nullptr ? json::array() : *found) {
    if (!layer.is_number_integer() || layer < 0 || layer > last) {
      throw Error("{}: {} names {}; the target's layers are 0..{}", in.place(), quote(key),
                  escape(layer.dump()), last);
    }
    layers.push_back(layer.get<int>());
  }
  return layers;
}

HeadConfig own_config(const SafetensorsFile& file, const std::string& text) {
  const Config in = parse_config(file.name() + ": its config", text);
  HeadConfig config;
  config.kind = in.text("kind");
  const Config target = in.table("target");
  config.target = {target.text("name"), target.text("architecture"), target.integer("dim", 1),
                   target.integer("layers", 1), target.integer("vocabulary", 1)};
  const std::string print = target.text("fingerprint");
  config.target.fingerprint = std::strtoull(print.c_str(), nullptr, 16);
  config.taps = layers_of(in, "taps", config.target.layers);
  config.layers = layers_of(in, "layers", config.target.layers - 1);
  config.count = in.integer("count", 0, 0);
  config.blocks = in.integer("blocks", 1, 1);
  config.heads = in.integer("heads", 0, 0);
  config.kv_heads = in.integer("kv_heads", 0, 0);
  config.head_dim = in.integer("head_dim", 0, 0);
  config.ffn = in.integer("ffn", 0, 0);
  config.norm_eps = in.positive("norm_eps", config.norm_eps);
  config.rotary_base = in.positive("rotary_base", config.rotary_base);
  config.draft_vocabulary = in.integer("draft_vocabulary", 0, 0);
  if (const json* training = in.find("training")) config.training = training->dump();
  return config;
}

/// The authors' config.json of EAGLE's layer is a llama config.
void read_llama_config(const Config& in, HeadConfig& config) {
  config.target.dim = in.integer("hidden_size", 1);
  config.target.vocabulary = in.integer("vocab_size", 1);
  config.heads = in.integer("num_attention_heads", 1);
  config.kv_heads = in.integer("num_key_value_heads", 1, config.heads);
  config.head_dim = in.integer("head_dim", 2, config.target.dim / config.heads);
  config.ffn = in.integer("intermediate_size", 1);
  config.norm_eps = in.positive("rms_norm_eps", 1e-6f);
  config.rotary_base = in.positive("rope_theta", 1e4f);
  const json* scaling = in.find("rope_scaling");
  if (scaling != nullptr && !scaling->is_null()) {
    throw Error("{}: rope_scaling is {}; only heads without are supported", in.place(),
                escape(scaling->dump()));
  }
}

int count_heads(const SafetensorsFile& file, const std::string& prefix) {
  int count = 0;
  while (file.find(fmt::format("{}{}.0.linear.weight", prefix, count)) != nullptr) ++count;
  return count;
}

HeadConfig published_config(const SafetensorsFile& file, std::string& prefix) {
  HeadConfig config;
  if (file.find("midlayer.self_attn.q_proj.weight") != nullptr) config.kind = "eagle3";
  if (file.find("layers.0.self_attn.q_proj.weight") != nullptr) config.kind = "eagle";
  if (config.kind.empty() && count_heads(file, std::string(kMedusaPrefix)) > 0) {
    prefix = kMedusaPrefix;
  }
  config.count = count_heads(file, prefix);
  if (config.kind.empty() && config.count > 0) config.kind = "medusa";
  if (config.kind.empty()) {
    throw Error(
        "{}: neither a head that `coppice train` wrote nor a published Medusa, EAGLE or "
        "EAGLE-3 checkpoint",
        file.name());
  }
  if (config.kind == "medusa") {
    const SafeTensor& first = file.tensor(prefix + "0.0.linear.weight");
    config.target.dim = first.shape.empty() ? 0 : static_cast<int>(first.shape[0]);
    while (file.find(fmt::format("{}0.{}.linear.weight", prefix, config.blocks)) != nullptr) {
      ++config.blocks;
    }
    return config;
  }
  const auto path = std::filesystem::path(file.name()).parent_path() / "config.json";
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw Error("{}: cannot be read; a published {} head needs its config.json beside it",
                path.string(), config.kind);
  }
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const Config parsed = parse_config(path.string(), text);
  read_llama_config(parsed, config);
  if (config.kind == "eagle3") {
    config.draft_vocabulary = parsed.integer("draft_vocab_size", 1, config.target.vocabulary);
  }
  return config;
}

std::string describe(const HeadTarget& target) {
  return fmt::format("{} ({})", target.name.empty() ? "a model" : target.name,
                     target.architecture.empty() ? "unknown" : target.architecture);
}

}  // namespace

std::filesystem::path shipped_head(std::string_view kind, const Model& target) {
  const std::string ending = fmt::format(".{}.safetensors", kind);
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(COPPICE_PRETRAINED, none)) {
    if (!entry.path().filename().string().ends_with(ending)) continue;
    const SafetensorsFile file(entry.path());
    const auto config = file.metadata().find(kConfigKey);
    if (config != file.metadata().end() &&
        own_config(file, config->second).target.fingerprint == target.fingerprint()) {
      return entry.path();
    }
  }
  const bool draft = kind == "draft";
  throw Error(
      "{} for {} comes with the project; train one with `coppice train {}` and name it with {}",
      draft ? "draft_model: no draft model" : fmt::format("{}: no head", kind),
      target.config().name, kind, draft ? "--draft-model FILE" : "--set head=\"FILE\"");
}

HeadTarget describe_target(const Model& model) {
  const ModelConfig& config = model.config();
  return {config.name,    config.architecture, config.dim,
          model.layers(), config.vocabulary,   model.fingerprint()};
}

std::string head_config_text(const HeadConfig& config) {
  nlohmann::ordered_json out;
  out["kind"] = config.kind;
  out["target"] = {{"name", config.target.name},
                   {"architecture", config.target.architecture},
                   {"dim", config.target.dim},
                   {"layers", config.target.layers},
                   {"vocabulary", config.target.vocabulary},
                   {"fingerprint", fmt::format("{:016x}", config.target.fingerprint)}};
  out["taps"] = config.taps;
  const auto add = [&](const char* key, int value) {
    if (value != 0) out[key] = value;
  };
  add("count", config.count);
  add("blocks", config.blocks);
  add("heads", config.heads);
  add("kv_heads", config.kv_heads);
  add("head_dim", config.head_dim);
  add("ffn", config.ffn);
  if (!config.layers.empty()) out["layers"] = config.layers;
  out["norm_eps"] = config.norm_eps;
  out["rotary_base"] = config.rotary_base;
  add("draft_vocabulary", config.draft_vocabulary);
  if (!config.training.empty()) out["training"] = json::parse(config.training);
  return out.dump();
}

DraftHead::DraftHead(std::string_view kind, const std::filesystem::path& path, const Model& target)
    : file_(path.empty() ? shipped_head(kind, target) : path) {
  const auto own = file_.metadata().find(kConfigKey);
  config_ = own != file_.metadata().end() ? own_config(file_, own->second)
                                          : published_config(file_, prefix_);
  const bool layered = config_.kind.starts_with("eagle");
  if (layered &&
      (config_.heads == 0 || config_.kv_heads == 0 || config_.heads % config_.kv_heads != 0 ||
       config_.head_dim < 2 || config_.head_dim % 2 != 0 || config_.ffn == 0)) {
    throw Error("{}: {} heads, {} of keys, of {} values, a feed-forward of {}; that is no layer",
                file_.name(), config_.heads, config_.kv_heads, config_.head_dim, config_.ffn);
  }
  const size_t parts = config_.kind == "draft" ? config_.layers.size() : config_.count;
  if (!layered && parts == 0) {
    throw Error("{}: kind {} of nothing; expected heads of medusa or hydra, or layers of a draft",
                file_.name(), quote(config_.kind));
  }
  require(kind, target);
  if (config_.taps.empty() && config_.kind != "draft") fill_in_taps(target.layers());
}

void DraftHead::require(std::string_view kind, const Model& target) const {
  if (config_.kind != kind && config_.kind == "draft") {
    throw Error("{}: is no head but a draft model; give it with --draft-model", file_.name());
  }
  if (config_.kind != kind) {
    throw Error("{}: the head is of kind '{}'; use method '{}' with it", file_.name(), config_.kind,
                config_.kind);
  }
  const HeadTarget& made = config_.target;
  const HeadTarget here = describe_target(target);
  std::vector<std::string> different;
  const auto compare = [&](const char* what, const auto& theirs, const auto& ours, bool known) {
    if (known && theirs != ours)
      different.push_back(fmt::format("{} {}, here {}", what, theirs, ours));
  };
  compare("architecture", made.architecture, here.architecture, !made.architecture.empty());
  compare("hidden size", made.dim, here.dim, true);
  compare("layers", made.layers, here.layers, made.layers != 0);
  compare("vocabulary", made.vocabulary, here.vocabulary, made.vocabulary != 0);
  if (different.empty()) {
    compare("weights", fmt::format("{:016x}", made.fingerprint),
            fmt::format("{:016x}", here.fingerprint), made.fingerprint != 0);
  }
  if (!different.empty()) {
    throw Error("{}: made for {}, not for {}: {}; use one that was trained for this model",
                file_.name(), describe(made), describe(here), fmt::join(different, "; "));
  }
}

// What a published head leaves to convention.
void DraftHead::fill_in_taps(int layers) {
  if (config_.kind != "eagle3") {
    config_.taps = {layers};
  } else if (layers >= 5) {  // Li 2025's code: before layers 2, L/2 and L - 3
    config_.taps = {2, layers / 2, layers - 3};
  } else {
    throw Error("{}: an EAGLE-3 head needs a target of 5 layers or more; this has {}", file_.name(),
                layers);
  }
}

std::vector<int32_t> DraftHead::draft_ids() const {
  if (file_.find("d2t") == nullptr) {
    if (config_.draft_vocabulary != 0 && config_.draft_vocabulary != config_.target.vocabulary) {
      throw Error("{}: tensor 'd2t' is missing: which {} tokens it drafts is unknown", file_.name(),
                  config_.draft_vocabulary);
    }
    return {};
  }
  // As EAGLE-3's files have it: the distance from the row to the id.
  const std::vector<int64_t> offsets = file_.integers("d2t", config_.draft_vocabulary);
  std::vector<int32_t> ids;
  for (size_t row = 0; row < offsets.size(); ++row) {
    int64_t id = 0;
    const bool wraps = __builtin_add_overflow(static_cast<int64_t>(row), offsets[row], &id);
    if (wraps || id < 0 || id >= config_.target.vocabulary || (row > 0 && id <= ids.back())) {
      throw Error("{}: 'd2t' maps row {} to token {}; expected ascending ids below {}",
                  file_.name(), row, id, config_.target.vocabulary);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

DraftVocabulary::DraftVocabulary(std::vector<int32_t> ids, int vocabulary)
    : vocabulary_(vocabulary), ids_(std::move(ids)) {
  if (ids_.empty()) return;
  row_.assign(static_cast<size_t>(vocabulary), -std::numeric_limits<float>::infinity());
}

int DraftVocabulary::size() const {
  return ids_.empty() ? vocabulary_ : static_cast<int>(ids_.size());
}

std::span<const float> DraftVocabulary::spread(std::span<const float> logits) {
  COPPICE_CHECK(static_cast<int>(logits.size()) == size());
  if (ids_.empty()) return logits;
  for (size_t i = 0; i < ids_.size(); ++i) row_[static_cast<size_t>(ids_[i])] = logits[i];
  return row_;
}

TensorColumns::TensorColumns(const TensorView& whole, int64_t first, int64_t count) {
  const DTypeTraits& type = traits(whole.type);
  COPPICE_CHECK(first % type.block_values == 0 && count % type.block_values == 0);
  view = {whole.type, nullptr, whole.rows, count};
  bytes.resize(view.bytes());
  view.data = bytes.data();
  const auto skipped = static_cast<size_t>(first / type.block_values * type.block_bytes);
  for (int64_t row = 0; row < whole.rows; ++row) {
    std::memcpy(bytes.data() + static_cast<size_t>(row) * view.row_bytes(),
                whole.row(row) + skipped, view.row_bytes());
  }
}

}  // namespace coppice
