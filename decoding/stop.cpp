// See stop.h.
#include "decoding/stop.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace coppice {
namespace {

// Length of the longest end of `text` that begins `stop` without being all of it.
size_t pending(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

std::string_view finish_name(Finish finish) {
  switch (finish) {
    case Finish::running:
      return "running";
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::context:
      return "context";
    case Finish::cancelled:
      return "cancelled";
    case Finish::failed:
      return "failed";
  }
  return "unknown";
}

StopWatch::StopWatch(const Tokenizer* tokenizer, StopRules rules) : rules_(std::move(rules)) {
  if (tokenizer != nullptr) stream_.emplace(*tokenizer);
  COPPICE_CHECK(tokenizer != nullptr || rules_.strings.empty());
  for (const std::string& stop : rules_.strings) COPPICE_CHECK(!stop.empty());
}

StopWatch::Step StopWatch::push(int32_t token) {
  Step step;
  ++tokens_;
  const bool is_stop =
      std::find(rules_.tokens.begin(), rules_.tokens.end(), token) != rules_.tokens.end();
  if (is_stop) {
    step.finish = Finish::stop;
    return step;
  }
  if (stream_) held_ += stream_->push(token);
  size_t first_match = std::string::npos;
  for (const std::string& stop : rules_.strings) {
    first_match = std::min(first_match, held_.find(stop));
  }
  if (first_match != std::string::npos) {
    step.text = held_.substr(0, first_match);
    held_.clear();
    stream_.reset();  // nothing behind a match is ever shown
    step.finish = Finish::stop;
    return step;
  }
  size_t keep = 0;
  for (const std::string& stop : rules_.strings) keep = std::max(keep, pending(held_, stop));
  step.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  if (tokens_ >= rules_.max_new_tokens) step.finish = Finish::length;
  return step;
}

std::string StopWatch::finish() {
  std::string text = std::move(held_);
  held_.clear();
  if (stream_) text += stream_->finish();
  return text;
}

}  // namespace coppice
