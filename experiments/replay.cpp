// See replay.h.
#include "experiments/replay.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/quote.h"
#include "decoding/packed_batch.h"
#include "experiments/bench_config.h"
#include "experiments/run_folder.h"
#include "experiments/summary.h"
#include "kernels/shared/walk.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The record in the target's place. Behind its last token it says nothing: -1 is no node's token.
struct RecordedTarget {
  const TokenTree& tree;
  std::span<const int32_t> rest;
  int32_t argmax(int node) const {
    const auto at = static_cast<size_t>(tree.depth(node));
    return at < rest.size() ? rest[at] : -1;
  }
};
struct RecordedTree {
  const TokenTree& tree;
  int first_child(int node) const { return tree.first_child(node); }
  int next_sibling(int node) const { return tree.next_sibling(node); }
  int32_t token(int node) const { return tree.token(node); }
  bool verify(int node) const { return tree.role(node) == NodeRole::verify; }
};

bool judges_a_child(const TokenTree& tree, int node) {
  for (int c = tree.first_child(node); c >= 0; c = tree.next_sibling(c)) {
    if (tree.role(c) == NodeRole::verify) return true;
  }
  return false;
}

/// What the engine does for one sequence (decoding/engine.cpp), with the record as the target.
class TextReplay {
 public:
  TextReplay(Drafter& drafter, int most_nodes, ReplayTotals& totals)
      : drafter_(drafter), most_nodes_(most_nodes), totals_(totals) {}

  void run(const RecordedAnswer& answer) {
    tokens_ = answer.prompt_ids;
    if (answer.ids.empty()) return;
    tokens_.push_back(answer.ids[0]);  // the prefill's
    size_t given = 1;
    while (given < answer.ids.size()) given += step(answer, given);
    drafter_.forget(0, Reason::finished);
  }

 private:
  /// Returns the number of tokens emitted.
  size_t step(const RecordedAnswer& answer, size_t given) {
    int left = answer.most_tokens - static_cast<int>(given);
    if (answer.context > 0) {
      left = std::min(left, answer.context - static_cast<int>(tokens_.size()));
    }
    const int depth = std::max(0, left - 1);
    const int nodes = depth > 0 ? most_nodes_ : 0;
    tree_.reset(tokens_.back(), nodes, depth);
    if (nodes > 0) {
      DraftJob job;
      job.tokens = tokens_;
      job.budget = nodes;
      job.tree = &tree_;
      drafter_.propose({&job, 1});
    }
    path_.clear();
    const RecordedTarget target{tree_, std::span(answer.ids).subspan(given)};
    greedy_walk(RecordedTree{tree_}, target, path_);
    const size_t emitted = std::min(path_.size() + 1, answer.ids.size() - given);
    const int root = static_cast<int>(tokens_.size()) - 1;
    count(static_cast<int>(emitted));
    tokens_.insert(tokens_.end(), answer.ids.begin() + static_cast<ptrdiff_t>(given),
                   answer.ids.begin() + static_cast<ptrdiff_t>(given + emitted));
    observe(root, static_cast<int>(emitted));
    return emitted;
  }

  void count(int emitted) {
    packed_.clear();
    packed_.add(std::span(tokens_).last(1), &tree_, 0, {}, true);
    const int rows = packed_.rows(0).count;
    const int accepted = static_cast<int>(path_.size());
    const int last = path_.empty() ? 0 : path_.back();
    ++totals_.steps;
    totals_.emitted += emitted;
    totals_.rows += rows;
    totals_.accepted += accepted;
    for (int node = 1; node < tree_.size(); ++node) {
      totals_.drafted += tree_.role(node) == NodeRole::verify;
    }
    count_first(totals_.accepted_at, accepted);
    count_first(totals_.reached_at, accepted + (judges_a_child(tree_, last) ? 1 : 0));
    totals_.steps_with_rows.resize(
        std::max(totals_.steps_with_rows.size(), static_cast<size_t>(rows)));
    ++totals_.steps_with_rows[static_cast<size_t>(rows) - 1];
    totals_.matches.push_back(accepted);
  }

  void observe(int root, int emitted) {
    Observation seen;
    seen.tokens = tokens_;
    seen.first_position = root;
    kept_.assign(1, 0);
    const std::span<const int> node_row = packed_.node_row(0);
    const auto kept_path = std::span(path_).first(static_cast<size_t>(emitted) - 1);
    for (const int node : kept_path) kept_.push_back(node_row[static_cast<size_t>(node)]);
    seen.kept_rows = kept_;
    seen.tree = &tree_;
    seen.node_row = node_row;
    seen.path = kept_path;
    seen.output = &nothing_;
    no_logits_.assign(static_cast<size_t>(packed_.rows(0).count), -1);
    seen.logit_row = no_logits_;
    drafter_.observe({&seen, 1});
  }

  Drafter& drafter_;
  int most_nodes_;
  ReplayTotals& totals_;
  std::vector<int32_t> tokens_;
  TokenTree tree_;
  std::vector<int> path_, kept_, no_logits_;
  PackedBatch packed_;
  ForwardOutput nothing_;
};

int nodes_of(const Drafter& drafter, int budget) {
  const Needs needs = drafter.needs();
  if (!needs.tap_layers.empty() || needs.top_k > 0 || !needs.kv_layers.empty()) {
    throw Error(
        "replay: the method looks at what the target computes; only methods that see token "
        "ids alone can be replayed");
  }
  return budget < 0 ? needs.most_nodes : std::min(budget, needs.most_nodes);
}

}  // namespace

