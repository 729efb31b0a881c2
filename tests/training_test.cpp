// The trainer: networks against their papers in plain loops, gradients against finite differences,
// a resumed run against an unbroken one, and a small model's head from scratch to accepted drafts.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "core/chat_template.h"
#include "experiments/training/device.h"
#include "experiments/training/head_net.h"
#include "experiments/training/quantise.h"
#include "experiments/training/trainer.h"
#include "kernels/base/error.h"
#include "tests/head_oracle.h"
#include "tests/tiny_head.h"
#include "tests/tiny_model.h"
#include "tests/tiny_vocabulary.h"
#include "tests/train_net_checks.h"

namespace coppice {
namespace {

using test::as_double;
using test::HeadOracle;
using test::random_example;
using test::Row;
using test::TinyHead;
using test::TinyModel;
using test::TinyShape;
using ::testing::HasSubstr;

constexpr const char* kKinds[] = {"medusa", "hydra", "eagle", "eagle3"};
constexpr const char* kTrained[] = {"medusa", "hydra", "eagle", "eagle3", "draft"};
constexpr TinyShape kSmall = {.vocabulary = 29,
                              .layers = 6,
                              .dim = 32,
                              .ffn = 32,
                              .heads = 2,
                              .kv_heads = 1,
                              .head_dim = 16,
                              .sharpness = 5.0f};

std::vector<int32_t> ids_of(const TinyHead& head) {
  std::vector<int32_t> ids;
  for (size_t row = 0; row < head.d2t.size(); ++row) {
    ids.push_back(head.target_id(static_cast<int>(row)));
  }
  return ids;
}

HeadNet net_of(const TinyHead& head, const TargetTensors& target) {
  HeadNet net(head.config, target, 1, at::kDouble);
  const at::NoGradGuard no_gradients;
  for (auto& [name, value] : net.parameters()) {
    const auto& from = head.tensors.at(name);
    value.copy_(at::from_blob(const_cast<float*>(from.values.data()), from.shape, at::kFloat));
  }
  return net;
}

Row row_of(const at::Tensor& tensor) {
  const at::Tensor row = tensor.detach().contiguous();
  return {row.data_ptr<double>(), row.data_ptr<double>() + row.numel()};
}

TEST(HeadNet, AgreesWithThePapersInPlainLoops) {
  at::set_num_threads(1);
  const TinyModel tiny({.layers = 6});
  HeadTarget made_for{"tiny", "llama", 64, 6, 61, 1};
  constexpr int kTokens = 9;
  for (const char* kind : kKinds) {
    TinyHead head(kind, made_for, std::string(kind) == "eagle" ? 0 : 23);
    const TargetTensors target = as_double(read_target(tiny.source(), ids_of(head)));
    HeadNet net = net_of(head, target);
    const Example example = random_example(head.config, kTokens, 7);
    const HeadOracle oracle(head, tiny.source(), false);
    std::vector<int32_t> text;
    for (int i = 0; i < kTokens; ++i) {
      text.push_back(static_cast<int32_t>(example.tokens[i].item<int64_t>()));
    }
    std::vector<std::vector<Row>> states(kTokens);
    for (int p = 0; p < kTokens; ++p) {
      for (int64_t t = 0; t < example.states.size(0); ++t) {
        states[static_cast<size_t>(p)].push_back(row_of(example.states[t][p]));
      }
    }
    const auto logits = net.forward(example, 3);
    ASSERT_EQ(logits.size(), 3u);
    for (int k = 0; k < 3; ++k) {
      const auto first = static_cast<int>(HeadNet::first_row(example, k));
      ASSERT_EQ(logits[static_cast<size_t>(k)].size(0), kTokens - 2 - first);
      for (int row = 0; row < kTokens - 2 - first; ++row) {
        const int i = first + row - k;  // the last true state
        const auto at = text.begin() + i + 1;
        Row expected;
        if (head.config.kind == "medusa") {
          expected = oracle.medusa(row_of(example.last[i]), k);
        } else if (head.config.kind == "hydra") {
          expected = oracle.hydra(row_of(example.last[i]), {at, at + k + 1});
        } else {
          expected = oracle.eagle({states.begin(), states.begin() + i + 1},
                                  {text.begin() + 1, at + k + 1});
        }
        const Row got = row_of(logits[static_cast<size_t>(k)][row]);
        ASSERT_EQ(got.size(), expected.size());
        for (size_t c = 0; c < got.size(); ++c) {
          ASSERT_NEAR(got[c], expected[c], 1e-4) << kind << ", step " << k << ", row " << row;
        }
      }
    }
  }
}

TEST(HeadNet, GradientsAreThoseOfFiniteDifferences) {
  at::set_num_threads(1);
  const TinyModel tiny(kSmall);
  const HeadTarget made_for{"tiny", "llama", 32, 6, 29, 1};
  std::mt19937 random(3);
  for (const char* kind : kKinds) {
    for (const bool distill : {true, false}) {
      TinyHead head(kind, made_for, 17);
      const TargetTensors target = as_double(read_target(tiny.source(), ids_of(head)));
      HeadNet net = net_of(head, target);
      const Example example = random_example(head.config, 8, 11);
      LoopOptions options;
      options.unroll = 3;
      options.distill = distill;
      options.noise = 0.0;
      test::expect_gradients_of_differences(net, example, options, random);
    }
  }
}

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    at::set_num_threads(1);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    target_.tokenizer = std::make_unique<Tokenizer>(tiny_.tokenizer());
    target_.model = std::make_unique<Model>(tiny_.source(), *backend_);
    config_.data = {.prompts = {"made up"},
                    .validation = 6,
                    .max_new_tokens = 24,
                    .temperatures = {0.0, 0.5},
                    .batch = 8};
    config_.head = {.draft_vocabulary = 24, .count = 3};
    config_.loop = {.steps = 6,
                    .batch = 4,
                    .learning_rate = 4e-3,
                    .warmup = 4,
                    .unroll = 3,
                    .evaluate_every = 1000,
                    .checkpoint_every = 2,
                    .type = "q8_0"};
    for (int p = 0; p < 70; ++p) {
      Prompt prompt;
      prompt.request = static_cast<uint32_t>(p);
      for (int t = 0; t < 4 + p % 5; ++t) prompt.ids.push_back(1 + (p * 7 + t * (p % 3 + 1)) % 28);
      prompts_.push_back(prompt);
    }
  }
  ~TrainerTest() override { std::filesystem::remove_all(folder_); }

