// See trainer.h.
#include "experiments/training/trainer.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "core/safetensors.h"
#include "experiments/progress.h"
#include "experiments/training/draft_net.h"
#include "experiments/training/head_net.h"
#include "experiments/training/quantise.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kCheckpoint = "checkpoint.safetensors";

std::vector<int64_t> shape_of(const at::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Calls work(i) for every i below `count`, that many at a time; throws what one of them threw.
template <class Work>
void side_by_side(size_t count, int threads, const Work& work) {
  std::atomic<size_t> next = 0;
  std::exception_ptr thrown;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      thrown = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run);
  run();
  others.clear();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace

HeadConfig head_config(std::string_view kind, const TrainConfig& config, const Model& target) {
  const ModelConfig& model = target.config();
  HeadConfig head;
  head.kind = kind;
  head.target = describe_target(target);
  head.norm_eps = model.norm_eps;
  head.rotary_base = model.rotary_bases.front();
  if (config.head.draft_vocabulary < model.vocabulary) {
    head.draft_vocabulary = config.head.draft_vocabulary;
  }
  if (kind == "draft") {
    head.layers = config.head.layers;
    if (head.layers.empty()) head.layers = {0, target.layers() - 1};
    for (const int layer : head.layers) {
      if (layer < target.layers()) continue;
      throw Error("[head] layers names {}; the target's are 0..{}", layer, target.layers() - 1);
    }
    return head;
  }
  head.taps = {target.layers()};
  if (!kind.starts_with("eagle")) {
    head.count = config.head.count;
    head.blocks = config.head.blocks;
    return head;
  }
  const auto or_targets = [](int wanted, int own) { return wanted > 0 ? wanted : own; };
  head.heads = or_targets(config.head.heads, model.heads);
  head.kv_heads = or_targets(config.head.kv_heads, model.kv_heads);
  head.head_dim = or_targets(config.head.head_dim, model.head_dim);
  head.ffn = or_targets(config.head.ffn, model.ffn);
  if (head.heads % head.kv_heads != 0 || head.head_dim % 2 != 0) {
    throw Error("[head] {} heads of {} values with {} of keys make no layer", head.heads,
                head.head_dim, head.kv_heads);
  }
  if (kind == "eagle3") {
    if (target.layers() < 5) {
      throw Error("eagle3 needs a target of 5 layers or more; this has {}", target.layers());
    }
    head.taps = {2, target.layers() / 2, target.layers() - 3};  // Li 2025's code
  }
  return head;
}

TargetTensors read_target(const ModelSource& source, const std::vector<int32_t>& draft_ids) {
  const ModelConfig& config = source.config;
  TargetTensors target;
  target.embedding = read_rows(source.embedding) * config.embedding_scale;
  target.output = read_rows(source.output, draft_ids);
  target.norm = read_rows(source.output_norm).squeeze(0);
  target.norm_eps = config.norm_eps;
  target.draft_row = at::arange(config.vocabulary, at::kLong);
  if (!draft_ids.empty()) {
    target.draft_row.fill_(-1);
    for (size_t row = 0; row < draft_ids.size(); ++row) {
      target.draft_row.data_ptr<int64_t>()[draft_ids[row]] = static_cast<int64_t>(row);
    }
  }
  return target;
}

std::vector<int> stored_taps(const HeadConfig& config) {
  std::vector<int> taps = config.taps;
  if (taps.empty() || taps.back() != config.target.layers) taps.push_back(config.target.layers);
  return taps;
}

std::unique_ptr<TrainNet> make_net(const HeadConfig& head, const ModelSource& source,
                                   const std::vector<int32_t>& draft_ids, uint64_t seed) {
  const TargetTensors target = read_target(source, draft_ids);
  if (head.kind == "draft") return std::make_unique<DraftNet>(head, source, target, at::kFloat);
  return std::make_unique<HeadNet>(head, target, seed, at::kFloat);
}

Trainer::Trainer(const TrainConfig& config, std::unique_ptr<TrainNet> net, const TrainData& data,
                 std::filesystem::path folder, int threads)
    : head_(net->config()),
      config_(config),
      data_(&data),
      folder_(std::move(folder)),
      net_(std::move(net)),
      optimiser_(net_->parameters()),
      threads_(threads) {}

/// What weights and data must have in common for a run to go on.
std::string Trainer::identity() const {
  json told = json::parse(train_config_text(config_));
  told["data"].erase("batch");
  told["data"].erase("store_mb");
  if (head_.kind != "draft") told["head"].erase("layers");
  ordered_json out;
  out["kind"] = head_.kind;
  out["fingerprint"] = fmt::format("{:016x}", head_.target.fingerprint);
  out["data"] = told["data"];
  out["head"] = told["head"];
  return out.dump();
}

bool Trainer::resume() {
  const auto path = folder_ / kCheckpoint;
  if (!std::filesystem::exists(path)) return false;
  const SafetensorsFile file(path);
  const auto text = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("identity") != identity()) {
    throw Error("{}: made with another kind, head or data; use another --out", path.string());
  }
  const json state = json::parse(text("state"));
  const auto copy = [&](const std::string& name, at::Tensor& to) {
    const at::NoGradGuard no_gradients;
    const SafeTensor& from = file.tensor(name);
    if (from.shape != shape_of(to) || from.bytes.size() != to.nbytes()) {
      throw Error("{}: tensor '{}' has another shape", path.string(), name);
    }
    const at::Tensor host = at::empty(to.sizes(), at::kFloat);
    std::memcpy(host.data_ptr(), from.bytes.data(), from.bytes.size());
    to.copy_(host);
  };
  for (size_t i = 0; i < net_->parameters().size(); ++i) {
    auto& [name, value] = net_->parameters()[i];
    copy(name, value);
    copy("adam.first." + name, optimiser_.first[i]);
    copy("adam.second." + name, optimiser_.second[i]);
  }
  step_ = state.at("step").get<int>();
  labels_ = state.at("labels").get<int64_t>();
  optimiser_.steps = step_;
  return true;
}

