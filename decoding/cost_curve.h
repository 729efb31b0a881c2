// What a target pass costs on this machine, by its rows and the keys they attend to. Measured once
// for a model and backend, then kept right by the passes of real steps; everything that weighs time
// against tokens reads it. It knows of the machine alone, nothing of prompts.
//
//   CostCurve costs = measure_costs(model, backend);
//   double c4 = costs.seconds(4, 4 * 512.0, 512) / costs.seconds(1, 512, 512);
#pragma once

#include <vector>

#include "core/model.h"

namespace coppice {

/// A pass, as far as its time depends on it.
struct PassSize {
  int rows = 0;
  double keys = 0;      // sum over its sequences of the tokens each has
  double row_keys = 0;  // the same, each sequence counted once a row
};

class CostCurve {
 public:
  struct Point {
    int rows;
    double seconds;
  };
  /// `points` at a context of nothing, by rows, ascending, the first at 1 row. Between them the
  /// curve is straight, and beyond the last it goes on as between the last two.
  CostCurve(std::vector<Point> points, double seconds_per_key, double seconds_per_row_key);

  double seconds(const PassSize& pass) const;
  /// Moves the curve a little towards what a pass took.
  void learn(const PassSize& pass, double seconds);
  /// A pass of one sequence with `context` tokens.
  double seconds(int rows, int context) const {
    return seconds({rows, static_cast<double>(context), static_cast<double>(rows) * context});
  }

 private:
  double attention_seconds(const PassSize& pass) const {
    return per_key_ * pass.keys + per_row_key_ * pass.row_keys;
  }
  double row_seconds(int rows) const;

  std::vector<Point> points_;
  double per_key_, per_row_key_;
  double scale_ = 1.0;  // of late, against the points: another program may share the machine
};

/// Times passes of one sequence: the fastest of interleaved rounds, since all that disturbs a pass
/// makes it slower. Takes about two seconds; what was not reached by then is extrapolated.
CostCurve measure_costs(const Model& model, Backend& backend);

}  // namespace coppice