  /// Answers, states and a trainer of that kind, in a folder of that name.
  struct Run {
    TrainData data;
    std::unique_ptr<HiddenStates> train, validation;
    std::unique_ptr<Trainer> trainer;
  };
  std::unique_ptr<Run> make(const std::string& kind, const std::string& name, size_t store,
                            int threads = 1) {
    auto run = std::make_unique<Run>();
    const auto folder = folder_ / name;
    std::filesystem::create_directories(folder);
    const HeadConfig head = head_config(kind, config_, *target_.model);
    run->data.answers = answer_prompts(config_.data, prompts_, target_, *backend_, folder_);
    run->data.draft_ids = frequent_tokens(run->data.answers.train, 29, head.draft_vocabulary);
    const auto states = [&](const std::vector<TrainText>& texts) {
      return std::make_unique<HiddenStates>(*target_.model, *backend_, stored_taps(head), texts,
                                            folder, store);
    };
    run->train = states(run->data.answers.train);
    run->validation = states(run->data.answers.validation);
    run->data.train = run->train.get();
    run->data.validation = run->validation.get();
    run->trainer =
        std::make_unique<Trainer>(config_, make_net(head, tiny_.source(), run->data.draft_ids, 1),
                                  run->data, folder, threads);
    return run;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / "coppice_training_test";
  std::unique_ptr<Backend> backend_ = make_backend({.name = "cpu", .threads = 1});
  TinyModel tiny_{kSmall};
  LoadedModel target_;
  TrainConfig config_;
  std::vector<Prompt> prompts_;
};

TEST_F(TrainerTest, AResumedRunHasTheWeightsOfAnUnbrokenOne) {
  for (const char* kind : kTrained) {
    const std::string name = kind;
    auto whole = make(kind, name + "-whole", size_t{1} << 30);
    whole->trainer->run(0.0);
    make(kind, name + "-broken", 20000)->trainer->run(0.0, 4);  // most states do not fit
    auto rest = make(kind, name + "-broken", 0, 3);             // on more cores
    ASSERT_TRUE(rest->trainer->resume());
    EXPECT_EQ(rest->trainer->steps_done(), 4);
    rest->trainer->run(0.0);
    for (size_t i = 0; i < whole->trainer->net().parameters().size(); ++i) {
      const auto& [parameter, value] = whole->trainer->net().parameters()[i];
      EXPECT_TRUE(at::equal(value, rest->trainer->net().parameters()[i].second))
          << kind << " " << parameter;
    }
  }
  auto other = make("hydra", "medusa-whole", 0);
  EXPECT_THROW(other->trainer->resume(), Error);
  EXPECT_FALSE(make("hydra", "empty", 0)->trainer->resume());
}

TEST_F(TrainerTest, AHeadLearnsFromScratchAndDraftsAsItWasValidated) {
  config_.loop.steps = 160;
  for (const char* kind : kTrained) {
    auto run = make(kind, kind, size_t{1} << 30);
    // So small a model repeats itself, and its own output layer, which heads begin with, says so.
    for (auto& [name, value] : run->trainer->net().parameters()) {
      if (name == "lm_head.weight" || name == "output.weight") value.detach().normal_(0.0, 0.02);
    }
    const double before = run->trainer->evaluate().tokens_per_step();
    run->trainer->run(0.0);
    const double after = run->trainer->evaluate().tokens_per_step();
    EXPECT_GT(after, before + 0.5) << kind;

    const auto path = run->trainer->head_path();
    const bool is_model = std::string_view(kind) == "draft";
    LoadedModel draft;
    if (is_model) draft = load_draft(path, target_, *backend_);
    MethodSpec method{.method = is_model ? "draft_model" : kind, .budget = kBudgetAll};
    if (!is_model) method.options = {{"head", path.string(), "test"}};
    if (method.method == "medusa") {
      method.options.push_back({"shape", std::string("static"), "test"});
      method.options.push_back({"branching", std::vector<int64_t>{1, 1, 1}, "test"});
    } else {
      method.options.push_back({"shape", std::string("chain"), "test"});
      method.options.push_back({"draft_length", int64_t{3}, "test"});
    }
    Decoder decoder(method, target_, is_model ? &draft : nullptr, *backend_,
                    {.sequences = 6, .context = 64}, 0.0f);
    int64_t steps = 0, accepted = 0;
    decoder.engine().on_step = [&](const StepRecord& step) {
      if (step.drafted == 3) ++steps, accepted += step.accepted;
    };
    for (const TrainText& text : run->data.answers.validation) {
      Request request;
      request.prompt.assign(text.tokens.begin(), text.tokens.begin() + text.answer);
      request.stop.max_new_tokens = 24;
      decoder.engine().submit(std::move(request));
    }
    while (decoder.engine().step()) {
    }
    ASSERT_GT(steps, 10) << kind;
    const double drafted = 1.0 + static_cast<double>(accepted) / static_cast<double>(steps);
    EXPECT_NEAR(drafted, after, 0.5) << kind;
  }
}

TEST_F(TrainerTest, ALossThatIsNoNumberStopsWithItsStep) {
  auto run = make("medusa", "nan", 0);
  run->trainer->run(0.0, 2);
  run->trainer->net().parameter("lm_head.weight").detach().fill_(std::nanf(""));
  try {
    run->trainer->run(0.0);
    FAIL() << "trained on";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("at step 3"));
  }
}