void Trainer::write_checkpoint() const {
  std::vector<SafeTensor> tensors;
  std::vector<at::Tensor> hosts;  // what the bytes belong to
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    hosts.push_back(value.detach().cpu());
    tensors.push_back({name, "F32", shape_of(value), bytes_of(hosts.back())});
  };
  const auto& parameters = net_->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, value] = parameters[i];
    add(name, value);
    add("adam.first." + name, optimiser_.first[i]);
    add("adam.second." + name, optimiser_.second[i]);
  }
  const json state = {{"step", step_}, {"labels", labels_}};
  write_safetensors(folder_ / kCheckpoint, tensors,
                    {{"identity", identity()}, {"state", state.dump()}});
}

void Trainer::write_head(const Hits& hits) const {
  ordered_json record;
  record["config"] = json::parse(train_config_text(config_));
  record["steps"] = step_;
  record["labels"] = labels_;
  record["texts"] = data_->answers.train.size();
  record["validation"] = {{"reached", hits.reached},
                          {"right", hits.right},
                          {"tokens_per_step", hits.tokens_per_step()}};
  HeadConfig config = head_;
  config.training = record.dump();
  std::vector<SafeTensor> tensors;
  std::vector<std::vector<std::byte>> bytes;
  const auto add = [&](const std::string& name, const at::Tensor& anywhere) {
    const at::Tensor value = anywhere.detach().cpu().contiguous();
    auto shape = shape_of(value);
    const std::span values(value.data_ptr<float>(), static_cast<size_t>(value.numel()));
    const std::string& type = config_.loop.type;
    const bool blocks = type == "q4_1" || type == "q8_0";
    if (value.dim() == 2 && blocks && shape[1] % 32 == 0) {
      bytes.push_back(type == "q4_1" ? to_q4_1(values) : to_q8_0(values));
      const auto row_bytes = static_cast<int64_t>(bytes.back().size()) / shape[0];
      tensors.push_back({name, "U8", {shape[0], row_bytes}});
    } else if (value.dim() == 2 && type == "bf16") {
      bytes.push_back(to_bf16(values));
      tensors.push_back({name, "BF16", shape});
    } else {
      const auto whole = std::as_bytes(values);
      bytes.emplace_back(whole.begin(), whole.end());
      tensors.push_back({name, "F32", shape});
    }
  };
  for (const auto& [name, value] : net_->parameters()) add(name, value);
  for (const auto& [name, value] : net_->constants()) add(name, value);
  std::vector<int64_t> offsets;
  for (size_t row = 0; row < data_->draft_ids.size(); ++row) {
    offsets.push_back(data_->draft_ids[row] - static_cast<int64_t>(row));
  }
  if (!offsets.empty()) {
    const auto whole = std::as_bytes(std::span(offsets));
    bytes.emplace_back(whole.begin(), whole.end());
    tensors.push_back({"d2t", "I64", {static_cast<int64_t>(offsets.size())}});
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = bytes[i];
  write_safetensors(head_path(), tensors, {{"coppice", head_config_text(config)}});
}

void Trainer::log(const std::string& line) const {
  std::ofstream(folder_ / "log.jsonl", std::ios::app) << line << '\n';
}

Example Trainer::example(const TrainText& text, HiddenStates& states, size_t index) {
  const auto tokens = static_cast<int64_t>(text.tokens.size());
  const auto taps = static_cast<int64_t>(stored_taps(head_).size());
  states.read(index, buffer_);
  const at::Tensor all =
      at::from_blob(buffer_.data(), {taps, tokens, head_.target.dim}, at::kFloat).clone();
  Example made;
  made.tokens = at::empty({tokens}, at::kLong);
  std::copy(text.tokens.begin(), text.tokens.end(), made.tokens.data_ptr<int64_t>());
  made.states = all.narrow(0, 0, static_cast<int64_t>(head_.taps.size()));
  made.last = all[taps - 1];
  made.answer = text.answer;
  for (at::Tensor* part : {&made.tokens, &made.states, &made.last}) {
    *part = part->to(net_->device());
  }
  return made;
}

/// Every epoch in an order of its own that depends on the seed alone.
size_t Trainer::text_of(int64_t position) {
  const auto texts = static_cast<int64_t>(data_->answers.train.size());
  if (epoch_ != position / texts) {
    epoch_ = position / texts;
    order_.resize(static_cast<size_t>(texts));
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::mt19937_64 random(config_.loop.seed * 1000003 + static_cast<uint64_t>(epoch_));
    for (size_t left = order_.size(); left > 1; --left) {
      std::swap(order_[left - 1], order_[static_cast<size_t>(random() % left)]);
    }
  }
  return order_[static_cast<size_t>(position % texts)];
}

// Warm-up, then a cosine to a fiftieth.
double Trainer::rate() const {
  const LoopOptions& loop = config_.loop;
  if (step_ < loop.warmup) return loop.learning_rate * (step_ + 1) / loop.warmup;
  const double part =
      static_cast<double>(step_ - loop.warmup) / std::max(1, loop.steps - loop.warmup);
  return loop.learning_rate * (0.02 + 0.98 * 0.5 * (1.0 + std::cos(3.141592653589793 * part)));
}

// Texts are learnt side by side, each on one core, and their gradients added in the texts' order:
// the weights do not depend on how many cores there are.
double Trainer::train_step() {
  const LoopOptions& loop = config_.loop;
  std::vector<Example> examples;
  for (int i = 0; i < loop.batch; ++i) {
    const int64_t position = int64_t{step_} * loop.batch + i;
    const size_t index = text_of(position);
    examples.push_back(example(data_->answers.train[index], *data_->train, index));
    // Noise is addressed by the text's place in the run, so that a resumed run draws the same.
    examples.back().seed = loop.seed + (static_cast<uint64_t>(position) + 1) * 0x9e3779b97f4a7c15u;
  }
  std::vector<at::Tensor> weights;
  for (const auto& [name, value] : net_->parameters()) weights.push_back(value);
  std::vector<std::vector<at::Tensor>> gradients(examples.size());
  std::vector<double> losses(examples.size());
  std::vector<int64_t> labels(examples.size());
  side_by_side(examples.size(), threads_, [&](size_t i) {
    const HeadLoss loss = net_->loss(examples[i], loop);
    losses[i] = loss.total.item<double>();
    labels[i] = loss.labels;
    if (loss.total.requires_grad()) {
      gradients[i] = torch::autograd::grad({loss.total / loop.batch}, weights, {}, {}, false, true);
    }
  });
  const at::NoGradGuard no_gradients;
  double total = 0.0;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (!std::isfinite(losses[i])) {
      throw Failure(
          "the loss is {} at step {}; lower [train] learning_rate and resume from the "
          "last checkpoint",
          losses[i], step_ + 1);
    }
    total += losses[i] / loop.batch;
    labels_ += labels[i];
    for (size_t w = 0; w < gradients[i].size(); ++w) {
      if (!gradients[i][w].defined()) continue;
      at::Tensor& sum = weights[w].mutable_grad();
      sum.defined() ? sum.add_(gradients[i][w]) : sum = gradients[i][w].contiguous();
    }
  }
  optimiser_.step(net_->parameters(), rate(), loop.weight_decay, loop.clip);
  ++step_;
  return total;
}

