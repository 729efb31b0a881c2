// See predicted_step.h. The kernels counted are those that kernels/cuda launches: a norm and
// quantisation before every product, the product, and three for attention.
#include "experiments/predicted_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/options.h"
#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr double kBf16Bytes = 2.0;
constexpr double kQ4KBytes = 144.0 / 256.0;
constexpr double kQ6KBytes = 210.0 / 256.0;
constexpr int kProductRows = 64;    // rows for which a weight is unpacked once; memory is read once
constexpr int kProductTile = 8;     // rows of an mma
constexpr int kAttentionTile = 16;  // query rows of an mma
constexpr double kUnpack = 1.0;     // plain operations a quantised weight, once for all rows
constexpr double kScale = 3.0 / 32;  // and a weight and row: one scale in 32 values
constexpr double kFloatBytes = 4.0;  // of an activation between kernels
// What a product asks for before it waits for its rows, where kernels start early: steps of its
// warps, 16 outputs each, of 64 quantised or 16 float inputs (kernels/cuda/products.cu).
constexpr double kEarlyBlocks = 264, kWarpsOfBlock = 8, kTileOutputs = 16;
constexpr double kFetchedBytes = 16 << 20;  // beside a sum over devices (all_reduce.cu)

ModelShape shape(std::string name, std::array<int, 7> d, bool quantised) {
  ModelShape s{std::move(name), d[0], d[1], d[2], d[3], d[4], d[5], d[6]};
  const double attention = double{2} * s.dim * s.head_dim * (s.heads + s.kv_heads);
  const double values = attention + 3.0 * s.dim * s.ffn;
  const double ends = double{1} * s.vocabulary * s.dim;
  s.quantised = quantised;
  s.layer_bytes = values * (quantised ? kQ4KBytes : kBf16Bytes);
  s.output_bytes = ends * (quantised ? kQ6KBytes : kBf16Bytes);
  s.embedding_bytes = ends * (quantised ? kQ4KBytes : kBf16Bytes);
  return s;
}

double round_up(double value, int unit) {
  return std::ceil(value / unit) * unit;
}

/// Adds kernels up, one after the other.
class Counter {
 public:
  Counter(const Device& device, int devices) : device_(device), devices_(devices) {}

  /// One kernel; bytes and operations are of all devices together, `own_bytes` of each.
  double kernel(double bytes, double own_bytes, double tensor, double tensor_per_s, double plain) {
    const double moved = bytes / devices_ + own_bytes;
    const double computed = std::max(tensor / devices_ / (kTensorReach * tensor_per_s),
                                     plain / devices_ / (kPlainReach * device_.fp32_per_s / 2));
    const double seconds = std::max(moved / (kMemoryReach * device_.bytes_per_s), computed);
    slack_ = seconds - computed;
    step_.bytes += moved;
    step_.operations += (tensor + plain) / devices_;
    step_.memory_seconds += moved / device_.bytes_per_s;
    step_.gaps += kKernelGap;
    step_.seconds += seconds + kKernelGap;
    ++step_.kernels;
    return seconds;
  }

  /// Norm and quantisation, then the product.
  void product(const ModelShape& shape, double weight_bytes, double inputs, double outputs,
               int rows) {
    const double values = inputs * outputs;
    const double passes = std::ceil(double{1} * rows / kProductRows);
    const double padded = round_up(rows, kProductTile);
    const double input_bytes = shape.quantised ? 1.0 + 2.0 / 32 : kBf16Bytes;
    const double plain = shape.quantised ? values * (kUnpack * passes + kScale * padded) : 0.0;
    const double prepared =
        kernel(0.0, rows * inputs * (kFloatBytes + input_bytes), 0.0, 1.0, rows * inputs * 4.0);
    step_.products += kernel(weight_bytes + rows * outputs * kFloatBytes,
                             rows * inputs * input_bytes, 2.0 * padded * values,
                             shape.quantised ? device_.int8_per_s : device_.bf16_per_s, plain);
    if (!device_.early_start) return;
    const double ahead = (rows <= 16 ? 4 : 2) * (shape.quantised ? 64 : 16) * kTileOutputs;
    const double early = kEarlyBlocks * kWarpsOfBlock * ahead * weight_bytes / values;
    hide(std::min(early, weight_bytes / devices_), std::min(prepared + kKernelGap, slack_));
  }

  void attention(const ModelShape& shape, const StepSize& size) {
    const double own_rows = double{1} * size.rows / size.sequences;
    const double group = double{1} * shape.heads / shape.kv_heads;
    const double keys = size.context + own_rows;
    const double tile = round_up(own_rows * group, kAttentionTile) * shape.kv_heads;
    const double kv = 4.0 * shape.kv_heads * shape.head_dim * keys * size.sequences;
    const double q = kFloatBytes * size.rows * shape.heads * shape.head_dim;
    kernel(3.0 * q, 0.0, 0.0, 1.0, q);  // rotary, K and V written
    step_.attention += kernel(kv + q, 0.0, 4.0 * tile * shape.head_dim * keys * size.sequences,
                              device_.bf16_per_s, tile * keys * size.sequences * 4.0);
    step_.attention += kernel(3.0 * q, 0.0, 0.0, 1.0, q);  // the parts of split keys joined
  }

