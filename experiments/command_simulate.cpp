// `coppice simulate`: what a recorded run would have gained on another machine or with another
// model.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/gguf.h"
#include "core/model_file.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/model_files.h"
#include "experiments/simulate.h"
#include "experiments/table.h"

namespace coppice {
namespace {

constexpr std::string_view kRecorded = "recorded";

struct SimulateOptions {
  std::string run;
  std::string machine{kRecorded};
  std::string model;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("run", run, "folder that coppice bench wrote, with its steps.jsonl");
    v("machine", machine,
      "recorded (the run's own, fitted to its steps), a name of the table (h200, h100, a100, "
      "rtx4090), or a TOML file with a [machine] table");
    v("model", model,
      "shape of the target there: a GGUF file, a Hugging Face folder, a name that "
      "experiments/models.sh fetches, or one such as llama-3-8b-bf16; empty: the run's own model");
    v("json", json, "print one JSON object");
  }
};

bool is_shape(std::string_view name) {
  for (const ModelShape& shape : model_shapes()) {
    if (shape.name == name) return true;
  }
  return false;
}

ModelShape shape_named(const std::string& name) {
  if (is_shape(name)) return find_shape(name);
  ModelFile file(find_model(name, {}));
  return shape_of(file.source());
}

/// (predicted - measured) / measured
std::optional<double> difference(const SimulatedMethod& method) {
  if (!method.measured || !method.predicted) return std::nullopt;
  return *method.predicted / method.measured->value - 1.0;
}

nlohmann::ordered_json to_json(const std::vector<SimulatedMethod>& methods,
                               const std::string& machine, const std::string& model) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json out = {
      {"schema", 1}, {"predicted", true}, {"machine", machine}, {"model", model}};
  out["methods"] = nlohmann::ordered_json::array();
  for (const SimulatedMethod& method : methods) {
    out["methods"].push_back(
        {{"name", method.name},
         {"measured_speedup", method.measured ? nlohmann::ordered_json(method.measured->value)
                                              : nlohmann::ordered_json(nullptr)},
         {"predicted_speedup", or_null(method.predicted)},
         {"predicted_tokens_per_s", or_null(method.tokens_per_s)},
         {"predicted_step_cost", or_null(method.step_cost)},
         {"clairvoyant_speedup", or_null(method.clairvoyant)}});
  }
  return out;
}

std::string text_of(const std::vector<SimulatedMethod>& methods, const std::string& machine,
                    const std::string& model, bool is_recorded) {
  std::vector<std::string> header = {"method",   "predicted speedup", "measured where recorded",
                                     "tokens/s", "step cost",         "clairvoyant bound"};
  if (is_recorded) header.push_back("predicted / measured - 1");
  Table table(header);
  double worst = 0.0;
  for (const SimulatedMethod& method : methods) {
    std::vector<std::string> cells = {
        method.name,
        number_text(method.predicted, 2),
        method.measured ? number_text(method.measured->value, 2) : "n/a",
        number_text(method.tokens_per_s, 1),
        number_text(method.step_cost, 2),
        number_text(method.clairvoyant, 2)};
    if (is_recorded) {
      const auto off = difference(method);
      cells.push_back(off ? fmt::format("{:+.1f} %", 100 * *off) : "n/a");
      worst = std::max(worst, std::abs(off.value_or(0.0)));
    }
    table.add(cells);
  }
  std::string out = fmt::format("PREDICTED: {}, {}\n\n{}\n", machine, model, table.markdown());
  if (is_recorded) {
    return out +
           fmt::format("The fitted costs meet what was measured within {:.1f} %.\n", 100 * worst);
  }
  return out +
         "The drafts and the rows are those of the recorded run: a budget of `auto` chose them for "
         "the machine it ran on,\nand would choose others there; the clairvoyant bound says what "
         "the best choice of the same drafts gives.\n";
}

}  // namespace

int simulate_command(Arguments args) {
  CommandLine line("coppice simulate",
                   "Replays a run's recorded steps under another machine's costs.",
                   "  coppice simulate results/quickstart\n"
                   "  coppice simulate results/quickstart --machine h200\n"
                   "  coppice simulate results/quickstart --machine a100 --model vicuna-7b-bf16\n"
                   "  coppice simulate results/quickstart --machine configs/machines/l40s.toml\n");
  line.add<SimulateOptions>("Options");
  line.positional("run");
  if (!line.parse(args)) return 0;
  const auto options = line.read<SimulateOptions>();
  if (options.run.empty()) throw Error("coppice simulate: name the folder of a run");
  const bool is_recorded = options.machine == kRecorded;
  if (is_recorded && !options.model.empty()) {
    throw Error("coppice simulate: --model needs --machine: what was recorded is one model's");
  }
  const ReportedRun run = read_reported_run(options.run);
  if (run.steps.empty()) {
    throw Error("{}: holds no steps.jsonl; run the experiment again, which writes it", options.run);
  }
  const RecordedCosts recorded(run);
  std::vector<SimulatedMethod> methods;
  std::string machine, model;
  if (is_recorded) {
    methods = simulate(run, recorded);
    machine = run.manifest.at("machine").at("cpu").get<std::string>();
    model = run.manifest.at("model").at("name").get<std::string>();
  } else {
    const Device device = options.machine.ends_with(".toml") ? read_device(options.machine)
                                                             : find_device(options.machine);
    const ModelShape shape =
        shape_named(options.model.empty() ? run.manifest.at("model").at("file").get<std::string>()
                                          : options.model);
    methods = simulate(run, DeviceCosts(device, shape, recorded, typical_context(run)));
    machine = fmt::format("{} ({})", device.full_name, device.source);
    model = shape.name;
  }
  fmt::print("{}", options.json ? to_json(methods, machine, model).dump() + "\n"
                                : text_of(methods, machine, model, is_recorded));
  return 0;
}

}  // namespace coppice
