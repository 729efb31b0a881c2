// See draft_price.h.
#include "decoding/draft_price.h"

#include <algorithm>
#include <cmath>

namespace coppice {

bool DraftPrice::pays(double path_probability, int rows, double draft_seconds) const {
  if (trial && rows == 0) return true;
  const int last = static_cast<int>(pass_seconds.size()) - 1;
  const double p = std::clamp(path_probability, 0.0, 1.0);
  const double rate = std::pow(p, 1.0 / (rows + 1));  // acceptance of each token so far
  // A row may be dear because it opens a tile that the next ones fill, so look further.
  double tokens = 0.0, next = p;
  for (int n = rows + 1; n <= last; ++n, next *= rate) {
    tokens += next;
    const double added = pass_seconds[static_cast<size_t>(n)] -
                         pass_seconds[static_cast<size_t>(rows)] + (n - rows) * draft_seconds;
    if (tokens > tokens_per_second * added) return true;
  }
  return false;
}

}  // namespace coppice
