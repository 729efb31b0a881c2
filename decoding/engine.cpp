// See engine.h.
#include "decoding/engine.h"

#include <algorithm>
#include <chrono>

#include "decoding/sequence.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

}  // namespace

Engine::Engine(const EngineParts& parts, const EngineLimits& limits)
    : parts_(parts), limits_(limits) {
  COPPICE_CHECK(parts.target != nullptr && parts.backend != nullptr && parts.rule != nullptr);
  COPPICE_CHECK(limits.sequences > 0 && limits.chunk_rows > 0 && limits.budget >= 0);
  const Model& target = *parts.target;
  context_ = limits.context > 0 ? std::min(limits.context, target.context()) : target.context();
  vocabulary_ = target.config().vocabulary;
  if (parts.tokenizer != nullptr) vocabulary_ = std::min(vocabulary_, parts.tokenizer->size());
  if (parts.drafter != nullptr) needs_ = parts.drafter->needs();
  if (needs_.vocabulary != 0 && needs_.vocabulary != vocabulary_) {
    throw Error(
        "the drafter was made for a vocabulary of {} tokens, the target has {}; use one "
        "made for this target",
        needs_.vocabulary, vocabulary_);
  }
  most_nodes_ = std::min(limits.budget, needs_.most_nodes);

  std::vector<KvShape> shapes = target.kv_shapes();
  shapes.insert(shapes.end(), needs_.kv_layers.begin(), needs_.kv_layers.end());
  // Without a page limit every sequence can fill the context while its last tree hangs behind it.
  const int pages = limits.pages > 0
                        ? limits.pages
                        : limits.sequences * KVCache::pages_for(context_ + most_nodes_);
  cache_ = std::make_unique<KVCache>(*parts.backend, shapes, pages);
  const int logit_rows = limits.sequences * (1 + most_nodes_);
  workspace_ = std::make_unique<Workspace>(
      target, *parts.backend,
      WorkspaceSize{limits.chunk_rows + logit_rows, logit_rows,
                    static_cast<int>(needs_.tap_layers.size()), needs_.top_k});
}

Engine::~Engine() = default;

RequestId Engine::submit(Request request) {
  const int prompt = static_cast<int>(request.prompt.size());
  if (prompt == 0) throw Error("the prompt is empty; give at least one token");
  if (prompt >= context_) {
    throw Error(
        "the prompt has {} tokens and the context is {}; shorten the prompt so that there "
        "is room for an answer",
        prompt, context_);
  }
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= parts_.target->config().vocabulary) {
      throw Error("prompt token {} is outside the vocabulary of {} tokens", id, vocabulary_);
    }
  }
  if (request.stop.max_new_tokens < 0) {
    throw Error("max_new_tokens is {}; give 0 or more", request.stop.max_new_tokens);
  }
  validate(request.sampling, vocabulary_);
  const int longest = std::min(context_, prompt + request.stop.max_new_tokens);
  if (KVCache::pages_for(longest) > cache_->total_pages()) {
    throw Error(
        "the request may reach {} tokens and the cache holds {}; ask for fewer new tokens "
        "or give the cache more pages",
        longest, cache_->total_pages() * kPageSlots);
  }
  auto sequence =
      std::make_unique<Sequence>(next_id_, std::move(request), parts_.tokenizer, vocabulary_);
  if (sequence->request.stop.max_new_tokens == 0) sequence->answer.finish = Finish::length;
  sequences_.push_back(std::move(sequence));
  return next_id_++;
}

