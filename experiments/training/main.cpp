// `coppice train KIND CONFIG`: this program does the work; `coppice` starts it, so that only those
// who train load libtorch.
//
//   coppice train eagle3 configs/train/eagle3.toml --out build/eagle3
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "core/architecture.h"
#include "core/model_file.h"
#include "experiments/command_line.h"
#include "experiments/model_files.h"
#include "experiments/run_options.h"
#include "experiments/training/device.h"
#include "experiments/training/trainer.h"

namespace coppice {
namespace {

constexpr const char* kExamples =
    "  coppice train medusa configs/train/medusa.toml --out build/medusa\n"
    "  coppice train eagle3 configs/train/eagle3.toml --out build/eagle3 --minutes 45\n"
    "  coppice train eagle3 configs/train/eagle3.toml --out build/eagle3 --resume\n"
    "  coppice generate --model smollm2 --method eagle3 \\\n"
    "      --set head=build/eagle3/eagle3.safetensors --prompt \"Why is the sky blue?\"\n"
    "  coppice train draft configs/train/draft.toml --out build/draft\n"
    "  coppice generate --model smollm2 --draft-model build/draft/draft.safetensors \\\n"
    "      --method draft_model --prompt \"Why is the sky blue?\"\n";

struct TrainCommand {
  std::vector<std::string> what;
  std::string out, answers;
  bool resume = false;
  double minutes = 0.0;
  int train_threads = 0;
  std::string device = "cpu";

  template <class V>
  void visit(V& v) {
    v("what", what, "medusa, hydra, eagle, eagle3 or draft, then the config");
    v("out", out, "folder for checkpoints, log.jsonl and the head");
    v("answers", answers,
      "folder for prompts and answers, which runs may share; empty: that of --out");
    v("resume", resume, "go on from the folder's checkpoint");
    v("minutes", minutes, "stop training after so long, resumable; 0: at the last step",
      Range{0, 1e6});
    v("train_threads", train_threads, "texts that are learnt at a time; 0: one per core",
      Range{0, 1024});
    v("device", device, "of libtorch; the target answers on the backend's", OneOf{{"cpu", "cuda"}});
  }
};

void make_folder(const char* option, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Failure("{} {}: {}", option, folder.string(), error.message());
}

int train(std::span<const std::string> args) {
  CommandLine line("coppice train", "Trains a draft head or model on the target's own answers.",
                   kExamples);
  line.add<TrainCommand>("Training");
  line.add<BackendChoice>("Machine");
  line.positional("what", true);
  if (!line.parse(args)) return 0;
  const auto command = line.read<TrainCommand>();
  if (command.what.size() != 2) throw Error("say what to train: coppice train KIND CONFIG");
  const std::string& kind = command.what[0];
  constexpr std::string_view kKinds[] = {"medusa", "hydra", "eagle", "eagle3", "draft"};
  if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds)) {
    throw Error("'{}' cannot be trained; there are {}", kind, fmt::join(kKinds, ", "));
  }
  if (command.out.empty()) throw Error("--out is missing; name a folder");
  const TrainConfig config = read_train_config(command.what[1]);
  const at::Device device = training_device(command.device);
  const std::filesystem::path folder = command.out;
  if (std::filesystem::exists(folder / "checkpoint.safetensors") && !command.resume) {
    throw Error("--out {}: holds a checkpoint; add --resume, or use another folder", command.out);
  }
  const std::filesystem::path answers = command.answers.empty() ? command.out : command.answers;
  make_folder("--out", folder);
  make_folder("--answers", answers);
  at::set_num_threads(1);  // of an operation
  int threads = command.train_threads;
  if (threads == 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (!device.is_cpu()) threads = 1;
  // Tensors come and go by the thousand: what each holds is kept, not given back to the system.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  if (config.loop.bf16) at::globalContext().setFloat32MatmulPrecision("medium");

  const auto backend = line.read<BackendChoice>().make();
  const auto path = find_model(config.data.target, config.folder);
  const LoadedModel target = load_model(path, *backend);
  const HeadConfig head = head_config(kind, config, *target.model);
  const ModelConfig& model = target.model->config();
  if (kind == "draft" && model.rotary != find_architecture(model.architecture)->gguf_rotary) {
    throw Error(
        "{}: a draft's file has its rows in the order of GGUF files; give the target as one",
        path.string());
  }
  const std::vector<Prompt> prompts =
      training_prompts(config.data, config.folder, target, *backend, answers);
  TrainData data;
  data.answers = answer_prompts(config.data, prompts, target, *backend, answers);
  data.draft_ids = frequent_tokens(data.answers.train, model.vocabulary, head.draft_vocabulary);
  size_t tokens = 0;
  for (const TrainText& text : data.answers.train) tokens += text.tokens.size();
  fmt::print(stderr, "{} texts of {} tokens to learn from, {} to validate with\n",
             data.answers.train.size(), tokens, data.answers.validation.size());

  const std::vector<int> taps = stored_taps(head);
  const size_t store = static_cast<size_t>(config.data.store_mb) << 20;
  HiddenStates validation(*target.model, *backend, taps, data.answers.validation, folder,
                          store / 8);
  HiddenStates states(*target.model, *backend, taps, data.answers.train, folder, store);
  data.train = &states;
  data.validation = &validation;
  ModelFile file(path);
  auto net = make_net(head, file.source(), data.draft_ids, config.loop.seed);
  net->move_to(device);
  Trainer trainer(config, std::move(net), data, folder, threads);
  if (command.resume && !trainer.resume()) {
    throw Error("--out {}: holds no checkpoint; leave out --resume", command.out);
  }
  trainer.run(command.minutes);
  fmt::print("{}\n", trainer.head_path().string());
  return 0;
}

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> args(argv + 1, argv + argc);
    return coppice::train(args);
  } catch (const coppice::Error& error) {
    fmt::print(stderr, "coppice train: {}\n", error.what());
    return 2;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "coppice train: {}\n", failure.what());
    return 1;
  }
}