TEST_F(TrainerTest, AnswersAreKeptAndBelongToTheirSettings) {
  const Answers made = answer_prompts(config_.data, prompts_, target_, *backend_, folder_);
  const auto file = folder_ / "answers-00000.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  const Answers kept = answer_prompts(config_.data, prompts_, target_, *backend_, folder_);
  EXPECT_EQ(std::filesystem::last_write_time(file), time);
  ASSERT_EQ(kept.train.size(), made.train.size());
  EXPECT_EQ(kept.train.back().tokens, made.train.back().tokens);
  EXPECT_EQ(made.validation.size(), 6u);
  config_.data.max_new_tokens = 25;
  EXPECT_THROW(answer_prompts(config_.data, prompts_, target_, *backend_, folder_), Error);
}

TEST(TrainingPrompts, TheTargetWritesSomeItselfAndTheyAreKept) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "coppice_training_prompts";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "two.jsonl") << "{\"prompt\": \"one\"}\n{\"prompt\": \"other\"}\n";
  const TinyModel tiny({.vocabulary = 260, .sharpness = 0.5f});
  const auto backend = make_backend({.name = "cpu", .threads = 1});
  Vocabulary vocabulary = test::byte_vocabulary("gpt-2");
  vocabulary.chat_template = "<|im_start|>";
  LoadedModel target;
  target.tokenizer = std::make_unique<Tokenizer>(vocabulary);
  target.model = std::make_unique<Model>(tiny.source(), *backend);
  const DataOptions options{
      .prompts = {"two.jsonl"}, .per_file = 1, .written = 60, .validation = 1, .batch = 8};
  const auto made = training_prompts(options, folder, target, *backend, folder);
  // So vague a model ends its turn (one token of 260) within 128 tokens now and then.
  EXPECT_GT(made.size(), 8u);
  EXPECT_LT(made.size(), 60u);
  const ChatTemplate chat(*target.tokenizer);
  const auto open = chat.encode({{Role::user, "A"}}), close = chat.encode({{Role::user, "B"}});
  const auto user = std::mismatch(open.begin(), open.end(), close.begin());
  int from_file = 0;
  std::set<std::vector<int32_t>> different;
  for (const Prompt& prompt : made) {
    EXPECT_TRUE(std::equal(open.begin(), user.first, prompt.ids.begin()));
    EXPECT_TRUE(
        std::equal(user.first + 1, open.end(), prompt.ids.end() - (open.end() - user.first - 1)));
    from_file += prompt.ids == chat.encode({{Role::user, "one"}});
    from_file += prompt.ids == chat.encode({{Role::user, "other"}});
    different.insert(prompt.ids);
  }
  EXPECT_EQ(from_file, 1);
  EXPECT_EQ(different.size(), made.size());
  const auto file = folder / "prompts-00000.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  const auto again = training_prompts(options, folder, target, *backend, folder);
  EXPECT_EQ(std::filesystem::last_write_time(file), time);
  ASSERT_EQ(again.size(), made.size());
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(again[i].ids, made[i].ids);
  std::filesystem::remove_all(folder);
}