bool Engine::step() {
  const Clock::time_point start = Clock::now();
  admit();
  plan();
  if (in_step_.empty()) return false;
  for (Sequence* sequence : in_step_) {
    if (!sequence->first_pass_done) sequence->first_pass = start;
    sequence->first_pass_done = true;
  }
  const Clock::time_point planned = Clock::now();
  open_budget();
  draft();
  choose();
  const Clock::time_point drafted = Clock::now();
  pack();
  ForwardBatch batch = packed_.batch();
  batch.tap_layers = needs_.tap_layers;
  batch.top_k = batch.logit_rows.empty() ? 0 : needs_.top_k;
  ask_backend(batch);
  const Clock::time_point packed = Clock::now();
  const ForwardOutput output = parts_.target->forward(batch, *cache_, *workspace_);
  const Clock::time_point verified = Clock::now();
  judge(output);
  const Clock::time_point judged = Clock::now();
  close_budget(milliseconds(drafted - planned), milliseconds(verified - packed));
  commit_and_observe(output);

  const Clock::time_point done = Clock::now();
  for (Sequence* sequence : in_step_) {
    if (sequence->emitted == 0) continue;
    Answer& answer = sequence->answer;
    if (answer.prefill_emitted == 0) {
      answer.prefill_emitted = sequence->emitted;
      answer.ttft_ms = milliseconds(done - sequence->first_pass);
      sequence->first_token = done;
    } else {
      ++answer.steps;
      answer.decode_ms = milliseconds(done - sequence->first_token);
    }
  }
  if (on_step) {
    StepRecord times;
    times.start_ms = milliseconds(start - made_);
    times.plan_ms = milliseconds(planned - start);
    times.draft_ms = milliseconds(drafted - planned);
    times.target_ms = milliseconds(verified - packed);
    times.judge_ms = milliseconds(judged - verified);
    times.commit_ms = milliseconds(done - judged);
    times.other_ms = milliseconds(done - start) - times.draft_ms - times.target_ms - times.judge_ms;
    report(times);
  }
  return true;
}

// Waiting sequences enter, the oldest first, while there are places and pages for what they bring.
void Engine::admit() {
  int on_cache = running();
  for (const auto& sequence : sequences_) {
    if (sequence->finished() || sequence->on_cache()) continue;
    if (on_cache == limits_.sequences) break;
    const int slots = static_cast<int>(sequence->tokens.size()) + 1;
    // One page a running sequence is left to grow into, or the newcomer would be thrown out at
    // once.
    if (on_cache > 0 && KVCache::pages_for(slots) + on_cache > cache_->free_pages()) break;
    sequence->kv = cache_->open();
    ++on_cache;
  }
}

// Decoding sequences get their rows first; the trunk rows that are left go to prefills by age.
void Engine::plan() {
  in_step_.clear();
  int chunk_left = limits_.chunk_rows;
  for (const bool decoding : {true, false}) {
    for (const auto& owned : sequences_) {
      Sequence& sequence = *owned;
      if (sequence.finished() || !sequence.on_cache()) continue;
      const int pending = static_cast<int>(sequence.tokens.size()) - cache_->committed(sequence.kv);
      if ((pending == 1) != decoding) continue;
      sequence.trunk = std::min(pending, decoding ? 1 : chunk_left);
      if (sequence.trunk == 0) continue;
      sequence.decides = sequence.trunk == pending;
      sequence.first_position = cache_->committed(sequence.kv);
      sequence.emitted = 0;
      sequence.path_kept = 0;
      sequence.verdict.path.clear();
      // A node deeper than this could not be delivered.
      const int tokens = static_cast<int>(sequence.tokens.size());
      const int wanted = sequence.request.stop.max_new_tokens - sequence.watch.tokens();
      const int depth = std::max(0, std::min(context_ - tokens, wanted) - 1);
      const int nodes = decoding && depth > 0 ? most_nodes_ : 0;
      if (!reserve(sequence, nodes)) continue;
      sequence.tree.reset(sequence.tokens.back(), sequence.tail->rows() - sequence.trunk, depth);
      if (!decoding) chunk_left -= sequence.trunk;
      in_step_.push_back(&sequence);
    }
  }
}

// Too few pages: first the drafts go, then the youngest other sequences, then this one itself.
bool Engine::reserve(Sequence& sequence, int nodes) {
  while (true) {
    if (auto tail = cache_->reserve(sequence.kv, sequence.trunk + nodes)) {
      sequence.tail.emplace(std::move(*tail));
      return true;
    }
    if (nodes > 0) {
      nodes = 0;
      continue;
    }
    const auto victim = std::find_if(sequences_.rbegin(), sequences_.rend(), [](const auto& s) {
      return !s->finished() && s->on_cache() && !s->tail;
    });
    COPPICE_CHECK(victim != sequences_.rend());
    Sequence& youngest = **victim;
    const bool itself = &youngest == &sequence;
    release(youngest, Reason::preempted);
    if (itself) return false;
  }
}

// Only steps in which every sequence decodes say what drafts are worth: a prefill's rows pay for
// none.
void Engine::open_budget() {
  budgeted_.clear();
  if (parts_.budget == nullptr) return;
  const bool decoding = std::all_of(in_step_.begin(), in_step_.end(), [](const Sequence* sequence) {
    return sequence->trunk == 1 && sequence->decides;
  });
  for (Sequence* sequence : in_step_) {
    sequence->proposed.clear();
    if (decoding) {
      budgeted_.push_back({&sequence->tree, static_cast<int>(sequence->tokens.size())});
    }
  }
  if (decoding) parts_.budget->begin(budgeted_);
}

