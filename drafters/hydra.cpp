// See hydra.h.
#include "drafters/hydra.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"

namespace coppice {

Hydra::Hydra(const HydraOptions& options, const MethodParts& parts)
    : growth_(options.tree, "hydra"), target_(parts.target), backend_(parts.backend) {
  const DraftHead head("hydra", options.head, *target_);
  const HeadConfig& config = head.config();
  const SafetensorsFile& file = head.file();
  const int dim = target_->config().dim;
  taps_ = config.taps;
  vocabulary_ = std::make_unique<DraftVocabulary>(head.draft_ids(), target_->config().vocabulary);
  for (int h = 0; h < config.count; ++h) {
    Head& made = heads_.emplace_back();
    const auto name = [&](int block, const char* part) {
      return fmt::format("{}.{}.{}", h, block, part);
    };
    const int64_t inputs = int64_t{h + 2} * dim;
    made.joined = backend_->pack(file.matrix(name(0, "linear.weight"), dim, inputs));
    made.residual = backend_->pack(file.matrix(name(0, "res_connection.weight"), dim, inputs));
    made.bias = file.vector(name(0, "linear.bias"), dim);
    for (int b = 1; b < config.blocks; ++b) {
      made.blocks.push_back(backend_->pack(file.matrix(name(b, "linear.weight"), dim, dim)));
      made.block_bias.push_back(file.vector(name(b, "linear.bias"), dim));
    }
  }
  if (file.find("lm_head.weight") != nullptr || config.draft_vocabulary != 0) {
    output_ = backend_->pack(file.matrix("lm_head.weight", vocabulary_->size(), dim));
  }
  const auto sequences = static_cast<size_t>(parts.sequences);
  const size_t rows = sequences * static_cast<size_t>(std::max(1, growth_.widest()));
  const auto floats = [&](size_t count, size_t width) {
    return backend_->allocate(count * width * sizeof(float));
  };
  const auto width = static_cast<size_t>(dim);
  embeddings_ = floats(sequences * static_cast<size_t>(growth_.most_rows() + 1), width);
  joined_ = floats(rows, width * (heads_.size() + 1));
  state_ = floats(rows, width);
  next_ = floats(rows, width);
  logits_ = floats(rows, static_cast<size_t>(vocabulary_->size()));
}

Needs Hydra::needs() const {
  return {.tap_layers = taps_, .most_nodes = growth_.most_nodes()};
}

void Hydra::propose(std::span<DraftJob> jobs) {
  depth_ = 0;
  embedded_ = 0;
  growth_.grow(jobs, *this);
}

int Hydra::room(const DraftJob& job) const {
  return hidden_.find(job) == nullptr ? 0 : static_cast<int>(heads_.size());
}

int Hydra::begin(const DraftJob& job) {
  const auto at = static_cast<size_t>(job.sequence);
  if (at >= growing_.size()) growing_.resize(at + 1);
  Growing& growing = growing_[at];
  growing.rows.begin(job.tokens.last(1));
  growing.embedding.clear();
  const std::span<const float> norm = target_->output_norm();
  const float* hidden = hidden_.find(job);
  double squares = 0.0;
  for (size_t i = 0; i < norm.size(); ++i) squares += double{hidden[i]} * hidden[i];
  const double scale =
      1.0 / std::sqrt(squares / static_cast<double>(norm.size()) + target_->config().norm_eps);
  growing.hidden.resize(norm.size());
  for (size_t i = 0; i < norm.size(); ++i) {
    growing.hidden[i] = static_cast<float>(hidden[i] * scale) * norm[i];
  }
  return growing.rows.root();
}

int Hydra::add(SeqId sequence, int parent_row, int32_t token) {
  return growing_[static_cast<size_t>(sequence)].rows.add(parent_row, token);
}

// Hidden state, then the embeddings of the path down to the row's parent; its own is computed.
void Hydra::join_inputs(const Growing& growing, int row, float* out) const {
  const auto dim = static_cast<size_t>(target_->config().dim);
  std::memcpy(out, growing.hidden.data(), dim * sizeof(float));
  int depth = depth_;
  for (int above = growing.rows.parent[static_cast<size_t>(row)]; above >= 0;
       above = growing.rows.parent[static_cast<size_t>(above)]) {
    const auto from = static_cast<size_t>(growing.embedding[static_cast<size_t>(above)]);
    std::memcpy(out + static_cast<size_t>(depth--) * dim, embeddings_.as<float>() + from * dim,
                dim * sizeof(float));
  }
  COPPICE_CHECK(depth == 0);
}

// Section 3.1: head i sees the hidden state and the embeddings of the i tokens before its own.
void Hydra::run(std::span<const SeqId> sequences) {
  const ModelConfig& config = target_->config();
  const int dim = config.dim;
  const Head& head = heads_[static_cast<size_t>(depth_)];
  const int inputs = (depth_ + 2) * dim;
  token_.clear();
  for (const SeqId sequence : sequences) {
    Growing& growing = growing_[static_cast<size_t>(sequence)];
    growing.last_run = growing.rows.computed;
    growing.first_logits = static_cast<int>(token_.size());
    for (int row = growing.last_run; row < growing.rows.size(); ++row) {
      join_inputs(growing, row, joined_.as<float>() + token_.size() * inputs);
      growing.embedding.push_back(embedded_ + static_cast<int>(token_.size()));
      token_.push_back(growing.rows.token[static_cast<size_t>(row)]);
    }
    growing.rows.computed = growing.rows.size();
  }
  const int rows = static_cast<int>(token_.size());
  float* embedded = embeddings_.as<float>() + static_cast<size_t>(embedded_) * dim;
  float* state = state_.as<float>();
  float* next = next_.as<float>();
  ops_.clear();
  ops_.push_back(
      Embed{&target_->embedding(), token_.data(), rows, config.embedding_scale, embedded});
  ops_.push_back(Copy{embedded, dim, rows, dim, joined_.as<float>() + (depth_ + 1) * dim, inputs});
  Linear product{.weight = head.residual.get(),
                 .x = joined_.as<float>(),
                 .x_stride = inputs,
                 .rows = rows,
                 .y = state,
                 .y_stride = dim};
  ops_.push_back(product);
  product.weight = head.joined.get();
  product.bias = head.bias.data();
  product.activation = Activation::silu;
  product.accumulate = true;
  ops_.push_back(product);
  for (size_t b = 0; b < head.blocks.size(); ++b) {
    ops_.push_back(Copy{state, dim, rows, dim, next, dim});
    product.weight = head.blocks[b].get();
    product.bias = head.block_bias[b].data();
    product.x = state;
    product.x_stride = dim;
    product.y = next;
    ops_.push_back(product);
    std::swap(state, next);
  }
  ops_.push_back(Linear{.weight = output_ ? output_.get() : &target_->output(),
                        .x = state,
                        .x_stride = dim,
                        .rows = rows,
                        .y = logits_.as<float>(),
                        .y_stride = vocabulary_->size()});
  backend_->run(ops_);
  embedded_ += rows;
  ++depth_;
}

std::span<const float> Hydra::logits(SeqId sequence, int row) {
  const Growing& growing = growing_[static_cast<size_t>(sequence)];
  COPPICE_CHECK(row >= growing.last_run && row < growing.rows.computed);
  const auto width = static_cast<size_t>(vocabulary_->size());
  const auto at = static_cast<size_t>(growing.first_logits + row - growing.last_run);
  return vocabulary_->spread({logits_.as<float>() + at * width, width});
}

}  // namespace coppice
