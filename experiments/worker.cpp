// See worker.h.
#include "experiments/worker.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/chat_template.h"
#include "experiments/manifest.h"
#include "experiments/statistics.h"

namespace coppice {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

constexpr int kDraftRoom = 64;  // positions behind the last token that drafts may reach

}  // namespace

Worker::Worker(const std::filesystem::path& model, const BackendOptions& machine)
    : backend_(make_backend(machine)), loaded_(load_model(model, backend_)) {}

ordered_json Worker::answer(const json& request) {
  try {
    const std::string measure = request.at("measure");
    if (measure == "encode") return encode(request);
    if (measure == "decode") return decode(request);
    if (measure == "prefill") return prefill(request);
    if (measure == "rows") return rows(request);
    if (measure == "describe") {
      return {{"engine", "coppice"},
              {"version", COPPICE_VERSION},
              {"settings", backend_.describe()},
              {"machine", describe_machine()},
              {"model", describe_model(loaded_)}};
    }
    return {{"error", "unknown measure '" + measure + "'"}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

ordered_json Worker::encode(const json& request) const {
  const ChatTemplate chat(*loaded_.tokenizer);
  ordered_json ids = ordered_json::array();
  for (const json& text : request.at("texts")) {
    ids.push_back(chat.encode({{Role::user, text.get<std::string>()}}));
  }
  return {{"ids", ids}, {"stop_ids", loaded_.tokenizer->stop_ids()}};
}

ordered_json Worker::decode(const json& request) {
  const auto prompts = request.at("prompts").get<std::vector<Ids>>();
  const int new_tokens = request.at("new_tokens");
  const int draft_length = request.at("draft_length");
  if (prompts.empty()) throw Error("prompts: give one at least");
  size_t longest = 0, all = 0;
  for (const Ids& prompt : prompts) {
    longest = std::max(longest, prompt.size());
    all += prompt.size();
  }
  EngineLimits limits;
  limits.sequences = static_cast<int>(prompts.size());
  limits.context =
      std::min(loaded_.model->context(), static_cast<int>(longest) + new_tokens + kDraftRoom);
  // All prompts end in one pass, so that no decode step holds a prompt's rows.
  if (prompts.size() > 1) limits.chunk_rows = static_cast<int>(all);
  MethodSpec spec;
  if (draft_length > 0) {
    spec.method = "prompt_lookup";
    spec.options = {{"draft_length", int64_t{draft_length}, "draft_length"}};
  }
  Decoder decoder(spec, loaded_, nullptr, backend_, limits, 0.0f);
  std::vector<RequestId> requests;
  for (const Ids& prompt : prompts) {
    Request asked;
    asked.prompt = prompt;
    asked.sampling.temperature = 0.0f;
    asked.stop.tokens.assign(loaded_.tokenizer->stop_ids().begin(),
                             loaded_.tokenizer->stop_ids().end());
    asked.stop.max_new_tokens = new_tokens;
    asked.ignore_eos = true;
    requests.push_back(decoder.engine().submit(std::move(asked)));
  }
  while (decoder.engine().step()) {
  }
  double prefill_ms = 0.0, decode_ms = 0.0;
  int steps = 0;
  ordered_json ids = ordered_json::array();
  for (const RequestId id : requests) {
    const Answer answer = decoder.engine().take(id);
    if (answer.finish == Finish::failed) throw Failure("{}", answer.error);
    prefill_ms = std::max(prefill_ms, answer.ttft_ms);
    decode_ms = std::max(decode_ms, answer.decode_ms);
    steps = std::max(steps, answer.steps);
    ids.push_back(answer.ids);
  }
  return {{"prefill_s", prefill_ms / 1e3},
          {"decode_s", decode_ms / 1e3},
          {"ids", std::move(ids)},
          {"steps", steps}};
}

ordered_json Worker::prefill(const json& request) {
  const ordered_json reply = decode(
      {{"prompts", json::array({request.at("ids")})}, {"new_tokens", 1}, {"draft_length", 0}});
  return {{"seconds", reply.at("prefill_s")}};
}

ordered_json Worker::rows(const json& request) {
  const auto wanted = request.at("rows").get<std::vector<int>>();
  if (wanted.empty()) throw Error("rows: give one at least");
  const auto context = request.at("context").get<Ids>();
  StepTimer timer(*loaded_.model, backend_, static_cast<int>(context.size()),
                  *std::max_element(wanted.begin(), wanted.end()));
  timer.set_context(static_cast<int>(context.size()));
  std::map<int, std::vector<double>> seconds;
  for (const int rows : wanted) timer.step(rows);
  for (int repeat = 0; repeat < request.at("repeats").get<int>(); ++repeat) {
    for (const int rows : wanted) seconds[rows].push_back(timer.step(rows));
  }
  ordered_json out = ordered_json::object();
  for (const auto& [rows, measured] : seconds) {
    out[std::to_string(rows)] = percentile(measured, 0.5).value_or(0.0);
  }
  return {{"seconds", std::move(out)}};
}

}  // namespace coppice
