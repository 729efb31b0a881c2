// See prompt_row.h.
#include "experiments/prompt_row.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Calls `field(key, member)` for everything a row holds but its phases.
template <class Row, class Field>
void visit_row(Row& row, Field&& field) {
  field("prompt", row.prompt);
  field("category", row.category);
  field("arm", row.arm);
  field("error", row.error);
  field("finish", row.finish);
  field("prompt_tokens", row.prompt_tokens);
  field("ttft_ms", row.ttft_ms);
  field("latency_ms", row.latency_ms);
  field("decode_ms", row.decode_ms);
  field("decode_tokens", row.decode_tokens);
  field("steps", row.steps);
  field("steps_without_draft", row.steps_without_draft);
  field("rows", row.rows);
  field("drafted", row.drafted);
  field("probes", row.probes);
  field("accepted", row.accepted);
  field("discarded", row.discarded);
  field("reached_at", row.reached_at);
  field("accepted_at", row.accepted_at);
  field("proposed", row.proposed);
  field("expected_ms", row.expected_ms);
  field("expected_plain_ms", row.expected_plain_ms);
  field("matches", row.matches);
  field("pass_ms", row.pass_ms);
  field("draft_ms", row.phase.draft);
  field("target_ms", row.phase.target);
  field("judge_ms", row.phase.judge);
  field("other_ms", row.phase.other);
  field("ids", row.ids);
  field("prompt_ids", row.prompt_ids);
}

}  // namespace

void count_first(std::vector<int64_t>& at, int count) {
  if (static_cast<size_t>(count) > at.size()) at.resize(static_cast<size_t>(count));
  std::for_each_n(at.begin(), count, [](int64_t& n) { ++n; });
}

void add_step(PromptRow& row, const StepRecord& step) {
  if (step.prefill) return;
  const double share = 1.0 / std::max(step.batch, 1);
  row.phase.draft += step.draft_ms * share;
  row.phase.target += step.target_ms * share;
  row.phase.judge += step.judge_ms * share;
  row.phase.other += step.other_ms * share;
  row.decode_ms += (step.draft_ms + step.target_ms + step.judge_ms + step.other_ms) * share;
  row.decode_tokens += step.emitted;
  ++row.steps;
  row.steps_without_draft += step.drafted == 0;
  row.rows += step.rows;
  row.proposed += step.proposed;
  row.drafted += step.drafted;
  row.probes += step.probes;
  row.accepted += step.accepted;
  row.discarded += std::max(step.accepted - step.emitted, 0);
  if (step.expected_tokens > 0) {
    row.expected_ms += (step.expected_ms + step.draft_ms) * share;
    // Without drafts a pass gives each of its sequences one token.
    row.expected_plain_ms += step.expected_tokens * share * step.plain_ms * share;
  }
  count_first(row.reached_at, step.reached);
  count_first(row.accepted_at, step.accepted);
}

int match_length(const PromptRow& row, const StepRecord& step) {
  int node = 0, length = 0;
  const auto size = static_cast<int>(step.proposed_tokens.size());
  for (auto at = static_cast<size_t>(step.position + 1 - row.prompt_tokens); at < row.ids.size();
       ++at, ++length) {
    int child = node + 1;
    while (child < size && (step.proposed_parents[static_cast<size_t>(child)] != node ||
                            step.proposed_tokens[static_cast<size_t>(child)] != row.ids[at])) {
      ++child;
    }
    if (child >= size) break;
    node = child;
  }
  return length;
}

ordered_json row_to_json(const PromptRow& row) {
  ordered_json out;
  visit_row(row, [&](const char* key, const auto& member) { out[key] = member; });
  if (row.prompt_ids.empty()) out.erase("prompt_ids");
  if (row.joules) out["joules"] = *row.joules;
  return out;
}

PromptRow row_from_json(const json& json, std::string_view place) {
  PromptRow row;
  visit_row(row, [&](const char* key, auto& member) {
    if (std::string_view(key) == "prompt_ids" && !json.contains(key)) return;
    try {
      json.at(key).get_to(member);
    } catch (const nlohmann::json::exception&) {
      throw Error("{}: {}: is missing or of another type; run the experiment again", place, key);
    }
  });
  if (json.contains("joules") && json["joules"].is_number()) row.joules = json["joules"];
  return row;
}

ordered_json step_to_json(const StepRecord& step, const PromptRow& row) {
  ordered_json out = {{"prompt", row.prompt},      {"arm", row.arm},
                      {"step", step.step},         {"position", step.position},
                      {"trunk", step.trunk},       {"prefill", step.prefill},
                      {"rows", step.rows},         {"proposed", step.proposed},
                      {"drafted", step.drafted},   {"probes", step.probes},
                      {"reached", step.reached},   {"accepted", step.accepted},
                      {"emitted", step.emitted},   {"batch", step.batch},
                      {"draft_ms", step.draft_ms}, {"target_ms", step.target_ms},
                      {"judge_ms", step.judge_ms}, {"other_ms", step.other_ms}};
  if (step.expected_tokens > 0) {
    out["expected_tokens"] = step.expected_tokens;
    out["expected_ms"] = step.expected_ms;
    out["plain_ms"] = step.plain_ms;
  }
  if (!step.tree_tokens.empty()) {
    out["tree_tokens"] = step.tree_tokens;
    out["tree_parents"] = step.tree_parents;
    out["tree_path"] = step.tree_path;
    out["tokens"] = step.tokens;
  }
  return out;
}

RecordedStep step_from_json(const json& json, std::string_view place) {
  RecordedStep out;
  StepRecord& step = out.record;
  try {
    json.at("prompt").get_to(out.prompt);
    json.at("arm").get_to(out.arm);
    json.at("step").get_to(step.step);
    json.at("position").get_to(step.position);
    json.at("trunk").get_to(step.trunk);
    json.at("prefill").get_to(step.prefill);
    json.at("rows").get_to(step.rows);
    json.at("drafted").get_to(step.drafted);
    json.at("probes").get_to(step.probes);
    json.at("accepted").get_to(step.accepted);
    json.at("emitted").get_to(step.emitted);
    json.at("batch").get_to(step.batch);
    json.at("draft_ms").get_to(step.draft_ms);
    json.at("target_ms").get_to(step.target_ms);
    json.at("judge_ms").get_to(step.judge_ms);
    json.at("other_ms").get_to(step.other_ms);
  } catch (const nlohmann::json::exception&) {
    throw Error("{}: is no record of a step; run the experiment again", place);
  }
  return out;
}

}  // namespace coppice
