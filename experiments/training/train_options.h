// What a training run is told: one TOML file with the tables [data], [head] and [train].
//
//   TrainConfig config = read_train_config("configs/train/eagle3.toml");
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/options.h"

namespace coppice {

struct DataOptions {
  std::string target = "smollm2";
  std::vector<std::string> prompts;
  int per_file = 0;
  int written = 0;
  int validation = 32;
  int max_new_tokens = 192;
  int max_tokens = 512;
  std::vector<double> temperatures = {0.0, 0.7};
  int batch = 16;
  uint64_t seed = 1;
  int store_mb = 4096;

  template <class V>
  void visit(V& v) {
    v("target", target, "the model that is drafted for: a GGUF file or a name");
    v("prompts", prompts, "JSON Lines files; looked for in $COPPICE_DATA too");
    v("per_file", per_file, "prompts of each file, drawn by the seed; 0: all", Range{0, 1e7});
    v("written", written, "prompts more that the target writes itself", Range{0, 1e7});
    v("validation", validation, "of these kept apart, answered greedily", Range{1, 1e5});
    v("max_new_tokens", max_new_tokens, "of an answer", Range{2, 1e5});
    v("max_tokens", max_tokens, "of prompt and answer; longer ones are left out", Range{8, 1e5});
    v("temperatures", temperatures, "answers are sampled at, in turn", Range{0, 10});
    v("batch", batch, "prompts answered at once", Range{1, 256});
    v("seed", seed, "of order and sampling");
    v("store_mb", store_mb, "hidden states kept on disk; what does not fit is computed anew",
      Range{1, 1e6});
  }
};

struct HeadOptions {
  int draft_vocabulary = 8192;
  int count = 4;
  int blocks = 1;
  int ffn = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  std::vector<int> layers;

  template <class V>
  void visit(V& v) {
    v("draft_vocabulary", draft_vocabulary, "most frequent tokens that can be drafted; 0: all",
      Range{0, 1e7});
    v("count", count, "medusa, hydra: heads", Range{1, 16});
    v("blocks", blocks, "medusa, hydra: residual blocks of a head", Range{1, 8});
    v("ffn", ffn, "eagle: width of the feed-forward; 0: the target's", Range{0, 1e6});
    v("heads", heads, "eagle: attention heads; 0: the target's", Range{0, 1024});
    v("kv_heads", kv_heads, "eagle: heads of keys and values; 0: the target's", Range{0, 1024});
    v("head_dim", head_dim, "eagle: values of a head; 0: the target's", Range{0, 4096});
    v("layers", layers, "draft: layers of the target that its own begin as; none: first and last",
      Range{0, 1023});
  }
};

struct LoopOptions {
  int steps = 2000;
  int batch = 8;
  double learning_rate = 1e-3;
  int warmup = 50;
  double weight_decay = 0.01;
  double clip = 0.5;
  int unroll = 5;
  double step_weight = 0.8;
  bool distill = true;
  double regression = 1.0;
  double cross_entropy = 1.0;
  double noise = 0.1;
  int evaluate_every = 200;
  int checkpoint_every = 100;
  uint64_t seed = 1;
  bool bf16 = false;
  std::string type = "q4_1";

  template <class V>
  void visit(V& v) {
    v("steps", steps, "optimiser steps", Range{1, 1e7});
    v("batch", batch, "texts a step", Range{1, 1024});
    v("learning_rate", learning_rate, "of AdamW, at its height", Range{0, 1});
    v("warmup", warmup, "steps to reach it; then it falls as a cosine", Range{0, 1e6});
    v("weight_decay", weight_decay, "of AdamW, for matrices", Range{0, 1});
    v("clip", clip, "largest norm of the gradient", Range{1e-6, 1e6});
    v("unroll", unroll,
      "eagle, eagle3: drafting steps trained through; draft: tokens ahead validated", Range{1, 16});
    v("step_weight", step_weight, "loss of a token further on, against the one before it",
      Range{0, 1});
    v("distill", distill, "learn the target's distribution; else the text itself");
    v("regression", regression, "eagle: weight of the smooth-L1 loss of hidden states",
      Range{0, 100});
    v("cross_entropy", cross_entropy, "weight of the cross-entropy", Range{0, 100});
    v("noise", noise, "eagle: half the width of the uniform noise on hidden states", Range{0, 1});
    v("evaluate_every", evaluate_every, "steps", Range{1, 1e6});
    v("checkpoint_every", checkpoint_every, "steps", Range{1, 1e6});
    v("seed", seed, "of weights, order and noise");
    v("bf16", bf16, "products in bf16 where the processor has them (AMX, AVX-512 BF16)");
    v("type", type, "of the matrices in the finished file", OneOf{{"q4_1", "q8_0", "bf16", "f32"}});
  }
};

struct TrainConfig {
  DataOptions data;
  HeadOptions head;
  LoopOptions loop;
  std::filesystem::path folder;  // the file's own, for paths in it
};

/// Throws Error for unknown tables, keys and values.
TrainConfig read_train_config(const std::filesystem::path& path);
/// Every setting, as JSON: what a run may be resumed with, and the head's training record.
std::string train_config_text(const TrainConfig& config);

}  // namespace coppice
