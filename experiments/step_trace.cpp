// See step_trace.h.
#include "experiments/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr int kEngineLane = 0;

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

StepTrace::StepTrace(std::filesystem::path path) : path_(std::move(path)), out_(path_) {
  out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  if (!out_) throw Failure("{}: cannot be written", path_.string());
}

void StepTrace::event(std::string_view event_name, int lane, double start_ms, double ms,
                      std::string_view args) {
  out_ << fmt::format(
      "{}\n{{\"name\":{},\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
      "\"args\":{{{}}}}}",
      first_ ? "" : ",", quoted(event_name), process_, lane, 1e3 * start_ms, 1e3 * ms, args);
  first_ = false;
}

void StepTrace::name(std::string_view kind, int process, int lane, std::string_view text) {
  out_ << fmt::format(
      "{}\n{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}",
      first_ ? "" : ",", kind, process, lane, quoted(text));
  first_ = false;
}

void StepTrace::begin(std::string_view decoder) {
  const auto known = processes_.find(decoder);
  if (known != processes_.end()) {
    process_ = known->second;
  } else {
    process_ = static_cast<int>(processes_.size()) + 1;
    processes_.emplace(decoder, process_);
    name("process_name", process_, kEngineLane, decoder);
    name("thread_name", process_, kEngineLane, "engine");
  }
  offset_ms_ = last_ms_;
  engine_start_ms_ = step_start_ms_ = -1;
}

void StepTrace::add(const StepRecord& step, std::string_view request) {
  if (engine_start_ms_ < 0) engine_start_ms_ = step.start_ms;
  const double start = offset_ms_ + step.start_ms - engine_start_ms_;
  const double total = step.draft_ms + step.target_ms + step.judge_ms + step.other_ms;
  if (step.start_ms != step_start_ms_) {  // the first sequence of this step
    step_start_ms_ = step.start_ms;
    const double drafted = start + step.plan_ms + step.draft_ms;
    const double judged = start + total - step.commit_ms;
    if (step.draft_ms > 0) event("draft", kEngineLane, start + step.plan_ms, step.draft_ms, "");
    // Packing stands between drafting and the pass.
    const double pass = std::max(drafted, judged - step.judge_ms - step.target_ms);
    event("target pass", kEngineLane, pass, step.target_ms,
          fmt::format("\"sequences\":{}", step.batch));
    event("judge", kEngineLane, judged - step.judge_ms, step.judge_ms, "");
    event("commit", kEngineLane, judged, step.commit_ms, "");
  }
  const auto [lane, is_new] =
      lanes_.try_emplace({process_, std::string(request)}, static_cast<int>(lanes_.size()) + 1);
  if (is_new) name("thread_name", process_, lane->second, request);
  event(step.prefill ? "prefill" : fmt::format("+{}", step.emitted), lane->second, start, total,
        fmt::format("\"step\":{},\"position\":{},\"rows\":{},\"proposed\":{},\"drafted\":{},"
                    "\"accepted\":{},\"emitted\":{}",
                    step.step, step.position, step.rows, step.proposed, step.drafted, step.accepted,
                    step.emitted));
  last_ms_ = std::max(last_ms_, start + total);
}

void StepTrace::end() {
  out_ << "\n]}\n";
  out_.close();
  if (!out_) throw Failure("{}: cannot be written", path_.string());
}

}  // namespace coppice
