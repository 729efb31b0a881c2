// See sampling_options.h.
#include "experiments/sampling_options.h"

#include <charconv>
#include <cmath>

#include "core/quote.h"

namespace coppice {

SamplingParams SamplingOptions::params() const {
  SamplingParams out = values;
  out.logit_bias.clear();
  for (const std::string& text : logit_bias) {
    const char* end = text.data() + text.size();
    int32_t token = 0;
    float bias = 0.0f;
    const auto id = std::from_chars(text.data(), end, token);
    const bool has_id = id.ec == std::errc() && id.ptr != end && *id.ptr == ':' && token >= 0;
    const auto number = has_id ? std::from_chars(id.ptr + 1, end, bias) : id;
    // -inf forbids a token; +inf or NaN would leave no distribution.
    if (!has_id || number.ec != std::errc() || number.ptr != end || std::isnan(bias) ||
        bias == INFINITY) {
      throw Error("logit_bias: {} is no bias; write \"ID:BIAS\", for example \"17:-100\"",
                  quote(text));
    }
    out.logit_bias.emplace_back(token, bias);
  }
  return out;
}

}  // namespace coppice
