// See step_timer.h.
#include "experiments/step_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "experiments/statistics.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kComputed = 64;  // tokens of the context that are really computed

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::span<const double> values) {
  return percentile(values, 0.5).value_or(0.0);
}

}  // namespace

StepTimer::StepTimer(const Model& model, OpListener& backend, int most_context, int most_rows)
    : model_(model),
      backend_(backend),
      workspace_(model, backend, {.rows = std::max(most_rows, kComputed), .logit_rows = most_rows}),
      cache_(backend, model.kv_shapes(), KVCache::pages_for(most_context + most_rows) + 1),
      sequence_(cache_.open()),
      normed_(backend.allocate(sizeof(float) * static_cast<size_t>(most_rows) *
                               static_cast<size_t>(model.config().dim))) {
  if (most_context + most_rows > model.context()) {
    throw Error("context {} and {} rows: the model has {} positions; ask for less", most_context,
                most_rows, model.context());
  }
  const size_t values = normed_.bytes / sizeof(float);
  for (size_t i = 0; i < values; ++i) {
    normed_.as<float>()[i] = static_cast<float>(1.5 * std::sin(static_cast<double>(i)));
  }
}

void StepTimer::set_context(int context) {
  cache_.truncate(sequence_, std::min(context, cache_.committed(sequence_)));
  const int computed = std::min(context, kComputed);
  if (const int missing = computed - cache_.committed(sequence_); missing > 0) {
    auto tail = cache_.reserve(sequence_, missing);
    COPPICE_CHECK(tail);
    forward(missing);
    cache_.commit_all(std::move(*tail));
  }
  if (const int missing = context - cache_.committed(sequence_); missing > 0) {
    auto tail = cache_.reserve(sequence_, missing);
    COPPICE_CHECK(tail);
    copy_kv(computed, context);
    cache_.commit_all(std::move(*tail));
  }
}

/// Fills the slots behind the committed ones up to `to` with the first `from_count`, over and over.
void StepTimer::copy_kv(int from_count, int to) {
  const auto pages = cache_.pages(sequence_);
  const auto place_of = [&](int slot) {
    return pages[static_cast<size_t>(slot / kPageSlots)] * kPageSlots + slot % kPageSlots;
  };
  std::vector<int32_t> source, target;
  for (int slot = cache_.committed(sequence_); slot < to; ++slot) {
    source.push_back(place_of(slot % from_count));
    target.push_back(place_of(slot));
  }
  std::vector<Op> ops;
  for (int layer = 0; layer < cache_.layers(); ++layer) {
    ops.push_back(
        MoveKv{cache_.layer(layer), static_cast<int>(source.size()), source.data(), target.data()});
  }
  backend_.run(ops);
}

/// A chain of `rows` rows behind the committed tokens, in slots that are reserved.
void StepTimer::forward(int rows) {
  const int committed = cache_.committed(sequence_);
  token_.resize(static_cast<size_t>(rows));
  for (int r = 0; r < rows; ++r) {
    token_[static_cast<size_t>(r)] = (1000 + 7 * (committed + r)) % model_.config().vocabulary;
  }
  parent_.assign(token_.size(), -1);
  wanted_.resize(static_cast<size_t>(std::min(rows, workspace_.size().logit_rows)));
  std::iota(wanted_.begin(), wanted_.end(), rows - static_cast<int>(wanted_.size()));
  const SequenceRows sequence{0, rows, committed, cache_.pages(sequence_)};
  ForwardBatch batch;
  batch.token = token_;
  batch.parent = parent_;
  batch.sequences = {&sequence, 1};
  batch.logit_rows = wanted_;
  model_.forward(batch, cache_, workspace_);
}

double StepTimer::step(int rows) {
  const auto tail = cache_.reserve(sequence_, rows);
  const Clock::time_point start = Clock::now();
  forward(rows);
  return since(start);
}

void StepTimer::listen(int rows) {
  backend_.listening = true;
  forward(rows);
  backend_.listening = false;
}

double StepTimer::run(const std::vector<Op>& ops) {
  const Clock::time_point start = Clock::now();
  backend_.run(ops);
  return since(start);
}

StepParts StepTimer::parts(int rows, int repeats) {
  const auto tail = cache_.reserve(sequence_, rows);
  listen(rows);
  std::vector<Op> products, normed_products, attention;
  for (const Op& op : backend_.heard) {
    if (std::holds_alternative<Attention>(op)) attention.push_back(op);
    // Starts the residual stream anew, so that repeats do not let it grow.
    if (std::holds_alternative<Embed>(op)) normed_products.push_back(op);
    if (const auto* linear = std::get_if<Linear>(&op)) {
      normed_products.push_back(op);
      Linear product = *linear;
      if (product.norm != nullptr) {
        product.norm = nullptr;
        product.x = normed_.as<float>();
        product.x_stride = model_.config().dim;
      }
      products.push_back(product);
    }
  }
  std::vector<double> step_s, products_s, normed_s, attention_s;
  for (int i = -1; i < repeats; ++i) {
    const Clock::time_point start = Clock::now();
    forward(rows);
    const StepParts now{since(start), run(products), run(normed_products), run(attention)};
    if (i < 0) continue;
    step_s.push_back(now.step);
    products_s.push_back(now.products);
    normed_s.push_back(now.norms);
    attention_s.push_back(now.attention);
  }
  const double without_norms = median(products_s);
  return {median(step_s), without_norms, std::max(0.0, median(normed_s) - without_norms),
          median(attention_s)};
}

StepWork StepTimer::work(int rows) {
  const auto tail = cache_.reserve(sequence_, rows);
  listen(rows);
  const ModelConfig& config = model_.config();
  StepWork work;
  for (const Op& op : backend_.heard) {
    if (const auto* linear = std::get_if<Linear>(&op)) {
      const bool gated = linear->activation != Activation::none;
      work.bytes += static_cast<double>(linear->weight->bytes);
      work.product_operations +=
          2.0 * linear->rows * linear->weight->inputs * linear->weight->outputs * (gated ? 2 : 1);
    }
    if (const auto* attention = std::get_if<Attention>(&op)) {
      const int committed = cache_.committed(sequence_);
      const int seen = attention->window > 0 ? std::min(committed, attention->window) : committed;
      work.bytes += 2.0 * sizeof(uint16_t) * config.kv_heads * config.head_dim * (seen + rows);
      work.attention_operations +=
          4.0 * config.heads * config.head_dim * rows * (seen + (rows + 1) / 2.0);
    }
  }
  return work;
}

}  // namespace coppice
