// See prediction.h. Tokens per step are published ones, from Spec-Bench (Xia et al. 2024; Vicuna
// 7B, greedy, one sequence), because they carry over between machines; the costs are predicted.
#include "experiments/prediction.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace coppice {
namespace {

using nlohmann::ordered_json;

constexpr int kMethodContext = 512;

/// What a method drafts with, in parts of the target.
struct DraftPass {
  int passes = 0;        // one after the other
  double dim_dim = 0;    // matrices (dim, dim) read in all
  double layers = 0;     // of the target's kind
  double outputs = 0;    // output layers
  double own_bytes = 0;  // a model of its own
  int kernels = 0;       // in a pass
};

struct PublishedMethod {
  std::string_view name;
  double tokens_per_step;  // bonus included
  int rows;                // verified a step, node 0 included
  DraftPass draft;
  double speedup;  // published, on an A100
};

// 68M draft: two layers and 32,000 tokens in fp16. Medusa and Hydra: four heads, each a layer
// (dim, dim) and an output layer. EAGLE: a layer, a (2 dim, dim) input and the output layer a pass.
constexpr PublishedMethod kMethods[] = {
    {"prompt_lookup", 1.75, 11, {}, 1.66},
    {"lookahead", 1.64, 56, {}, 1.34},
    {"retrieval (REST)", 1.82, 64, {}, 1.48},
    {"token_recycling", 2.73, 80, {}, 2.22},
    {"draft_model (68M)", 2.28, 6, {.passes = 5, .own_bytes = 136e6, .kernels = 28}, 1.52},
    {"medusa", 2.31, 64, {.passes = 1, .dim_dim = 4, .outputs = 4, .kernels = 8}, 1.71},
    {"hydra", 3.26, 64, {.passes = 4, .dim_dim = 20, .outputs = 4, .kernels = 4}, 2.07},
    {"eagle",
     3.58,
     26,
     {.passes = 5, .dim_dim = 10, .layers = 5, .outputs = 5, .kernels = 16},
     2.10},
    {"eagle2",
     4.34,
     60,
     {.passes = 6, .dim_dim = 12, .layers = 6, .outputs = 6, .kernels = 16},
     2.36},
};

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

/// Seconds that the drafts of a step take: what is read, and the gaps between kernels. Heads are
/// bf16 beside a target of any type; the output layer is the target's.
double draft_seconds(const Device& device, const ModelShape& shape, const DraftPass& draft,
                     int count) {
  const double bytes = draft.dim_dim * 2.0 * shape.dim * shape.dim +
                       draft.layers * shape.layer_bytes + draft.outputs * shape.output_bytes;
  return (bytes / count + draft.own_bytes) / (kMemoryReach * device.bytes_per_s) +
         draft.passes * draft.kernels * kKernelGap;
}

ordered_json steps_of(const Device& device, const ModelShape& shape, int count,
                      const PredictionRequest& request) {
  ordered_json steps = ordered_json::array();
  for (const int context : request.contexts) {
    const StepSize one{.rows = 1, .context = context, .devices = count};
    const double one_row = predict_step(device, shape, one).seconds;
    for (const int rows : request.rows) {
      StepSize size = one;
      size.rows = rows;
      const PredictedStep step = predict_step(device, shape, size);
      steps.push_back({{"context", context},
                       {"rows", rows},
                       {"ms", rounded(1e3 * step.seconds)},
                       {"cost", rounded(step.seconds / one_row)},
                       {"bytes", step.bytes},
                       {"operations", step.operations},
                       {"share_of_bandwidth", rounded(step.memory_seconds / step.seconds)},
                       {"share_of_gaps", rounded((step.gaps - step.hidden) / step.seconds)},
                       {"products_ms", rounded(1e3 * step.products)},
                       {"attention_ms", rounded(1e3 * step.attention)},
                       {"all_reduce_ms", rounded(1e3 * step.all_reduce)},
                       {"kernels", step.kernels}});
    }
  }
  return steps;
}

ordered_json methods_of(const Device& device, const ModelShape& shape, int count) {
  ordered_json methods = ordered_json::array();
  const auto step = [&](int rows) {
    return predict_step(device, shape, {.rows = rows, .context = kMethodContext, .devices = count})
        .seconds;
  };
  for (const PublishedMethod& method : kMethods) {
    const double draft = draft_seconds(device, shape, method.draft, count);
    const double seconds = step(method.rows) + draft;
    methods.push_back({{"method", method.name},
                       {"tokens_per_step", method.tokens_per_step},
                       {"rows", method.rows},
                       {"draft_ms", rounded(1e3 * draft)},
                       {"step_ms", rounded(1e3 * seconds)},
                       {"speedup", rounded(method.tokens_per_step * step(1) / seconds)},
                       {"published_speedup_vicuna_7b_a100", method.speedup}});
  }
  return methods;
}

std::string shape_text(const ordered_json& shape) {
  const int count = shape.at("devices");
  std::string out =
      fmt::format("\n{}, {:.1f} GB{}: predicted\n", shape.at("name").get<std::string>(),
                  shape.at("weight_bytes").get<double>() / 1e9,
                  count == 1 ? "" : fmt::format(", tensor parallel over {}", count));
  int context = -1;
  for (const ordered_json& step : shape.at("steps")) {
    if (step.at("context").get<int>() != context) {
      context = step.at("context").get<int>();
      out += fmt::format("context {}\n{:>6} {:>9} {:>6} {:>9} {:>10} {:>6} {:>9} {:>10}\n", context,
                         "rows", "ms", "c(n)", "tokens/s", "bandwidth", "gaps", "products",
                         "attention");
    }
    const double ms = step.at("ms");
    const int rows = step.at("rows");
    out +=
        fmt::format("{:>6} {:>9.3f} {:>6.2f} {:>9.0f} {:>8.0f} % {:>4.1f} % {:>9.3f} {:>10.3f}\n",
                    rows, ms, step.at("cost").get<double>(), 1e3 * rows / ms,
                    100 * step.at("share_of_bandwidth").get<double>(),
                    100 * step.at("share_of_gaps").get<double>(),
                    step.at("products_ms").get<double>(), step.at("attention_ms").get<double>());
  }
  out += fmt::format("methods at context {}\n{:>20} {:>12} {:>5} {:>9} {:>9} {:>8}\n",
                     kMethodContext, "", "tokens/step", "rows", "draft ms", "step ms", "speedup");
  for (const ordered_json& method : shape.at("methods")) {
    out += fmt::format("{:>20} {:>12.2f} {:>5} {:>9.3f} {:>9.3f} {:>8.2f}\n",
                       method.at("method").get<std::string>(),
                       method.at("tokens_per_step").get<double>(), method.at("rows").get<int>(),
                       method.at("draft_ms").get<double>(), method.at("step_ms").get<double>(),
                       method.at("speedup").get<double>());
  }
  return out;
}

}  // namespace

