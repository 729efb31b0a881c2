// The reference's weights and its ops, one function an op of kernels/backend.h.
//
//   run(std::get<Linear>(op), workspace);
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/reference/workspace.h"

namespace coppice::reference {

/// Panels of kPanel outputs, each (inputs, kPanel) floats; outputs past the last are zeros.
/// A gated weight's panel of gate outputs is followed by the panel of the same up outputs.
struct PanelWeight : Weight {
  bool gated = false;
  std::unique_ptr<float[]> panels;

  int output_panels() const { return (outputs + kPanel - 1) / kPanel; }
  const float* panel(int index) const {
    return panels.get() + static_cast<size_t>(index) * inputs * kPanel;
  }
};

std::unique_ptr<PanelWeight> pack(std::span<const TensorView> parts, Stacking stacking,
                                  Workspace& workspace);

/// y = x / sqrt(mean(x^2) + eps) * weight; in place when y == x. The mean is summed in order.
void rms_norm(const float* x, const float* weight, float eps, int dim, float* y);

void run(const Embed& op, Workspace& workspace);
void run(const Linear& op, Workspace& workspace);
void run(const AddNorm& op, Workspace& workspace);
void run(const Copy& op, Workspace& workspace);
void run(const Attention& op, Workspace& workspace);
void run(const MoveKv& op, Workspace& workspace);
void run(const TopK& op, Workspace& workspace);
void run(const Judge& op, Workspace& workspace);
void run(const AllReduce& op, Workspace& workspace);

}  // namespace coppice::reference