TEST(TrainingDevice, WhatIsNotHereIsRefusedWithARemedy) {
  EXPECT_TRUE(training_device("cpu").is_cpu());
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is a device";
  try {
    training_device("cuda");
    FAIL() << "found a device";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--device cuda: "));
    EXPECT_THAT(error.what(), HasSubstr("install"));
  }
}

TEST(TrainConfig, UnknownTablesAndKeysAreRefused) {
  const auto path = std::filesystem::path(testing::TempDir()) / "train.toml";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_train_config(path);
  };
  const TrainConfig config = read("[data]\nprompts = [\"a.jsonl\"]\n[train]\nsteps = 7\n");
  EXPECT_EQ(config.loop.steps, 7);
  EXPECT_THROW(read("[data]\nprompts = [\"a.jsonl\"]\n[trian]\nsteps = 7\n"), Error);
  EXPECT_THROW(read("[data]\nprompts = [\"a.jsonl\"]\nstep = 7\n"), Error);
  EXPECT_THROW(read("[train]\nsteps = 7\n"), Error);
  std::filesystem::remove(path);
}

std::vector<float> dequantised(DType type, const std::vector<std::byte>& bytes, int64_t cols) {
  std::vector<float> values(static_cast<size_t>(cols));
  EXPECT_EQ(TensorView({type, bytes.data(), 1, cols}).bytes(), bytes.size());
  dequantise_row({type, bytes.data(), 1, cols}, 0, values);
  return values;
}

TEST(Quantise, RoundsWithinHalfAStepAndKeepsWhatItCanHold) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(320);
  for (float& value : values) value = normal(random);
  std::fill_n(values.begin() + 32, 32, 0.0f);
  std::fill_n(values.begin() + 64, 32, -1.5f);
  for (size_t i = 0; i < 32; ++i) values[96 + i] = 0.25f * static_cast<float>(i % 16) - 2.0f;
  const auto eight = dequantised(DType::q8_0, to_q8_0(values), 320);
  const auto four = dequantised(DType::q4_1, to_q4_1(values), 320);
  for (size_t block = 0; block < 10; ++block) {
    const std::span<const float> here = std::span(values).subspan(block * 32, 32);
    const auto [least, most] = std::minmax_element(here.begin(), here.end());
    const float largest = std::max(-*least, *most), step = (*most - *least) / 15.0f;
    double squares = 0.0;
    for (size_t i = block * 32; i < block * 32 + 32; ++i) {
      EXPECT_NEAR(eight[i], values[i], 0.51f * largest / 127.0f) << i;
      squares += (four[i] - values[i]) * (four[i] - values[i]);
    }
    // Evenly spread within half a step, the error of a plain minimum and maximum would be this.
    EXPECT_LE(squares / 32.0, 1.2 * step * step / 12.0 + 1e-9) << block;
  }
  for (size_t i = 32; i < 128; ++i) EXPECT_EQ(four[i], values[i]) << i;
}

}  // namespace
}  // namespace coppice