RecordedRun read_recorded_run(const fs::path& folder) {
  if (!fs::exists(folder / "manifest.json") || !fs::exists(folder / "prompts.jsonl")) {
    throw Error("{}: holds no run; give the folder that coppice bench wrote", folder.string());
  }
  const json manifest = json::parse(read_whole_file(folder / "manifest.json"), nullptr, false);
  RecordedRun run;
  int most_tokens = 0;
  try {
    const json& bench = manifest.at("config").at("bench");
    run.carried = bench.at("memory") == "carried";
    most_tokens = bench.at("max_new_tokens").get<int>();
  } catch (const json::exception&) {
    throw Error("{}: is no manifest of a run", (folder / "manifest.json").string());
  }
  std::istringstream lines(read_whole_file(folder / "prompts.jsonl"));
  std::string line;
  std::vector<int> counts;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string at = fmt::format("{}:{}", (folder / "prompts.jsonl").string(), number);
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) throw Error("{}: is no JSON object; run the experiment again", at);
    PromptRow row = row_from_json(object, at);
    // Costs of passes at the middle of each answer of an arm under `auto`: their mean.
    for (size_t n = 0; n < row.pass_ms.size(); ++n) {
      if (n >= run.pass_ms.size()) {
        run.pass_ms.push_back(0.0);
        counts.push_back(0);
      }
      run.pass_ms[n] += row.pass_ms[n];
      ++counts[n];
    }
    if (row.arm != kBaselineName || !row.error.empty()) continue;
    if (row.prompt_ids.empty()) {
      throw Error("{}: lacks the prompt's ids; run the experiment again with this version", at);
    }
    const bool full = row.finish == "context";
    const int length = static_cast<int>(row.prompt_ids.size() + row.ids.size());
    run.answers.push_back({row.prompt, row.category, std::move(row.prompt_ids), std::move(row.ids),
                           most_tokens, full ? length : 0});
  }
  for (size_t n = 0; n < counts.size(); ++n) run.pass_ms[n] /= counts[n];
  if (run.answers.empty()) throw Error("{}: holds no answer to replay", folder.string());
  return run;
}

ReplayTotals replay_answers(const RecordedRun& run, const DrafterMaker& make, int budget) {
  ReplayTotals totals;
  std::unique_ptr<Drafter> drafter;
  for (const RecordedAnswer& answer : run.answers) {
    if (drafter == nullptr || !run.carried) drafter = make();
    if (drafter == nullptr) throw Error("replay: the baseline drafts nothing; name a method");
    TextReplay(*drafter, nodes_of(*drafter, budget), totals).run(answer);
  }
  return totals;
}

CostPoints CostPoints::parse(std::string_view text) {
  CostPoints costs;
  std::istringstream points{std::string(text)};
  for (std::string point; std::getline(points, point, ',');) {
    int rows = 0;
    double cost = 0.0;
    const char* end = point.data() + point.size();
    const auto first = std::from_chars(point.data(), end, rows);
    const bool has_rows = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
    const auto second = has_rows ? std::from_chars(first.ptr + 1, end, cost) : first;
    const int before = costs.points_.empty() ? 0 : costs.points_.back().first;
    if (!has_rows || second.ec != std::errc() || second.ptr != end || rows <= before ||
        !(cost > 0.0) || !(cost < 1e9)) {
      throw Error("--costs: {} is no ROWS:COST; write them ascending, such as 1:1,2:1.05,8:1.8",
                  quote(point));
    }
    costs.points_.emplace_back(rows, cost);
  }
  if (costs.points_.empty() || costs.points_.front().first != 1) {
    throw Error("--costs: the first point is the cost of 1 row, such as 1:1");
  }
  return costs;
}

CostPoints CostPoints::of_passes(std::span<const double> pass_ms) {
  CostPoints costs;
  for (size_t n = 0; n < pass_ms.size(); ++n) {
    costs.points_.emplace_back(static_cast<int>(n) + 1, pass_ms[n]);
  }
  COPPICE_CHECK(!costs.points_.empty());
  return costs;
}

double CostPoints::of(int rows) const {
  if (points_.size() == 1) return points_[0].second;
  auto right = std::lower_bound(points_.begin(), points_.end(), rows,
                                [](const auto& point, int n) { return point.first < n; });
  right = std::clamp(right, points_.begin() + 1, points_.end() - 1);
  const auto left = right - 1;
  const double slope = (right->second - left->second) / (right->first - left->first);
  return left->second + slope * (rows - left->first);
}

PredictedSpeedup predict_speedup(const ReplayTotals& totals, const CostPoints& costs) {
  if (totals.steps == 0) return {};
  double spent = 0.0;
  for (size_t n = 0; n < totals.steps_with_rows.size(); ++n) {
    spent += static_cast<double>(totals.steps_with_rows[n]) * costs.of(static_cast<int>(n) + 1);
  }
  std::vector<double> pass;
  for (int rows = 1; rows <= static_cast<int>(totals.accepted_at.size()) + 1; ++rows) {
    pass.push_back(costs.of(rows));
  }
  const Hindsight hindsight{totals.matches, pass};
  return {static_cast<double>(totals.emitted) * costs.of(1) / spent,
          clairvoyant_speedup({&hindsight, 1})};
}

}  // namespace coppice
