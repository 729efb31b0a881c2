// Weights of the reference, and the two ops that read them: matrix products and embedding rows.
// A product is cut into tasks of one weight panel by kTileRows rows; see arithmetic-inl.h for why
// its bits do not depend on the number of rows.
//
//   auto weight = pack(parts, Stacking::gated, workspace);
#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"
#include "kernels/reference/ops.h"

namespace coppice::reference {
namespace {

constexpr int kTileRows = 64;  // a multiple of kRowPad

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

const PanelWeight& own_weight(const Weight* weight) {
  const auto* own = dynamic_cast<const PanelWeight*>(weight);
  COPPICE_CHECK(own != nullptr && "a weight that this backend packed");
  return *own;
}

float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::silu:
      return x / (1.0f + std::exp(-x));
    case Activation::gelu_tanh: {
      constexpr float kSqrt2OverPi = 0.797884561f;
      return 0.5f * x * (1.0f + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
    }
  }
  check_failed("activation is one of the enumerators", __FILE__, __LINE__);
}

void check(const Linear& op, const PanelWeight& weight) {
  COPPICE_CHECK(op.rows >= 0);
  COPPICE_CHECK(op.rows == 0 || (op.x != nullptr && op.y != nullptr));
  COPPICE_CHECK(op.rows == 0 || op.x_stride >= weight.inputs);
  COPPICE_CHECK(op.rows == 0 || op.y_stride >= weight.outputs);
  COPPICE_CHECK(!(weight.gated && op.bias != nullptr));
}

/// The rows that the product reads, gathered and normed, (padded rows, inputs); padding is zeros.
const float* gathered_rows(const Linear& op, int inputs, Workspace& workspace) {
  const int padded = round_up(op.rows, kRowPad);
  float* rows = workspace.shared(static_cast<size_t>(padded) * inputs);
  workspace.pool.for_each(padded, [&](int r, int) {
    float* row = rows + static_cast<size_t>(r) * inputs;
    if (r >= op.rows) return static_cast<void>(std::fill_n(row, inputs, 0.0f));
    const int source = op.gather != nullptr ? op.gather[r] : r;
    COPPICE_CHECK(source >= 0);
    const float* x = op.x + static_cast<size_t>(source) * op.x_stride;
    if (op.norm == nullptr) {
      std::copy_n(x, inputs, row);
    } else {
      rms_norm(x, op.norm, op.norm_eps, inputs, row);
    }
  });
  return rows;
}

}  // namespace

std::unique_ptr<PanelWeight> pack(std::span<const TensorView> parts, Stacking stacking,
                                  Workspace& workspace) {
  COPPICE_CHECK(!parts.empty());
  auto weight = std::make_unique<PanelWeight>();
  weight->gated = stacking == Stacking::gated;
  weight->inputs = static_cast<int>(parts[0].cols);
  for (const TensorView& part : parts) {
    COPPICE_CHECK(part.cols == weight->inputs && part.cols > 0 && part.rows > 0);
    weight->outputs += static_cast<int>(part.rows);
  }
  if (weight->gated) {
    COPPICE_CHECK(parts.size() == 2 && parts[0].rows == parts[1].rows);
    weight->outputs = static_cast<int>(parts[0].rows);
  }

  const int inputs = weight->inputs;
  const int panels = weight->output_panels() * (weight->gated ? 2 : 1);
  const size_t floats = static_cast<size_t>(panels) * inputs * kPanel;
  weight->panels = std::make_unique_for_overwrite<float[]>(floats);
  weight->bytes = floats * sizeof(float);

  workspace.pool.for_each(panels, [&](int p, int worker) {
    float* row = workspace.own(worker, static_cast<size_t>(inputs));
    float* panel = weight->panels.get() + static_cast<size_t>(p) * inputs * kPanel;
    for (int c = 0; c < kPanel; ++c) {
      int64_t output = (weight->gated ? p / 2 : p) * kPanel + c;
      size_t part = weight->gated ? p % 2 : 0;
      if (output >= weight->outputs) {
        std::fill_n(row, inputs, 0.0f);
      } else {
        while (output >= parts[part].rows) output -= parts[part++].rows;
        dequantise_row(parts[part], output, {row, static_cast<size_t>(inputs)});
      }
      for (int i = 0; i < inputs; ++i) panel[static_cast<size_t>(i) * kPanel + c] = row[i];
    }
  });
  return weight;
}

void run(const Linear& op, Workspace& workspace) {
  const PanelWeight& weight = own_weight(op.weight);
  check(op, weight);
  const float* x = gathered_rows(op, weight.inputs, workspace);
  const int panels = weight.output_panels();
  const int tiles = (op.rows + kTileRows - 1) / kTileRows;

  workspace.pool.for_each(panels * tiles, [&](int task, int worker) {
    const int panel = task % panels;
    const int first_row = task / panels * kTileRows;
    const int rows = std::min(kTileRows, op.rows - first_row);
    const int padded = round_up(rows, kRowPad);
    const float* tile = x + static_cast<size_t>(first_row) * weight.inputs;
    float* product = workspace.own(worker, size_t{2} * kTileRows * kPanel);
    float* up = product + kTileRows * kPanel;  // only of a gated weight
    if (weight.gated) {
      workspace.arithmetic.multiply(weight.panel(2 * panel), weight.inputs, tile, padded, product);
      workspace.arithmetic.multiply(weight.panel(2 * panel + 1), weight.inputs, tile, padded, up);
    } else {
      workspace.arithmetic.multiply(weight.panel(panel), weight.inputs, tile, padded, product);
    }

    const int first_output = panel * kPanel;
    const int outputs = std::min(kPanel, weight.outputs - first_output);
    for (int r = 0; r < rows; ++r) {
      float* y = op.y + static_cast<size_t>(first_row + r) * op.y_stride + first_output;
      for (int c = 0; c < outputs; ++c) {
        float value = product[r * kPanel + c];
        if (op.bias != nullptr) value += op.bias[first_output + c];
        value = activated(op.activation, value);
        if (weight.gated) value *= up[r * kPanel + c];
        y[c] = op.accumulate ? y[c] + value : value;
      }
    }
  });
}

void run(const Embed& op, Workspace& workspace) {
  const PanelWeight& table = own_weight(op.table);
  COPPICE_CHECK(!table.gated);
  COPPICE_CHECK(op.rows == 0 || (op.token != nullptr && op.out != nullptr));
  workspace.pool.for_each(op.rows, [&](int r, int) {
    const int token = op.token[r];
    COPPICE_CHECK(token >= 0 && token < table.outputs);
    const float* column = table.panel(token / kPanel) + token % kPanel;
    float* out = op.out + static_cast<size_t>(r) * table.inputs;
    for (int i = 0; i < table.inputs; ++i) {
      out[i] = column[static_cast<size_t>(i) * kPanel] * op.scale;
    }
  });
}

}  // namespace coppice::reference
