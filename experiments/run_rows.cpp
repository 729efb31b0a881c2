// See run_rows.h.
#include "experiments/run_rows.h"

#include <map>
#include <nlohmann/json.hpp>

#include "experiments/bench_config.h"
#include "experiments/run_folder.h"
#include "experiments/statistics.h"
#include "kernels/base/error.h"

namespace coppice {

using nlohmann::json;
using nlohmann::ordered_json;

std::vector<PromptRow> read_rows(const std::filesystem::path& run) {
  std::vector<PromptRow> rows;
  const std::filesystem::path path = run / "prompts.jsonl";
  if (!std::filesystem::exists(path)) return rows;
  const std::string text = read_whole_file(path);
  int line = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string at = fmt::format("{}:{}", path.string(), ++line);
    const json row = json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                 text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!row.is_object()) throw Error("{}: is no JSON object; run the experiment again", at);
    rows.push_back(row_from_json(row, at));
  }
  return rows;
}

std::set<std::string> complete_prompts(std::span<const PromptRow> rows, size_t arms) {
  std::map<std::string, std::set<std::string>> answered;
  for (const PromptRow& row : rows) answered[row.prompt].insert(row.arm);
  std::set<std::string> complete;
  for (const auto& entry : answered) {
    if (entry.second.size() == arms) complete.insert(entry.first);
  }
  return complete;
}

std::optional<double> baseline_drift(std::span<const PromptRow> rows) {
  std::vector<double> token_ms, context;
  for (const PromptRow& row : rows) {
    if (row.arm != kBaselineName || !row.error.empty() || row.decode_tokens == 0) continue;
    token_ms.push_back(row.decode_ms / row.decode_tokens);
    context.push_back(row.prompt_tokens + row.decode_tokens / 2.0);
  }
  return drift_of(token_ms, context);
}

ordered_json read_manifest(const std::filesystem::path& run) {
  const std::filesystem::path path = run / "manifest.json";
  if (!std::filesystem::exists(path)) {
    throw Error("{}: holds no manifest.json; give the folder of a run", run.string());
  }
  ordered_json manifest = ordered_json::parse(read_whole_file(path), nullptr, false);
  if (!manifest.is_object()) {
    throw Error("{}: is no manifest; run the experiment again", path.string());
  }
  return manifest;
}

}  // namespace coppice
