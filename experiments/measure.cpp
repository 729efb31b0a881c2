// See measure.h.
#include "experiments/measure.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/energy.h"

namespace coppice {
namespace {

constexpr int kDraftRoom = 256;  // positions behind the last token that drafts may reach
constexpr int kWarmupTokens = 16;
constexpr int kChunkRows = 256;

int longest(std::span<const Prompt> prompts) {
  int longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.most_ids);
  return longest;
}

EngineLimits limits_for(const BenchOptions& bench, const Model& target,
                        std::span<const Prompt> prompts) {
  EngineLimits limits;
  limits.sequences = bench.batch;
  // No longer than needed: every engine clears a cache of this length.
  limits.context = std::min(target.context(), longest(prompts) + bench.max_new_tokens + kDraftRoom);
  // All prompts of a group in one pass, so that decode steps hold no row of a prefill.
  limits.chunk_rows =
      bench.batch == 1 ? kChunkRows : std::max(kChunkRows, bench.batch * longest(prompts));
  limits.record_trees = bench.record_trees;
  return limits;
}

}  // namespace

Measurement::Measurement(const BenchConfig& config, const LoadedModel& target,
                         const LoadedModel* draft, Backend& backend,
                         std::span<const Prompt> prompts)
    : config_(config),
      target_(target),
      draft_(draft),
      backend_(backend),
      sampling_(config.sampling.params()),
      limits_(limits_for(config.bench, *target.model, prompts)) {
  validate(sampling_, target.tokenizer->size());
  specs_.push_back({});
  for (const MethodConfig& method : config.methods) specs_.push_back(method.spec);
  for (size_t arm = 0; arm < specs_.size(); ++arm) {
    const auto decoder = make_decoder(static_cast<int>(arm));
    const bool is_baseline = arm == 0;
    arms_.push_back({is_baseline ? std::string(kBaselineName) : config.methods[arm - 1].name,
                     specs_[arm].method, std::string(decoder->rule().name()),
                     decoder->rule().lossless(), decoder->rule().valid()});
  }
}

std::unique_ptr<Decoder> Measurement::make_decoder(int arm) const {
  return std::make_unique<Decoder>(specs_[static_cast<size_t>(arm)], target_, draft_, backend_,
                                   limits_, sampling_.temperature);
}

void Measurement::warm_up(const std::atomic<bool>& interrupted) {
  std::vector<Prompt> prompts = warmup_prompts(config_.bench.warmup);
  encode_prompts(prompts, *target_.tokenizer, config_.bench.raw || config_.bench.context > 0);
  for (const Prompt& prompt : prompts) {
    const Prompt* group[] = {&prompt};
    for (int arm = 0; arm < static_cast<int>(specs_.size()); ++arm) {
      decode(*make_decoder(arm), arm, group, std::min(kWarmupTokens, config_.bench.max_new_tokens),
             interrupted);
    }
  }
}

ArmResult Measurement::run(int arm, std::span<const Prompt* const> group,
                           const std::atomic<bool>& interrupted) {
  const int tokens = config_.bench.max_new_tokens;
  if (config_.bench.memory == "fresh") {
    return decode(*make_decoder(arm), arm, group, tokens, interrupted);
  }
  carried_.resize(specs_.size());
  auto& decoder = carried_[static_cast<size_t>(arm)];
  if (decoder == nullptr) decoder = make_decoder(arm);
  return decode(*decoder, arm, group, tokens, interrupted);
}

Request Measurement::make_request(const Prompt& prompt, int max_new_tokens) const {
  Request request;
  request.prompt = prompt.ids;
  request.sampling = sampling_;
  request.sampling.request = prompt.request;
  const auto stops = target_.tokenizer->stop_ids();
  request.stop.tokens.assign(stops.begin(), stops.end());
  request.stop.max_new_tokens = max_new_tokens;
  request.ignore_eos = config_.bench.ignore_eos;
  return request;
}

// What the clairvoyant bound is computed from.
void Measurement::add_hindsight(PromptRow& row, size_t index,
                                std::span<const Recorded> steps) const {
  int longest = 0;
  for (const Recorded& item : steps) {
    if (item.row != index || item.step.prefill) continue;
    row.matches.push_back(match_length(row, item.step));
    longest = std::max(longest, row.matches.back());
  }
  const CostCurve& costs = target_.costs(backend_);
  const int middle = row.prompt_tokens + static_cast<int>(row.ids.size()) / 2;
  for (int rows = 1; rows <= longest + 1; ++rows) {
    row.pass_ms.push_back(1e3 * costs.seconds(rows, middle));
  }
}

ArmResult Measurement::decode(Decoder& decoder, int arm, std::span<const Prompt* const> group,
                              int max_new_tokens, const std::atomic<bool>& interrupted) const {
  Engine& engine = decoder.engine();
  ArmResult result;
  std::map<RequestId, size_t> row_of;
  for (const Prompt* prompt : group) {
    PromptRow row;
    row.prompt = prompt->id;
    row.category = prompt->category;
    row.arm = arms_[static_cast<size_t>(arm)].name;
    row.prompt_tokens = static_cast<int>(prompt->ids.size());
    if (arm == 0) row.prompt_ids = prompt->ids;
    try {
      row_of[engine.submit(make_request(*prompt, max_new_tokens))] = result.rows.size();
    } catch (const Error& error) {
      row.error = error.what();
    }
    result.rows.push_back(std::move(row));
  }

  std::vector<Recorded> recorded;
  engine.on_step = [&](const StepRecord& step) { recorded.push_back({row_of.at(step.id), step}); };
  EnergyMeter energy;
  while (engine.step()) {
    if (interrupted) throw Interrupted{};
  }
  const double joules = energy.joules();
  engine.on_step = nullptr;

  if (trace_ != nullptr) trace_->begin(arms_[static_cast<size_t>(arm)].name);
  for (const Recorded& item : recorded) {
    PromptRow& row = result.rows[item.row];
    if (trace_ != nullptr) trace_->add(item.step, row.prompt);
    add_step(row, item.step);
    result.steps += step_to_json(item.step, row).dump() + "\n";
  }
  double all_tokens = 0;
  for (const auto& entry : row_of) {
    PromptRow& row = result.rows[entry.second];
    Answer answer = engine.take(entry.first);
    row.finish = finish_name(answer.finish);
    row.ids = std::move(answer.ids);
    if (decoder.budget_is_auto() && config_.bench.batch == 1) {
      add_hindsight(row, entry.second, recorded);
    }
    all_tokens += static_cast<double>(row.ids.size());
    row.ttft_ms = answer.ttft_ms;
    row.latency_ms = answer.decode_ms;
    if (answer.finish == Finish::failed) row.error = answer.error;
  }
  if (energy.available() && all_tokens > 0) {
    for (PromptRow& row : result.rows) {
      row.joules = joules * static_cast<double>(row.ids.size()) / all_tokens;
    }
  }
  return result;
}

}  // namespace coppice
