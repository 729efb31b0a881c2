// `coppice datastore build`: makes the datastore that the method `retrieval` drafts from.
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/datastore.h"
#include "core/model_file.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/model_files.h"
#include "experiments/progress.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

struct DatastoreOptions {
  std::string model, out;
  std::vector<std::string> files;
  int most_tokens = 100'000'000;
  bool overwrite = false;
  template <class V>
  void visit(V& v) {
    v("files", files, "text files, each a text of its own");
    v("model", model,
      "whose tokenizer: a GGUF file, a Hugging Face folder, or a name that "
      "experiments/models.sh fetches");
    v("out", out, "the datastore's file");
    v("most_tokens", most_tokens,
      "refuse more; building takes 8 bytes a token and the largest file", Range{1, 2147483647});
    v("overwrite", overwrite, "replace the file if there is one");
  }
};

// Ids of all files, Datastore::kEnd behind each.
std::vector<int32_t> read_tokens(const DatastoreOptions& options, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  Progress progress(static_cast<int>(options.files.size()), "files read");
  for (const std::string& file : options.files) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (!in || text.empty()) throw Error("{}: cannot be read or is empty; name a text file", file);
    const std::vector<int32_t> ids = tokenizer.encode(text, SpecialText::literal);
    if (tokens.size() + ids.size() + 1 > static_cast<size_t>(options.most_tokens)) {
      throw Error("{}: more than {} tokens with this file; raise --most-tokens or give fewer files",
                  file, options.most_tokens);
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    tokens.push_back(Datastore::kEnd);
    progress.advance(1);
  }
  return tokens;
}

}  // namespace

int datastore_command(Arguments args) {
  CommandLine line(
      "coppice datastore build", "Builds a datastore for the method `retrieval`.",
      "  coppice datastore build --model smollm2 --out notes.store notes.txt more.txt\n"
      "  coppice generate --model smollm2 --method retrieval \\\n"
      "      --set 'datastore=\"notes.store\"' --prompt \"What do my notes say?\"\n");
  line.add<DatastoreOptions>("Options");
  line.positional("files", true);
  const bool help = args.empty() || args[0] == "--help" || args[0] == "-h";
  if (!help && args[0] != "build") {
    throw Error("coppice datastore: unknown word '{}'; there is: build", args[0]);
  }
  if (help) {
    fmt::print("{}", line.help());
    return args.empty() ? 2 : 0;
  }
  if (!line.parse(args.subspan(1))) return 0;
  const auto options = line.read<DatastoreOptions>();
  if (options.model.empty()) throw Error("coppice datastore build: --model is missing");
  if (options.out.empty()) throw Error("coppice datastore build: --out is missing");
  if (options.files.empty()) throw Error("coppice datastore build: name at least one text file");
  if (fs::exists(options.out) && !options.overwrite) {
    throw Error("{}: exists already; give --overwrite to replace it", options.out);
  }
  const Tokenizer tokenizer(ModelFile(find_model(options.model, {})).vocabulary());
  const std::vector<int32_t> tokens = read_tokens(options, tokenizer);
  {
    Progress progress(static_cast<int>(tokens.size()), "suffixes sorted");
    size_t shown = 0;
    write_datastore(options.out, tokens, tokenizer.vocabulary(), [&](size_t sorted) {
      // A bucket at a time; the bar is drawn for every hundredth alone.
      if (sorted < tokens.size() && sorted - shown < tokens.size() / 100) return;
      progress.advance(static_cast<int>(sorted - shown));
      shown = sorted;
    });
  }
  fmt::print("{}: {} tokens of {} files, {:.1f} MB\n", options.out, tokens.size(),
             options.files.size(), static_cast<double>(fs::file_size(options.out)) / 1e6);
  return 0;
}

}  // namespace coppice
