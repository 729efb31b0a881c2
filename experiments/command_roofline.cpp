// `coppice roofline`: the machine's limits, and how near to them a model's steps come; or what
// another machine is predicted to do.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/model_file.h"
#include "experiments/backend_steps.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/model_files.h"
#include "experiments/prediction.h"
#include "experiments/roofline.h"

namespace coppice {
namespace {

struct RooflineOptions {
  std::string model, target, device, shape;
  std::string backend = "cpu";
  int threads = 0;
  std::vector<int> contexts = RooflineRequest().contexts;
  std::vector<int> rows = RooflineRequest().rows;
  std::vector<int> read_mib = RooflineRequest().read_mib;
  int rounds = RooflineRequest().rounds;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("model", model,
      "also time a model's steps: GGUF file, Hugging Face folder, or a name of "
      "experiments/models.sh");
    v("target", target, "instruction set; empty: the best of this machine");
    v("threads", threads, "0: one per core", Range{0, 1024});
    v("contexts", contexts, "tokens in the cache before a step", Range{1, 1e6});
    v("rows", rows, "rows of a step; 1 is always among them", Range{1, 512});
    v("read_mib", read_mib, "buffers whose reading is timed, in MiB", Range{1, 1 << 16});
    v("rounds", rounds, "times that every figure is measured, in turn", Range{1, 1000});
    v("backend", backend, "whose steps are timed; with another than cpu a model must be given");
    v("device", device, "predict for this machine instead: h200, h100, a100, rtx4090");
    v("shape", shape,
      "with --device and no model: such as llama-3-8b-bf16, llama-3-70b-4bit; empty: all");
    v("json", json, "print one JSON object");
  }
};

nlohmann::ordered_json predicted(const RooflineOptions& options) {
  PredictionRequest request{.device = options.device};
  request.contexts = options.contexts;
  if (options.rows != RooflineRequest().rows) request.rows = options.rows;
  if (!options.model.empty()) {
    ModelFile file(find_model(options.model, {}));
    request.shapes = {shape_of(file.source())};
  } else if (!options.shape.empty()) {
    request.shapes = {find_shape(options.shape)};
  } else {
    request.shapes.assign(model_shapes().begin(), model_shapes().end());
  }
  return predict(request);
}

}  // namespace

int roofline_command(Arguments args) {
  CommandLine line("coppice roofline",
                   "Measures the machine's limits, and a model's steps against them.",
                   "  coppice roofline\n"
                   "  coppice roofline --model smollm2\n"
                   "  coppice roofline --model smollm2 --target avx2 --contexts 64 --rows 1,4,16 "
                   "--json\n"
                   "  coppice roofline --device h200 --shape llama-3-8b-bf16\n");
  line.add<RooflineOptions>("Options");
  if (!line.parse(args)) return 0;
  const auto options = line.read<RooflineOptions>();
  if (!options.device.empty()) {
    const nlohmann::ordered_json record = predicted(options);
    fmt::print("{}", options.json ? record.dump() + "\n" : prediction_text(record));
    return 0;
  }
  if (!options.shape.empty()) throw Error("--shape: give --device too");
  RooflineRequest request;
  request.machine = {.name = "cpu", .threads = options.threads, .target = options.target};
  if (!options.model.empty()) request.model = find_model(options.model, {});
  request.contexts = options.contexts;
  request.rows = options.rows;
  request.read_mib = options.read_mib;
  request.rounds = options.rounds;
  if (options.backend != "cpu") {
    request.machine.name = options.backend;
    const nlohmann::ordered_json record = measure_backend_steps(request);
    fmt::print("{}", options.json ? record.dump() + "\n" : backend_steps_text(record));
    return 0;
  }
  const nlohmann::ordered_json record = measure_roofline(request);
  fmt::print("{}", options.json ? record.dump() + "\n" : roofline_text(record));
  return 0;
}

}  // namespace coppice