ordered_json predict(const PredictionRequest& request) {
  const Device& device = find_device(request.device);
  ordered_json out = {{"schema", 1},
                      {"predicted", true},
                      {"device",
                       {{"name", device.full_name},
                        {"source", device.source},
                        {"memory_gb", device.memory_bytes / 1e9},
                        {"gb_per_s", device.bytes_per_s / 1e9},
                        {"bf16_tflop_per_s", device.bf16_per_s / 1e12},
                        {"int8_top_per_s", device.int8_per_s / 1e12},
                        {"fp32_tflop_per_s", device.fp32_per_s / 1e12}}},
                      {"assumed",
                       {{"share_of_bandwidth", kMemoryReach},
                        {"share_of_tensor_cores", kTensorReach},
                        {"share_of_plain_cores", kPlainReach},
                        {"gap_between_kernels_us", kKernelGap * 1e6}}},
                      {"tokens_per_step_from", "Spec-Bench, Vicuna 7B, greedy, batch 1"}};
  out["shapes"] = ordered_json::array();
  for (const ModelShape& shape : request.shapes) {
    const int count = devices_needed(device, shape);
    out["shapes"].push_back({{"name", shape.name},
                             {"weight_bytes", shape.weight_bytes()},
                             {"devices", count},
                             {"steps", steps_of(device, shape, count, request)},
                             {"methods", methods_of(device, shape, count)}});
  }
  return out;
}

std::string prediction_text(const ordered_json& record) {
  const ordered_json& device = record.at("device");
  const ordered_json& assumed = record.at("assumed");
  std::string out = fmt::format(
      "PREDICTED, not measured: {}\n"
      "  published ({}): {:.0f} GB/s, bf16 {:.0f} Tflop/s, int8 {:.0f} Top/s\n"
      "  assumed: {:.0f} % of the bandwidth, {:.0f} % of the tensor cores, {:.1f} us between "
      "kernels\n"
      "  tokens a step: {}\n",
      device.at("name").get<std::string>(), device.at("source").get<std::string>(),
      device.at("gb_per_s").get<double>(), device.at("bf16_tflop_per_s").get<double>(),
      device.at("int8_top_per_s").get<double>(),
      100 * assumed.at("share_of_bandwidth").get<double>(),
      100 * assumed.at("share_of_tensor_cores").get<double>(),
      assumed.at("gap_between_kernels_us").get<double>(),
      record.at("tokens_per_step_from").get<std::string>());
  for (const ordered_json& shape : record.at("shapes")) out += shape_text(shape);
  return out;
}

}  // namespace coppice
