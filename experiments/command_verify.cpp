// `coppice verify`: the losslessness certificate of a method. First its rule is proved on tiny
// vocabularies, where joint distributions can be enumerated; then its text is compared with the
// baseline's, token by token, on real prompts, alone and in a batch.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "decoding/certificate.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/run_options.h"
#include "experiments/workload.h"

namespace coppice {
namespace {

struct VerifyOptions {
  int prompts_per_category = 1;
  int max_new_tokens = 48;
  std::vector<double> temperatures = {0.0, 1.0};
  int batch = 4;
  uint64_t seed = 0;
  bool raw = false;
  template <class V>
  void visit(V& v) {
    v("prompts_per_category", prompts_per_category, "of the project's own prompts", Range{1, 1000});
    v("max_new_tokens", max_new_tokens, "tokens compared a prompt", Range{1, 1e6});
    v("temperatures", temperatures, "each is checked", Range{0, 1000});
    v("batch", batch, "sequences decoded together in the second pass", Range{1, 64});
    v("seed", seed, "of all noise");
    v("raw", raw, "take prompts as they are, without the chat template");
  }
};

class Verification {
 public:
  Verification(const VerifyOptions& options, const MethodChoice& choice, const LoadedModels& models,
               Backend& backend)
      : options_(options), choice_(choice), models_(models), backend_(backend) {
    prompts_ = pick_prompts(builtin_prompts(), {}, options.prompts_per_category);
    encode_prompts(prompts_, *models.target.tokenizer, options.raw);
  }

  /// Prints one line; false when something differed.
  bool check(float temperature) {
    const MethodConfig method = choice_.read(temperature);
    const std::vector<Answer> baseline = decode({}, temperature, 1);
    Decoder probe = make_decoder(method.spec, temperature, 1);
    const bool same_text = probe.rule().lossless() && probe.rule().draw() != Draw::independent;
    bool good = true;
    for (int batch : std::set<int>{1, options_.batch}) {
      const std::vector<Answer> answers = decode(method.spec, temperature, batch);
      // A rule that draws by itself gives other texts of the same distribution, a lossy one others
      // of another: then a second run must repeat the first.
      good &= compare(
          same_text ? baseline : decode(method.spec, temperature, batch), answers,
          fmt::format("{}, temperature {}, batch {}", probe.rule().name(), temperature, batch),
          same_text ? "the baseline's" : "a second run's");
    }
    return good;
  }

 private:
  Decoder make_decoder(const MethodSpec& spec, float temperature, int batch) const {
    size_t longest = 0;
    for (const Prompt& prompt : prompts_) longest = std::max(longest, prompt.ids.size());
    EngineLimits limits;
    limits.sequences = batch;
    limits.context = static_cast<int>(longest) + options_.max_new_tokens + 1;
    return Decoder(spec, models_.target, models_.draft.get(), backend_, limits, temperature);
  }

  std::vector<Answer> decode(const MethodSpec& spec, float temperature, int batch) const {
    Decoder decoder = make_decoder(spec, temperature, batch);
    const auto stops = models_.target.tokenizer->stop_ids();
    std::vector<RequestId> ids;
    for (const Prompt& prompt : prompts_) {
      Request request;
      request.prompt = prompt.ids;
      request.sampling.temperature = temperature;
      request.sampling.seed = options_.seed;
      request.sampling.request = prompt.request;
      request.stop.tokens.assign(stops.begin(), stops.end());
      request.stop.max_new_tokens = options_.max_new_tokens;
      request.logprobs = 2;
      ids.push_back(decoder.engine().submit(std::move(request)));
    }
    while (decoder.engine().step()) {
    }
    std::vector<Answer> answers;
    for (RequestId id : ids) answers.push_back(decoder.engine().take(id));
    return answers;
  }

  bool compare(const std::vector<Answer>& expected, const std::vector<Answer>& answers,
               const std::string& setting, std::string_view whose) const {
    size_t tokens = 0, identical = 0;
    std::string divergences;
    for (size_t i = 0; i < answers.size(); ++i) {
      const std::vector<int32_t>& want = expected[i].ids;
      const std::vector<int32_t>& got = answers[i].ids;
      tokens += got.size();
      if (got == want) {
        ++identical;
        continue;
      }
      const size_t at = static_cast<size_t>(
          std::mismatch(want.begin(), want.end(), got.begin(), got.end()).first - want.begin());
      divergences += fmt::format("    {}: token {} differs", prompts_[i].id, at);
      if (at < expected[i].logprobs.size()) {
        const auto& top = expected[i].logprobs[at].most_likely;
        divergences += fmt::format(" (the two most likely there are {:.3g} nats apart)",
                                   top[0].second - top[1].second);
      }
      divergences += "\n";
    }
    const bool good = identical == answers.size();
    fmt::print("  {}: {} of {} texts are {}, {} tokens{}\n{}", setting, identical, answers.size(),
               whose, tokens, good ? "" : ": NOT the same", divergences);
    return good;
  }

  const VerifyOptions& options_;
  const MethodChoice& choice_;
  const LoadedModels& models_;
  Backend& backend_;
  std::vector<Prompt> prompts_;
};

bool prove_rules(const MethodChoice& choice, const std::vector<double>& temperatures) {
  bool good = true;
  std::set<std::string> proved;
  for (const double temperature : temperatures) {
    const MethodSpec spec = choice.read(static_cast<float>(temperature)).spec;
    if (!proved.insert(spec.rule).second) continue;
    const auto rule = make_rule(spec.rule, spec.rule_options);
    const Certificate certificate = certify_rule(*rule);
    good &= rule->lossless() && certificate.holds();
    fmt::print("  {}: {} cases, {} outcomes, largest deviation {:.1e}: {}\n", spec.rule,
               certificate.cases.size(), certificate.runs(), certificate.largest_deviation(),
               !rule->lossless()     ? std::string(mark_of(*rule)) + " by design"
               : certificate.holds() ? "exact"
                                     : "NOT exact");
  }
  return good;
}

}  // namespace

int verify_command(Arguments args) {
  CommandLine line("coppice verify", "Proves that a method's text is the target's own.",
                   "  coppice verify --model smollm2 --method prompt_lookup\n"
                   "  coppice verify --model smollm2 --method jacobi --temperatures 0,0.7,1\n"
                   "  coppice verify --model qwen-1.5b --draft-model qwen-0.5b "
                   "--method draft_model --rule rejection\n");
  line.add<MethodChoice>("Model and method");
  line.add<VerifyOptions>("Check");
  line.add<BackendChoice>("Machine");
  if (!line.parse(args)) return 0;
  const auto choice = line.read<MethodChoice>();
  const auto options = line.read<VerifyOptions>();
  if (options.temperatures.empty()) throw Error("--temperatures: give at least one");
  fmt::print("rules, enumerated on vocabularies of a few tokens:\n");
  bool good = prove_rules(choice, options.temperatures);
  const auto backend = line.read<BackendChoice>().make();
  const LoadedModels models = load_models(choice, *backend);
  fmt::print("{} on {} ({}):\n", choice.method, models.target.name, backend->describe());
  Verification verification(options, choice, models, *backend);
  for (double temperature : options.temperatures) {
    good &= verification.check(static_cast<float>(temperature));
  }
  fmt::print("{}\n", good ? "lossless: every check held" : "NOT lossless: see above");
  return good ? 0 : 1;
}

}  // namespace coppice
