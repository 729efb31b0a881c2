// See spec_bench.h.
#include "experiments/spec_bench.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/model_file.h"
#include "core/utf8.h"
#include "experiments/bench_prompts.h"
#include "experiments/manifest.h"
#include "experiments/model_files.h"
#include "experiments/run_folder.h"
#include "experiments/run_rows.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

/// By arm and prompt.
template <class T>
using ByAnswer = std::map<std::pair<std::string, std::string>, T>;

/// Tokens that each step of an answer's decoding gave.
ByAnswer<std::vector<int>> emitted_by_step(const fs::path& run) {
  ByAnswer<std::vector<int>> out;
  std::istringstream lines(read_whole_file(run / "steps.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const json step = json::parse(text, nullptr, false);
    if (!step.is_object() || step.value("prefill", true)) continue;
    out[{step.value("arm", ""), step.value("prompt", "")}].push_back(step.value("emitted", 0));
  }
  return out;
}

/// The first turns of the prompts, each with its later ones.
std::vector<std::vector<Prompt>> questions_of(const BenchConfig& config) {
  std::vector<std::vector<Prompt>> questions;
  for (Prompt& prompt : load_prompts(config)) {
    if (prompt.previous.empty()) questions.emplace_back();
    questions.back().push_back(std::move(prompt));
  }
  return questions;
}

}  // namespace

void write_spec_bench_answers(const BenchConfig& config, const fs::path& run,
                              const fs::path& folder) {
  const fs::path model = find_model(config.model.path, config.folder);
  const Tokenizer tokenizer(ModelFile(model).vocabulary());
  const auto arms = arms_of(read_manifest(run), run.string());
  const auto emitted = emitted_by_step(run);
  const std::vector<PromptRow> rows = read_rows(run);
  ByAnswer<const PromptRow*> row_of;
  for (const PromptRow& row : rows) row_of[{row.arm, row.prompt}] = &row;
  const auto questions = questions_of(config);

  std::error_code error;
  fs::create_directories(folder, error);
  for (const ArmInfo& arm : arms) {
    std::string lines;
    int number = 0;
    for (const std::vector<Prompt>& turns : questions) {
      ++number;
      ordered_json choice = {{"index", 0},
                             {"turns", ordered_json::array()},
                             {"decoding_steps", ordered_json::array()},
                             {"new_tokens", ordered_json::array()},
                             {"wall_time", ordered_json::array()},
                             {"accept_lengths", ordered_json::array()}};
      for (const Prompt& turn : turns) {
        const auto found = row_of.find({arm.name, turn.id});
        if (found == row_of.end() || !found->second->error.empty()) continue;
        const PromptRow& row = *found->second;
        choice["turns"].push_back(replace_ill_formed(tokenizer.decode(row.ids)));
        choice["decoding_steps"].push_back(row.steps);
        choice["new_tokens"].push_back(row.ids.size());
        choice["wall_time"].push_back((row.ttft_ms + row.latency_ms) / 1000.0);
        const auto steps = emitted.find({arm.name, turn.id});
        if (steps == emitted.end()) continue;
        for (const int count : steps->second) choice["accept_lengths"].push_back(count);
      }
      if (choice["turns"].empty()) continue;
      const Prompt& first = turns.front();
      const ordered_json line = {
          {"question_id", first.question > 0 ? first.question : number},
          {"category", first.set_category.empty() ? first.category : first.set_category},
          {"answer_id", fmt::format("{}/{}", arm.name, first.id)},
          {"model_id", arm.name},
          {"choices", ordered_json::array({choice})},
          {"tstamp", 0.0}};
      lines += line.dump() + "\n";
    }
    std::string name = arm.name;
    std::replace(name.begin(), name.end(), '/', '_');
    write_whole_file(folder / (name + ".jsonl"), lines);
  }
}

}  // namespace coppice
