// What a step of a model takes on a machine of devices.h by counting: each kernel of our CUDA
// backend lasts as long as its bytes or its operations need, whichever is longer, and a gap stands
// behind it. Source of the idea: Williams et al., "Roofline", CACM 2009.
//
//   const ModelShape& shape = model_shapes().front();
//   PredictedStep step = predict_step(find_device("h200"), shape, {.rows = 8, .context = 512});
#pragma once

#include <span>
#include <string>

#include "core/model_source.h"
#include "experiments/devices.h"

namespace coppice {

struct ModelShape {
  std::string name;
  int layers = 0, dim = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  double layer_bytes = 0;  // weights of one layer
  double output_bytes = 0;
  double embedding_bytes = 0;  // held beside the output layer; 0 where both are one
  bool quantised = false;      // whole numbers in blocks of 32: products take 8-bit activations

  double weight_bytes() const { return layers * layer_bytes + output_bytes + embedding_bytes; }
  double kv_bytes_per_token() const { return 4.0 * layers * kv_heads * head_dim; }
};

/// Shapes that need no file: Llama 3 of 8 and 70 billion weights and Vicuna 7B (the model of
/// Spec-Bench), in bf16 and in 4 bits (Q4_K, the output layer Q6_K).
std::span<const ModelShape> model_shapes();
/// Throws Error naming those there are.
const ModelShape& find_shape(std::string_view name);
ModelShape shape_of(const ModelSource& source);

struct StepSize {
  int rows = 1;  // over all sequences together
  int sequences = 1;
  int context = 512;  // tokens in the cache, of each sequence
  int devices = 1;    // tensor parallel: each holds a share of every matrix
};

/// Of one device; they all do the same.
struct PredictedStep {
  double seconds = 0;
  double gaps = 0;        // seconds between kernels
  double hidden = 0;      // of those and of the short kernels there: seconds in which weights come
  double products = 0;    // seconds in matrix products
  double attention = 0;   // seconds in attention
  double all_reduce = 0;  // seconds in sums over devices
  double bytes = 0;
  double operations = 0;
  double memory_seconds = 0;  // that the bytes alone would take at the published bandwidth
  int kernels = 0;
};

PredictedStep predict_step(const Device& device, const ModelShape& shape, const StepSize& size);
/// Fewest devices, a power of two, that hold the weights and leave a tenth for the cache.
int devices_needed(const Device& device, const ModelShape& shape);

}  // namespace coppice
