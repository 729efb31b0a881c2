// When a sequence ends, decided token by token so that an accepted draft can end in its middle:
// stop token, stop string, the wanted number of tokens, the end of the context.
//
//   StopWatch watch(tokenizer, rules);
//   StopWatch::Step s = watch.push(token);   // s.text is safe to show
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer.h"

namespace coppice {

enum class Finish { running, stop, length, context, cancelled, failed };
std::string_view finish_name(Finish finish);

struct StopRules {
  std::vector<int32_t> tokens;       // any of them ends the answer; it is emitted as the last id
  std::vector<std::string> strings;  // text ends before the first match; none is empty
  int max_new_tokens = 128;
};

class StopWatch {
 public:
  /// `tokenizer` may be null when no stop strings are given; then no text is made.
  StopWatch(const Tokenizer* tokenizer, StopRules rules);

  struct Step {
    std::string text;  // whole characters that no stop string can still claim
    Finish finish = Finish::running;
  };
  /// Order of precedence for one token: stop token, stop string, length.
  Step push(int32_t token);
  /// Text held back as the possible beginning of a stop string; call once when the answer ended
  /// without one.
  std::string finish();
  int tokens() const { return tokens_; }

 private:
  std::optional<TextStream> stream_;
  StopRules rules_;
  std::string held_;
  int tokens_ = 0;
};

}  // namespace coppice