void Engine::draft() {
  jobs_.clear();
  if (!budgeted_.empty() && parts_.budget->rests()) return;
  for (Sequence* sequence : in_step_) {
    const int budget = sequence->tree.room();
    if (budget == 0) continue;
    DraftJob job;
    job.sequence = sequence->kv;
    job.tokens = sequence->tokens;
    job.budget = budget;
    if (!budgeted_.empty()) job.price = &parts_.budget->price();
    job.draw = parts_.rule->draw();
    job.sampler = &sequence->sampler;
    job.tail = &*sequence->tail;
    job.cache = cache_.get();
    job.first_layer = parts_.target->layers();
    job.tree = &sequence->tree;
    jobs_.push_back(job);
  }
  if (!jobs_.empty()) parts_.drafter->propose(jobs_);
}

void Engine::choose() {
  if (budgeted_.empty()) return;
  for (Sequence* sequence : in_step_) {
    const TokenTree& tree = sequence->tree;
    for (int node = 0; node < tree.size(); ++node) {
      sequence->proposed.push_back({tree.parent(node), tree.token(node), tree.score(node),
                                    static_cast<uint8_t>(tree.source(node)), tree.role(node)});
    }
  }
  parts_.budget->choose(budgeted_);
}

void Engine::close_budget(double draft_ms, double target_ms) {
  if (budgeted_.empty()) return;
  int emitted = 0;
  for (const Sequence* sequence : in_step_) {
    parts_.budget->learn(sequence->proposed,
                         std::span(sequence->tokens).last(static_cast<size_t>(sequence->emitted)));
    emitted += sequence->emitted;
  }
  parts_.budget->end(emitted, draft_ms / 1e3, target_ms / 1e3);
}

void Engine::pack() {
  packed_.clear();
  for (const Sequence* sequence : in_step_) {
    const auto trunk = std::span(sequence->tokens)
                           .subspan(static_cast<size_t>(sequence->first_position),
                                    static_cast<size_t>(sequence->trunk));
    packed_.add(trunk, &sequence->tree, sequence->first_position, cache_->pages(sequence->kv),
                sequence->decides);
  }
}

// A backend that judges leaves the logits where they are, unless somebody wants to see them.
void Engine::ask_backend(ForwardBatch& batch) {
  backend_judge_.clear();
  if (!parts_.backend->judges() || on_judged) return;
  for (size_t i = 0; i < in_step_.size(); ++i) {
    const Sequence& sequence = *in_step_[i];
    const int index = static_cast<int>(i);
    if (!sequence.decides || sequence.request.logprobs >= 0) {
      backend_judge_.skip();
    } else {
      backend_judge_.add(*parts_.rule, sequence.sampler, sequence.tree, packed_.node_row(index),
                         packed_.logit_row(index), sequence.tokens);
    }
  }
  batch.judges = backend_judge_.ops();
}

void Engine::judge(const ForwardOutput& output) {
  for (size_t i = 0; i < in_step_.size(); ++i) {
    Sequence& sequence = *in_step_[i];
    sequence.kept.clear();
    for (int row = 0; row < sequence.trunk; ++row) sequence.kept.push_back(row);
    if (!sequence.decides) continue;
    const int index = static_cast<int>(i);
    const std::span<const int> logit_row = packed_.logit_row(index);
    node_logits_.clear();
    for (int row : packed_.node_row(index)) {
      node_logits_.push_back(output.logits_of(logit_row[static_cast<size_t>(row)]));
    }
    try {
      if (backend_judge_.read(index, sequence.verdict)) {
        append(sequence, output, index);
        continue;
      }
      TargetRows target(sequence.sampler, sequence.tree, node_logits_, output.vocabulary,
                        sequence.tokens);
      asked_.clear();
      if (on_judged) target.listen(&asked_);
      parts_.rule->judge(sequence.tree, target, sequence.verdict);
      if (on_judged) {
        target.listen(nullptr);
        on_judged({sequence.id, sequence.first_position, sequence.trunk, &sequence.tree, &target,
                   &sequence.verdict, asked_});
      }
      append(sequence, output, index);
    } catch (const Failure& failure) {  // one request's logits; the others go on
      sequence.answer.error = failure.what();
      sequence.answer.finish = Finish::failed;
    }
  }
}

