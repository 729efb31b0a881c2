// See acceptance.h.
#include "decoding/acceptance.h"

#include "kernels/base/error.h"
#include "kernels/shared/walk.h"

namespace coppice {

TargetRows::TargetRows(Sampler& sampler, const TokenTree& tree,
                       std::span<const float* const> logits, int logits_per_row,
                       std::span<const int32_t> history, Coins* coins)
    : sampler_(&sampler),
      tree_(&tree),
      logits_(logits),
      logits_per_row_(logits_per_row),
      history_(history),
      coins_(coins) {
  COPPICE_CHECK(logits.size() == static_cast<size_t>(tree.size()));
  COPPICE_CHECK(logits_per_row >= sampler.vocabulary());
  COPPICE_CHECK(!history.empty() && history.back() == tree.token(0));
}

std::span<const float> TargetRows::logits(int node) const {
  return {logits_[static_cast<size_t>(node)], static_cast<size_t>(logits_per_row_)};
}

TokenContext TargetRows::context(int node) {
  tree_->path_tokens(node, path_);
  return {history_, path_};
}

int32_t TargetRows::told(Question question) const {
  if (asked_ != nullptr) asked_->push_back(question);
  return question.token;
}

int32_t TargetRows::argmax(int node) {
  return told({.kind = Question::Kind::argmax,
               .node = node,
               .token = sampler_->argmax(logits(node), context(node))});
}

int32_t TargetRows::coupled(int node) {
  Question question{.kind = Question::Kind::coupled, .node = node};
  if (coins_ == nullptr) {
    question.token =
        sampler_->coupled(logits(node), context(node), root_position() + tree_->depth(node) + 1);
    return told(question);
  }
  const std::span<const float> probabilities = p(node);
  const std::vector<double> weights(probabilities.begin(), probabilities.end());
  double total = 0.0;
  for (const double weight : weights) total += weight;
  question.token = coins_->draw(weights, total);
  return told(question);
}

std::span<const float> TargetRows::p(int node) {
  return sampler_->probabilities(logits(node), context(node));
}

std::span<const float> TargetRows::scores(int node) {
  return sampler_->scores(logits(node), context(node));
}

double TargetRows::uniform(int node, Purpose purpose, uint32_t lane) const {
  return to_uniform(
      noise(sampler_->noise_key(), root_position(), tree_->depth(node), purpose, lane));
}

bool TargetRows::accept(double probability, int node) {
  Question question{.kind = Question::Kind::accept, .node = node, .probability = probability};
  if (coins_ != nullptr) {
    question.accepted = coins_->accept(probability);
  } else {
    question.uniform = uniform(node, Purpose::accept, static_cast<uint32_t>(node));
    question.accepted = question.uniform < probability;
  }
  told(question);
  return question.accepted;
}

int TargetRows::draw(const double* weights, int count, double total, int node, Purpose purpose) {
  Question question{.kind = Question::Kind::draw, .node = node, .purpose = purpose};
  if (coins_ != nullptr) {
    question.token = coins_->draw({weights, static_cast<size_t>(count)}, total);
  } else {
    question.uniform = uniform(node, purpose, 0);
    question.token = inverse_cdf(weights, count, total, question.uniform);
  }
  return told(question);
}

}  // namespace coppice