Hits Trainer::evaluate() {
  const int steps = head_.count > 0 ? head_.count : config_.loop.unroll;
  const size_t texts = data_->answers.validation.size();
  std::vector<Example> examples;
  for (size_t i = 0; i < texts; ++i) {
    examples.push_back(example(data_->answers.validation[i], *data_->validation, i));
  }
  std::vector<Hits> hits(texts);
  side_by_side(texts, threads_, [&](size_t i) {
    const at::NoGradGuard no_gradients;
    net_->count_hits(examples[i], steps, hits[i]);
  });
  Hits sum;
  for (const Hits& one : hits) sum.add(one);
  return sum;
}

void Trainer::run(double minutes, int steps) {
  const LoopOptions& loop = config_.loop;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const int first = step_;
  bool ends = step_ >= loop.steps;
  if (ends) write_head(evaluate());  // of another type, perhaps
  while (!ends) {
    const double loss = train_step();
    ends = step_ == loop.steps || (minutes > 0.0 && seconds() > 60.0 * minutes) ||
           (steps > 0 && step_ - first == steps);
    const double left = seconds() / (step_ - first) * (loop.steps - step_);
    ordered_json line = {{"step", step_},
                         {"loss", loss},
                         {"labels", labels_},
                         {"rate", rate()},
                         {"seconds", seconds()}};
    if (ends || step_ % loop.evaluate_every == 0) {
      const Hits hits = evaluate();
      write_head(hits);
      line["reached"] = hits.reached;
      line["right"] = hits.right;
      line["tokens_per_step"] = hits.tokens_per_step();
      fmt::print(stderr,
                 "step {} of {}: loss {:.4f}, {:.3f} tokens per step on validation, {} left\n",
                 step_, loop.steps, loss, hits.tokens_per_step(), clock_text(left));
    } else if (step_ % 20 == 0) {
      fmt::print(stderr, "step {} of {}: loss {:.4f}, {} left\n", step_, loop.steps, loss,
                 clock_text(left));
    }
    log(line.dump());
    if (ends || step_ % loop.checkpoint_every == 0) write_checkpoint();
  }
}

}  // namespace coppice