// Delivers the path's tokens and the one behind it, one by one, until something ends the answer.
void Engine::append(Sequence& sequence, const ForwardOutput& output, int index) {
  Answer& answer = sequence.answer;
  const Verdict& verdict = sequence.verdict;
  const std::span<const int> node_row = packed_.node_row(index);
  const int path = static_cast<int>(verdict.path.size());
  int node = 0;  // whose logits gave the token
  for (int i = 0; i <= path && answer.finish == Finish::running; ++i) {
    const int32_t token =
        i < path ? sequence.tree.token(verdict.path[static_cast<size_t>(i)]) : verdict.token;
    if (i > 0) {  // the node before this token is certain now: its row is kept
      sequence.kept.push_back(node_row[static_cast<size_t>(node)]);
      ++sequence.path_kept;
    }
    if (sequence.request.logprobs >= 0) {
      const std::span<const float> logits(node_logits_[static_cast<size_t>(node)],
                                          static_cast<size_t>(output.vocabulary));
      answer.logprobs.push_back(raw_log_probabilities(
          logits.first(static_cast<size_t>(vocabulary_)), token, sequence.request.logprobs));
    }
    sequence.tokens.push_back(token);
    answer.ids.push_back(token);
    ++sequence.emitted;
    const StopWatch::Step stop = sequence.watch.push(token);
    answer.text += stop.text;
    if (sequence.request.on_text && !stop.text.empty()) sequence.request.on_text(stop.text);
    if (stop.finish != Finish::running) {
      answer.finish = stop.finish;
    } else if (static_cast<int>(sequence.tokens.size()) == context_) {
      answer.finish = Finish::context;
    }
    if (i < path) node = verdict.path[static_cast<size_t>(i)];
  }
}

void Engine::commit_and_observe(const ForwardOutput& output) {
  observations_.clear();
  for (size_t i = 0; i < in_step_.size(); ++i) {
    Sequence& sequence = *in_step_[i];
    const int index = static_cast<int>(i);
    cache_->commit(std::move(*sequence.tail), sequence.kept);
    sequence.tail.reset();
    Observation seen;
    seen.sequence = sequence.kv;
    seen.tokens = sequence.tokens;
    seen.first_position = sequence.first_position;
    seen.kept_rows = sequence.kept;
    seen.tree = sequence.decides ? &sequence.tree : nullptr;
    seen.node_row = packed_.node_row(index);
    seen.path =
        std::span<const int>(sequence.verdict.path).first(static_cast<size_t>(sequence.path_kept));
    seen.output = &output;
    seen.first_row = packed_.rows(index).first;
    seen.logit_row = packed_.logit_row(index);
    if (!sequence.tree.renumbered().empty()) seen.own_nodes = sequence.tree.renumbered();
    observations_.push_back(seen);
  }
  if (parts_.drafter != nullptr) parts_.drafter->observe(observations_);
  for (Sequence* sequence : in_step_) {
    if (sequence->finished()) end(*sequence, sequence->answer.finish);
  }
}

void Engine::report(const StepRecord& times) {
  for (size_t i = 0; i < in_step_.size(); ++i) {
    StepRecord record = in_step_[i]->record(limits_.record_trees);
    record.rows = packed_.rows(static_cast<int>(i)).count;
    record.batch = static_cast<int>(in_step_.size());
    record.draft_ms = times.draft_ms;
    record.target_ms = times.target_ms;
    record.judge_ms = times.judge_ms;
    record.other_ms = times.other_ms;
    record.start_ms = times.start_ms;
    record.plan_ms = times.plan_ms;
    record.commit_ms = times.commit_ms;
    if (!budgeted_.empty()) {
      record.expected_tokens = parts_.budget->expected_tokens();
      record.expected_ms = 1e3 * parts_.budget->expected_seconds();
      record.plain_ms = 1e3 * parts_.budget->plain_seconds();
    }
    on_step(record);
  }
}

void Engine::end(Sequence& sequence, Finish finish) {
  sequence.answer.finish = finish;
  if (finish == Finish::length || finish == Finish::context) {
    const std::string rest = sequence.watch.finish();
    sequence.answer.text += rest;
    if (sequence.request.on_text && !rest.empty()) sequence.request.on_text(rest);
  }
  if (sequence.on_cache()) release(sequence, Reason::finished);
}

void Engine::release(Sequence& sequence, Reason reason) {
  sequence.tail.reset();
  if (parts_.drafter != nullptr) parts_.drafter->forget(sequence.kv, reason);
  cache_->close(sequence.kv);
  sequence.kv = -1;
}

}  // namespace coppice
