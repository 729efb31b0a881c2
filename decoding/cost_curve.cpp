// See cost_curve.h.
#include "decoding/cost_curve.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <numeric>

#include "kernels/base/error.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kRows = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64};
constexpr int kShort = 32, kLong = 1024;  // contexts
constexpr int kSlopeRows = 8;
constexpr int kRounds = 7;
constexpr double kMostSeconds = 2.0;
constexpr double kScaleGain = 0.05, kPointGain = 0.02;  // of a pass that was seen

/// One sequence of a given context, and passes over rows at its end that are forgotten again.
class Passes {
 public:
  Passes(const Model& model, Backend& backend)
      : model_(model),
        shortest_(std::min(kShort, model.context() / 4)),
        longest_(std::min(kLong, model.context() - kSlopeRows)),
        workspace_(model, backend, {.rows = kRows.back(), .logit_rows = kRows.back()}),
        cache_(backend, model.kv_shapes(), KVCache::pages_for(kLong + kRows.back())),
        sequence_(cache_.open()) {}

  int shortest() const { return shortest_; }
  int longest() const { return longest_; }
  bool fits(int rows, int context) const { return context + rows <= model_.context(); }

  double seconds(int rows, int context) {
    cache_.truncate(sequence_, std::min(context, cache_.committed(sequence_)));
    const int missing = context - cache_.committed(sequence_);
    if (missing > 0) cache_.commit_all(*cache_.reserve(sequence_, missing));
    const auto tail = cache_.reserve(sequence_, rows);
    token_.resize(static_cast<size_t>(rows));
    std::iota(token_.begin(), token_.end(), 1);
    for (int32_t& token : token_) token %= model_.config().vocabulary;
    parent_.resize(token_.size());
    std::iota(parent_.begin(), parent_.end(), -1);
    wanted_.resize(token_.size());
    std::iota(wanted_.begin(), wanted_.end(), 0);
    const SequenceRows sequence{0, rows, context, cache_.pages(sequence_)};
    ForwardBatch batch;
    batch.token = token_;
    batch.parent = parent_;
    batch.sequences = {&sequence, 1};
    batch.logit_rows = wanted_;
    const Clock::time_point start = Clock::now();
    model_.forward(batch, cache_, workspace_);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  const Model& model_;
  int shortest_, longest_;
  Workspace workspace_;
  KVCache cache_;
  SeqId sequence_;
  std::vector<int32_t> token_, parent_, wanted_;
};

}  // namespace

CostCurve::CostCurve(std::vector<Point> points, double seconds_per_key, double seconds_per_row_key)
    : points_(std::move(points)), per_key_(seconds_per_key), per_row_key_(seconds_per_row_key) {
  COPPICE_CHECK(!points_.empty() && points_.front().rows == 1);
}

double CostCurve::row_seconds(int rows) const {
  if (points_.size() == 1) return points_.front().seconds * rows;
  const auto above =
      std::lower_bound(points_.begin(), points_.end(), rows,
                       [](const Point& point, int wanted) { return point.rows < wanted; });
  const auto right = std::clamp(above, points_.begin() + 1, points_.end() - 1);
  const auto left = right - 1;
  const double slope = (right->seconds - left->seconds) / (right->rows - left->rows);
  return left->seconds + slope * (rows - left->rows);
}

double CostCurve::seconds(const PassSize& pass) const {
  return scale_ * (row_seconds(pass.rows) + attention_seconds(pass));
}

void CostCurve::learn(const PassSize& pass, double seconds) {
  // One pass in a long interrupt says nothing of the next.
  const double ratio = std::clamp(seconds / this->seconds(pass), 0.5, 2.0);
  scale_ *= 1.0 + kScaleGain * (ratio - 1.0);
  for (Point& point : points_) {
    if (point.rows == pass.rows) point.seconds *= 1.0 + kPointGain * (ratio - 1.0);
  }
}

CostCurve measure_costs(const Model& model, Backend& backend) {
  Passes passes(model, backend);
  const int shortest = passes.shortest(), longest = passes.longest();
  const bool has_slope = longest > shortest;
  const Clock::time_point start = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  passes.seconds(1, shortest);  // the first touch of everything
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::array<double, kRows.size()> best;
  best.fill(kNever);
  double long_one = kNever, long_many = kNever;
  size_t measured = 0;
  while (measured < kRows.size() && passes.fits(kRows[measured], shortest)) ++measured;
  for (int round = 0; round < kRounds && (round == 0 || spent() < kMostSeconds); ++round) {
    for (size_t i = 0; i < measured; ++i) {
      best[i] = std::min(best[i], passes.seconds(kRows[i], shortest));
      if (round == 0 && i >= 1 && spent() > kMostSeconds) measured = i + 1;
    }
    if (!has_slope) continue;
    long_one = std::min(long_one, passes.seconds(1, longest));
    long_many = std::min(long_many, passes.seconds(kSlopeRows, longest));
  }

  std::vector<CostCurve::Point> points;
  for (size_t i = 0; i < measured; ++i) {
    // More rows never cost less: what says otherwise is noise.
    const double least = points.empty() ? 0.0 : points.back().seconds;
    points.push_back({kRows[i], std::max(least, best[i])});
  }
  if (!has_slope) return CostCurve(std::move(points), 0.0, 0.0);
  const CostCurve flat(points, 0.0, 0.0);
  const double keys = longest - shortest;
  const double one = std::max(0.0, (long_one - flat.seconds(1, 0)) / keys);
  const double many = std::max(one, (long_many - flat.seconds(kSlopeRows, 0)) / keys);
  const double per_row_key = std::min(one, (many - one) / (kSlopeRows - 1));
  const double per_key = one - per_row_key;
  for (CostCurve::Point& point : points) {
    const double attention = shortest * (per_key + per_row_key * point.rows);
    point.seconds = std::max(0.0, point.seconds - attention);
  }
  return CostCurve(std::move(points), per_key, per_row_key);
}

}  // namespace coppice
