// One row from logits to the token or the distribution that a rule asks for, by a team: the same
// tokens and bits as core's Sampler and as warp_weights(), without sorting the row. Selections walk
// a histogram of the logits' leading bytes, by mass, which is exact because masses are whole
// numbers (kernels/shared/warp.h).
//
//   Best best = best_logit(team, row, V);
//   int32_t next = coupled_token(team, row, V, best, filters, key, position, weight);
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/shared/gumbel.h"
#include "kernels/shared/host_device.h"
#include "kernels/shared/noise.h"
#include "kernels/shared/team.h"
#include "kernels/shared/warp.h"

namespace coppice {

/// Larger for larger logits; the same for both zeros.
COPPICE_HD inline uint32_t order_of(float logit) {
  const float canonical = logit + 0.0f;  // -0 becomes 0
  uint32_t bits;
  std::memcpy(&bits, &canonical, sizeof bits);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The first tokens of a row, larger logits first, equal ones by lower id.
struct Leading {
  uint32_t least;     // order_of the last one's logit
  int32_t last_tied;  // the last id that counts among those with that logit
  COPPICE_HD bool holds(float logit, int32_t id) const {
    const uint32_t order = order_of(logit);
    return order > least || (order == least && id <= last_tied);
  }
};

/// The longest run of leading tokens for which keeps(mass of those before) holds. mass(i) is a
/// whole number; keeps() is true for 0 and, once false, stays so. Tokens for which among(i) is
/// false do not count at all.
COPPICE_ANY_TEAM
template <class Team, class Among, class Mass, class Keeps>
COPPICE_HD Leading leading_tokens(Team& team, const float* logits, int count, const Among& among,
                                  const Mass& mass, const Keeps& keeps) {
  uint64_t before = 0, tied_mass = 0, tied = 0;
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    team.clear_bins();
    team.for_each(count, [&](int i) {
      const uint64_t order = order_of(logits[i]);
      if (among(i) && order >> shift >> 8 == uint64_t{prefix} >> shift >> 8) {
        team.add_to_bin(static_cast<int>(order >> shift & 255), mass(i));
      }
    });
    uint64_t sum = before;
    int chosen = 0;
    for (int bin = kTeamBins - 1; bin >= 0; --bin) {
      const uint64_t members = team.members(bin);
      if (members == 0) continue;
      if (!keeps(sum)) break;
      chosen = bin;
      before = sum;
      tied_mass = team.mass(bin);
      tied = members;
      sum += tied_mass;
    }
    prefix |= static_cast<uint32_t>(chosen) << shift;
    team.wait();  // the bins are cleared next
  }
  const uint64_t each = tied_mass / tied;  // equal logits, equal masses
  uint64_t kept = 0;
  while (kept < tied && keeps(before + kept * each)) ++kept;
  int32_t last = count - 1;
  if (kept < tied) {
    uint64_t met = 0;
    for (last = 0; last < count; ++last) {
      met += among(last) && order_of(logits[last]) == prefix ? 1 : 0;
      if (met == kept) break;
    }
  }
  return {prefix, last};
}

/// The largest logit, which is finite, and the lowest id that has it; index -1: there is none, or
/// the row holds a NaN or plus infinity.
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD Best best_logit(Team& team, const float* logits, int count) {
  const uint64_t broken =
      team.count(count, [&](int i) { return logits[i] < INFINITY ? uint64_t{0} : uint64_t{1}; });
  const Best best = team.best(count, [&](int i) {
    return Best{static_cast<double>(logits[i]), logits[i] > -INFINITY ? i : -1};
  });
  return broken > 0 ? Best{0.0, -1} : best;
}

/// weight[i] = softmax_weight of the tokens that every filter keeps, 0 for the others; returns the
/// sum of theirs in units. `best` is best_logit's.
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD uint64_t warp_row(Team& team, const float* logits, int count, const Best& best,
                             const Filters& filters, double* weight) {
  const float max = static_cast<float>(best.score);
  const auto all = [](int) { return true; };
  Leading first{0, count - 1};
  if (filters.top_k > 0 && filters.top_k < count) {
    const auto fits = [&](uint64_t before) {
      return before < static_cast<uint64_t>(filters.top_k);
    };
    first = leading_tokens(
        team, logits, count, all, [](int) { return uint64_t{1}; }, fits);
  }
  team.for_each(count, [&](int i) {
    weight[i] = first.holds(logits[i], i)
                    ? softmax_weight(logits[i], max, filters.inverse_temperature)
                    : 0.0;
  });
  const auto units = [&](int i) { return weight_units(weight[i]); };
  if (filters.top_p < 1.0f) {
    const uint64_t total = team.count(count, units);
    const auto kept = [&](int i) { return first.holds(logits[i], i); };
    const auto in = [&](uint64_t before) { return in_nucleus(before, total, filters.top_p); };
    const Leading nucleus = leading_tokens(team, logits, count, kept, units, in);
    team.for_each(count, [&](int i) {
      if (!nucleus.holds(logits[i], i)) weight[i] = 0.0;
    });
  }
  team.for_each(count, [&](int i) {
    if (weight[i] < static_cast<double>(filters.min_p)) weight[i] = 0.0;
  });
  return team.count(count, units);
}

/// p[i] = weight[i] over their sum, as floats.
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD void normalise_row(Team& team, const double* weight, int count, uint64_t units,
                              float* p) {
  const double total = static_cast<double>(units) * kWeightUnit;
  team.for_each(count, [&](int i) { p[i] = static_cast<float>(weight[i] / total); });
}

/// argmax(log p + Gumbel noise of the position) over the tokens that the filters keep. `weight` is
/// scratch, (count), used where there are filters.
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD int32_t coupled_token(Team& team, const float* logits, int count, const Best& best,
                                 const Filters& filters, NoiseKey key, int position,
                                 double* weight) {
  const bool filtered =
      (filters.top_k > 0 && filters.top_k < count) || filters.top_p < 1.0f || filters.min_p > 0.0f;
  if (filtered) warp_row(team, logits, count, best, filters, weight);
  // Four tokens share a block of noise.
  const Best winner = team.best((count + 3) / 4, [&](int four) {
    Best found{0.0, -1};
    const int32_t first = 4 * four;
    const Philox4x32 word = target_noise_block(key, position, first);
    for (int32_t i = first; i < first + 4 && i < count; ++i) {
      if (filtered && !(weight[i] > 0.0)) continue;
      if (!(logits[i] > -INFINITY)) continue;
      const double score = coupled_score(logits[i], filters.inverse_temperature, word.word[i % 4]);
      const Best candidate{score, i};
      if (better(candidate, found)) found = candidate;
    }
    return found;
  });
  return winner.index;
}

}  // namespace coppice