  /// Of the weights that follow, the first are fetched meanwhile.
  void all_reduce(double bytes, double next_weight_bytes) {
    if (devices_ == 1) return;
    const double seconds =
        device_.all_reduce_s + 2.0 * (devices_ - 1) / devices_ * bytes / device_.link_bytes_per_s;
    step_.all_reduce += seconds;
    step_.seconds += seconds;
    hide(std::min(kFetchedBytes, next_weight_bytes / devices_), seconds);
  }

  const PredictedStep& step() const { return step_; }

 private:
  /// `bytes` are read while the device would else do little, for `seconds` at most.
  void hide(double bytes, double seconds) {
    const double hidden = std::min(bytes / (kMemoryReach * device_.bytes_per_s), seconds);
    step_.hidden += hidden;
    step_.seconds -= hidden;
  }

  const Device& device_;
  int devices_;
  double slack_ = 0.0;  // of the last kernel: what it would take less if its bytes were near
  PredictedStep step_;
};

}  // namespace

std::span<const ModelShape> model_shapes() {
  static const std::vector<ModelShape> shapes = [] {
    std::vector<ModelShape> all;
    for (const bool quantised : {false, true}) {
      const std::string suffix = quantised ? "-4bit" : "-bf16";
      // layers, dim, ffn, heads, kv heads, head dim, vocabulary
      all.push_back(shape("llama-3-8b" + suffix, {32, 4096, 14336, 32, 8, 128, 128256}, quantised));
      all.push_back(
          shape("llama-3-70b" + suffix, {80, 8192, 28672, 64, 8, 128, 128256}, quantised));
      all.push_back(shape("vicuna-7b" + suffix, {32, 4096, 11008, 32, 32, 128, 32000}, quantised));
    }
    return all;
  }();
  return shapes;
}

const ModelShape& find_shape(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelShape& each : model_shapes()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw Error("shape {} is not in the table{}", quote(name), suggest_word(name, names));
}

ModelShape shape_of(const ModelSource& source) {
  const ModelConfig& c = source.config;
  ModelShape s{c.name,     static_cast<int>(source.layers.size()),
               c.dim,      c.ffn,
               c.heads,    c.kv_heads,
               c.head_dim, c.vocabulary};
  double bytes = 0.0;
  for (const LayerTensors& layer : source.layers) {
    for (const TensorView* view : {&layer.q, &layer.k, &layer.v, &layer.attention_output,
                                   &layer.gate, &layer.up, &layer.down}) {
      bytes += static_cast<double>(view->bytes());
    }
  }
  s.layer_bytes = bytes / std::max(s.layers, 1);
  s.output_bytes = static_cast<double>(source.output.bytes());
  const bool tied = source.output.data == source.embedding.data;
  s.embedding_bytes = tied ? 0.0 : static_cast<double>(source.embedding.bytes());
  s.quantised = !source.layers.empty() && traits(source.layers.front().down.type).block_values > 1;
  return s;
}

PredictedStep predict_step(const Device& device, const ModelShape& shape, const StepSize& size) {
  COPPICE_CHECK(size.rows >= size.sequences && size.sequences > 0 && size.devices > 0);
  Counter counter(device, size.devices);
  const double dim = shape.dim, q = shape.heads * shape.head_dim,
               kv = shape.kv_heads * shape.head_dim;
  // A layer's bytes by the share of its values that each matrix has.
  const double bytes_per_value = shape.layer_bytes / (2.0 * dim * (q + kv) + 3.0 * dim * shape.ffn);
  const auto product = [&](double inputs, double outputs) {
    counter.product(shape, bytes_per_value * inputs * outputs, inputs, outputs, size.rows);
  };
  const auto all_reduce = [&](double next_values) {
    counter.all_reduce(kFloatBytes * size.rows * dim, bytes_per_value * next_values);
  };
  counter.kernel(2.0 * kFloatBytes * size.rows * dim, 0.0, 0.0, 1.0, 0.0);  // embedding
  for (int layer = 0; layer < shape.layers; ++layer) {
    product(dim, q + 2 * kv);
    counter.attention(shape, size);
    product(q, dim);
    all_reduce(2.0 * dim * shape.ffn);
    product(dim, 2.0 * shape.ffn);
    product(shape.ffn, dim);
    all_reduce(dim * (q + 2 * kv));
  }
  counter.product(shape, shape.output_bytes, dim, shape.vocabulary, size.rows);
  // The warp reads each row of logits, the walk a few numbers of each.
  counter.kernel(kFloatBytes * size.rows * shape.vocabulary, 0.0, 0.0, 1.0,
                 4.0 * size.rows * shape.vocabulary);
  counter.kernel(0.0, 0.0, 0.0, 1.0, 0.0);
  return counter.step();
}

int devices_needed(const Device& device, const ModelShape& shape) {
  int count = 1;
  while (shape.weight_bytes() > 0.9 * device.memory_bytes * count) count *= 2;
  return count;
}

}  // namespace coppice
