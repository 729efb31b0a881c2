// See bench_prompts.h.
#include "experiments/bench_prompts.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/quote.h"
#include "experiments/model_files.h"

namespace coppice {

std::vector<Prompt> load_prompts(const BenchConfig& config) {
  std::vector<Prompt> prompts;
  for (const std::string& source : config.bench.prompts) {
    std::vector<Prompt> more;
    if (source == "builtin" && config.bench.context > 0) {
      throw Error("bench.context: builtin prompts are no plain text; name a text in bench.prompts");
    }
    if (source == "builtin") {
      more = builtin_prompts();
    } else {
      const auto file = find_data(source, config.folder);
      if (!file) {
        throw Error(
            "bench.prompts: {}: no such file; give a JSONL file (COPPICE_DATA names a folder that "
            "is searched too), or builtin",
            quote(source));
      }
      more = config.bench.context == 0
                 ? read_prompts(*file)
                 : read_text_series(*file, config.bench.context,
                                    std::max(config.bench.prompts_per_category, 1));
      const auto most = static_cast<size_t>(config.bench.prompts_per_file);
      if (most > 0 && more.size() > most) more.resize(most);
    }
    std::move(more.begin(), more.end(), std::back_inserter(prompts));
  }
  std::set<std::string_view> ids;
  for (const Prompt& prompt : prompts) {
    if (ids.insert(prompt.id).second) continue;
    throw Error("bench.prompts: two prompts have the id {}; give each its own", quote(prompt.id));
  }
  prompts =
      pick_prompts(std::move(prompts), config.bench.categories, config.bench.prompts_per_category);
  return with_turns(std::move(prompts), config.bench.turns);
}

}  // namespace coppice
