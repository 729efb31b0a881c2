// `coppice inspect`, `coppice tokenize` and `coppice perplexity`: what a model file holds, how it
// cuts text, how well it predicts one.
#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/model_file.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/inspect.h"
#include "experiments/model_files.h"
#include "experiments/perplexity.h"
#include "experiments/run_options.h"

namespace coppice {
namespace {

struct InspectOptions {
  std::string file;
  bool tensors = false, keys = false, json = false;
  template <class V>
  void visit(V& v) {
    v("file", file, "GGUF file, or a name that experiments/models.sh fetches");
    v("tensors", tensors, "list every tensor");
    v("keys", keys, "list every metadata key");
    v("json", json, "print one JSON object");
  }
};

struct TokenizeOptions {
  std::string model, text;
  bool literal = false, json = false;
  template <class V>
  void visit(V& v) {
    v("model", model, kModelHelp);
    v("text", text, "the text to cut");
    v("literal", literal, "special tokens in the text are plain text");
    v("json", json, "print {\"ids\": [...], \"pieces\": [...]}");
  }
};

struct PerplexityCommandOptions {
  std::string model, text;
  int chunk = 1024;
  int tokens = 0;
  bool json = false;
  template <class V>
  void visit(V& v) {
    v("model", model, kModelHelp);
    v("text", text, "file to score");
    v("chunk", chunk, "tokens scored on their own", Range{2, 1e6});
    v("tokens", tokens, "first tokens of the text that are used; 0: all", Range{0, 1e9});
    v("json", json, "print one JSON object");
  }
};

}  // namespace

int inspect_command(Arguments args) {
  CommandLine line("coppice inspect", "Shows what a model file holds.",
                   "  coppice inspect smollm2\n  coppice inspect model.gguf --tensors\n");
  line.add<InspectOptions>("Options");
  line.positional("file");
  if (!line.parse(args)) return 0;
  const auto options = line.read<InspectOptions>();
  if (options.file.empty()) throw Error("coppice inspect: name a model file");
  const std::filesystem::path path = find_model(options.file, {});
  if (!ModelFolder::find(path).empty()) {
    throw Error("{}: is a Hugging Face folder, whose config.json is text; inspect shows GGUF files",
                path.string());
  }
  const GgufFile file(path);
  if (options.json) {
    fmt::print("{}\n", model_json(file).dump(2));
    return 0;
  }
  if (options.tensors) fmt::print("{}", list_tensors(file));
  if (options.keys) fmt::print("{}", list_keys(file));
  if (!options.tensors && !options.keys) fmt::print("{}", describe_model(file));
  return 0;
}

int tokenize_command(Arguments args) {
  CommandLine line("coppice tokenize", "Cuts a text into a model's tokens.",
                   "  coppice tokenize --model smollm2 \"Hello, world!\"\n");
  line.add<TokenizeOptions>("Options");
  line.positional("text");
  if (!line.parse(args)) return 0;
  const auto options = line.read<TokenizeOptions>();
  if (options.model.empty()) throw Error("coppice tokenize: --model is missing");
  const Tokenizer tokenizer(ModelFile(find_model(options.model, {})).vocabulary());
  const auto ids =
      tokenizer.encode(options.text, options.literal ? SpecialText::literal : SpecialText::parsed);
  if (options.json) {
    nlohmann::ordered_json json = {{"ids", ids}, {"pieces", nlohmann::ordered_json::array()}};
    for (int32_t id : ids) json["pieces"].push_back(tokenizer.token_text(id));
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  for (int32_t id : ids) fmt::print("{:>7}  {}\n", id, tokenizer.token_text(id));
  return 0;
}

int perplexity_command(Arguments args) {
  CommandLine line("coppice perplexity", "Scores how well a model predicts a text.",
                   "  coppice perplexity --model smollm2 --text wiki.txt --tokens 4096\n"
                   "  coppice perplexity --model smollm2 --text wiki.txt --backend reference\n");
  line.add<PerplexityCommandOptions>("Options");
  line.add<BackendChoice>("Machine");
  if (!line.parse(args)) return 0;
  const auto options = line.read<PerplexityCommandOptions>();
  if (options.text.empty()) throw Error("coppice perplexity: --text is missing");
  if (options.model.empty()) throw Error("coppice perplexity: --model is missing");
  std::ifstream in(options.text, std::ios::binary);
  if (!in) throw Error("--text {}: cannot be read", options.text);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto backend = line.read<BackendChoice>().make();
  const LoadedModel loaded = load_model(find_model(options.model, {}), *backend);
  auto ids = loaded.tokenizer->encode(text, SpecialText::parsed);
  if (options.tokens > 0 && ids.size() > static_cast<size_t>(options.tokens)) {
    ids.resize(static_cast<size_t>(options.tokens));
  }
  PerplexityOptions measured{.chunk = options.chunk};
  const bool watched = isatty(STDERR_FILENO) != 0;
  if (watched) {
    measured.on_progress = [](int done, int total) {
      fmt::print(stderr, "\r{} of {} tokens", done, total);
    };
  }
  const Perplexity result = measure_perplexity(*loaded.model, *backend, ids, measured);
  if (watched) fmt::print(stderr, "\r\033[K");
  if (options.json) {
    const nlohmann::ordered_json json = {{"tokens_scored", result.scored},
                                         {"nll", result.nll},
                                         {"perplexity", result.perplexity},
                                         {"backend", backend->describe()}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("perplexity {:.4f}  (nll {:.5f} over {} tokens, {})\n", result.perplexity,
               result.nll, result.scored, backend->describe());
  }
  return 0;
}

}  // namespace coppice
