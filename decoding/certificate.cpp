// See certificate.h.
#include "decoding/certificate.h"

#include <algorithm>
#include <iterator>

#include "kernels/base/error.h"
#include "kernels/shared/philox.h"

namespace coppice {
namespace {

/// A drafter's coins for runs that are not enumerated: any answer, a function of the seed.
class AnyCoins : public Coins {
 public:
  AnyCoins(uint64_t seed, size_t position) : key_{seed, 0}, position_(static_cast<int>(position)) {}
  bool accept(double probability) override { return next() < probability; }
  int draw(std::span<const double> weights, double total) override {
    double goal = next() * total;
    int last = -1;
    for (size_t i = 0; i < weights.size() && goal >= 0.0; ++i) {
      if (weights[i] > 0.0) last = static_cast<int>(i);
      goal -= weights[i];
    }
    return last;
  }

 private:
  double next() { return to_uniform(noise(key_, position_, 0, Purpose::drafter, asked_++)); }
  NoiseKey key_;
  int position_;
  uint32_t asked_ = 0;
};

/// What a rule can be asked: one that draws by argmax is greedy decoding.
SamplingParams sampling_for(const AcceptanceRule& rule, SamplingParams sampling) {
  if (rule.draw() == Draw::argmax) sampling.temperature = 0.0f;
  return sampling;
}

}  // namespace

std::vector<float> ToyModel::operator()(std::span<const int32_t> context) const {
  // A hash of the context: each token folds into the seed of the next.
  Philox4x32 state{{0, 0, 0, static_cast<uint32_t>(vocabulary)}};
  for (const int32_t token : context) {
    state.word[0] ^= static_cast<uint32_t>(token) + 1;
    state = philox4x32(state, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  }
  std::vector<float> logits;
  logits.reserve(static_cast<size_t>(vocabulary));
  for (int token = 0; token < vocabulary; ++token) {
    if (token % 4 == 0) state = philox4x32(state, static_cast<uint32_t>(seed), 1);
    const uint32_t word = state.word[token % 4];
    // A grid of 24 values from -3 to 2.75: sometimes two tokens tie.
    logits.push_back(0.25f * static_cast<float>(word % 24) - 3.0f);
  }
  return logits;
}

ToyStep run_step(const AcceptanceRule& rule, const ToyCase& toy, Sampler& sampler,
                 const Tokens& context, Coins& drafter_coins, Coins* rule_coins) {
  constexpr int kMostNodes = 32;
  ToyStep step;
  step.tree.reset(context.back(), kMostNodes);
  toy.drafter(context, sampler, drafter_coins, step.tree);

  std::vector<std::vector<float>> logits;
  std::vector<const float*> rows;
  Tokens path;
  for (int node = 0; node < step.tree.size(); ++node) {
    step.tree.path_tokens(node, path);
    Tokens all = context;
    all.insert(all.end(), path.begin(), path.end());
    logits.push_back(toy.target(all));
    rows.push_back(logits.back().data());
  }
  TargetRows target(sampler, step.tree, rows, toy.vocabulary, context, rule_coins);
  rule.judge(step.tree, target, step.verdict);

  for (const int node : step.verdict.path) step.emitted.push_back(step.tree.token(node));
  step.emitted.push_back(step.verdict.token);
  return step;
}

CertifiedCase enumerate_case(const AcceptanceRule& rule, const ToyCase& toy) {
  Sampler sampler(sampling_for(rule, toy.sampling), toy.vocabulary, {});
  const DecodingStep target_alone = [&](const Tokens& context, Coins& coins) {
    const std::span<const float> p = sampler.probabilities(toy.target(context), {context, {}});
    const std::vector<double> weights(p.begin(), p.end());
    double total = 0.0;
    for (const double weight : weights) total += weight;
    return Tokens{coins.draw(weights, total)};
  };
  const DecodingStep drafted = [&](const Tokens& context, Coins& coins) {
    return run_step(rule, toy, sampler, context, coins, &coins).emitted;
  };
  const Tokens prompt = {0};
  CertifiedCase result{toy.name, 0, 0.0};
  result.deviation = largest_difference(joint_law(drafted, prompt, toy.length, &result.runs),
                                        joint_law(target_alone, prompt, toy.length));
  return result;
}

CertifiedCase compare_texts(const AcceptanceRule& rule, const SamplingParams& sampling, int texts) {
  constexpr size_t kLength = 24;
  const std::vector<ToyCase> cases = certificate_cases();
  int different = 0;
  for (int text = 0; text < texts; ++text) {
    const ToyCase& toy = cases[static_cast<size_t>(text) % cases.size()];
    SamplingParams params = sampling_for(rule, sampling);
    params.seed = static_cast<uint64_t>(text);
    Sampler sampler(params, toy.vocabulary, {});
    Tokens baseline = {0};
    while (baseline.size() < kLength) {
      const std::vector<float> logits = toy.target(baseline);
      const int position = static_cast<int>(baseline.size());
      baseline.push_back(sampler.coupled(logits, {baseline, {}}, position));
    }
    Tokens drafted = {0};
    while (drafted.size() < kLength) {
      AnyCoins coins(params.seed, drafted.size());
      const Tokens emitted = run_step(rule, toy, sampler, drafted, coins, nullptr).emitted;
      drafted.insert(drafted.end(), emitted.begin(), emitted.end());
    }
    drafted.resize(kLength);
    different += drafted == baseline ? 0 : 1;
  }
  return {"text equals the baseline's", texts, static_cast<double>(different) / texts};
}

double Certificate::largest_deviation() const {
  double largest = 0.0;
  for (const CertifiedCase& one : cases) largest = std::max(largest, one.deviation);
  return largest;
}

int64_t Certificate::runs() const {
  int64_t sum = 0;
  for (const CertifiedCase& one : cases) sum += one.runs;
  return sum;
}

Certificate certify_rule(const AcceptanceRule& rule) {
  Certificate certificate{std::string(rule.name()), {}};
  for (const ToyCase& toy : certificate_cases()) {
    certificate.cases.push_back(enumerate_case(rule, toy));
  }
  if (rule.draw() != Draw::independent) {
    certificate.cases.push_back(compare_texts(rule, {.temperature = 1.0f}, 500));
    certificate.cases.push_back(
        compare_texts(rule, {.temperature = 0.7f, .top_p = 0.9f, .presence_penalty = 0.4f}, 500));
  }
  return certificate;
}

}  // namespace coppice
