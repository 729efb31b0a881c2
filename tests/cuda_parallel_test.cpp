// Several emulated devices as one backend: the stub communicators move the real data between them.
// Text and logits are those of one device's model, methods give the baseline's text, a device that
// fails ends the step in one line, and what cannot be shared out is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/host/runtime.h"
#include "tests/cuda_decode.h"
#include "tests/scratch.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using cuda::host::fake_device;
using cuda::host::FakeDevice;
using test::CudaModel;
using test::decode;
using test::Decoding;
using test::error_line_of;
using test::TinyModel;
using testing::HasSubstr;

/// What the devices of a group share.
struct Meeting {
  explicit Meeting(int ranks) : barrier(ranks), own(static_cast<size_t>(ranks)) {}
  std::barrier<> barrier;
  std::vector<const float*> own;
  std::atomic<bool> someone_left = false;
};

class StubCommunicator final : public cuda::Communicator {
 public:
  StubCommunicator(std::shared_ptr<Meeting> meeting, int rank, int ranks)
      : Communicator(rank, ranks), meeting_(std::move(meeting)) {}
  void all_gather(const float* own, float* all, size_t count, cuda::Stream stream) override {
    cuda::host::enqueue(stream, [=, this] {
      meet(own, [&](size_t rank, const float* part) {
        std::memcpy(all + rank * count, part, count * sizeof(float));
      });
    });
  }
  void all_reduce(float* own, size_t count, cuda::Stream stream) override {
    cuda::host::enqueue(stream, [=, this] {
      std::vector<float> sum(count, 0.0f);
      meet(own, [&](size_t, const float* part) {
        for (size_t i = 0; i < count; ++i) sum[i] += part[i];
      });
      std::memcpy(own, sum.data(), count * sizeof(float));
      arrive();
    });
  }
  void wait(cuda::Stream stream) override {
    cuda::check(cudaStreamSynchronize(stream), "running a step");
  }
  void leave() override {
    if (std::exchange(left_, true)) return;
    meeting_->someone_left = true;
    meeting_->barrier.arrive_and_drop();
  }

 private:
  void arrive() {
    meeting_->barrier.arrive_and_wait();
    if (meeting_->someone_left) throw Failure("another device has failed");
  }
  template <class Take>
  void meet(const float* own, const Take& take) {
    meeting_->own[static_cast<size_t>(rank())] = own;
    arrive();
    for (size_t rank = 0; rank < meeting_->own.size(); ++rank) take(rank, meeting_->own[rank]);
    arrive();
  }

  std::shared_ptr<Meeting> meeting_;
  bool left_ = false;
};

class CudaParallel : public testing::Test {
 protected:
  CudaParallel() { fake_device(0).devices = 4; }
  ~CudaParallel() override {
    for (int i = 0; i < 4; ++i) fake_device(i) = FakeDevice();
    std::filesystem::remove(store_);
  }

  static std::unique_ptr<Backend> make_group(int ranks, bool exact = true) {
    const auto meeting = std::make_shared<Meeting>(ranks);
    cuda::Communicators group;
    for (int rank = 0; rank < ranks; ++rank) {
      group.push_back(std::make_unique<StubCommunicator>(meeting, rank, ranks));
    }
    return cuda::make_group(exact, std::move(group));
  }

  static std::vector<int32_t> some_text() {
    std::vector<int32_t> text;
    for (int i = 0; i < 24; ++i) text.push_back((i * i + 5 * i) % 57);
    return text;
  }

  const TinyModel tiny_{{.layers = 2, .ffn = 128, .type = DType::q8_0, .sharpness = 4.0f}};
  const TinyModel other_{{.layers = 1, .type = DType::q8_0, .sharpness = 4.0f, .seed = 3}};
  const Tokenizer tokenizer_ = tiny_.tokenizer();
  const std::filesystem::path store_ = std::filesystem::path(testing::TempDir()) /
                                       ("cuda_parallel-" + std::to_string(::getpid()) + ".store");
};

TEST_F(CudaParallel, LogitsAreTheReferencesAndDoNotDependOnTheRows) {
  struct Case {
    test::TinyShape shape;
    int ranks;
  };
  for (const Case& each :
       {Case{{.layers = 2, .ffn = 128, .gemma_like = true, .sharpness = 4.0f}, 2},
        Case{{.layers = 2, .ffn = 128, .kv_heads = 4, .biases = true, .sharpness = 4.0f}, 4}}) {
    const TinyModel tiny(each.shape);
    const Tokenizer tokenizer = tiny.tokenizer();
    const std::vector<int32_t> text = some_text();
    const auto reference = make_backend({.name = "reference", .threads = 1});
    const CudaModel oracle(tiny.source(), *reference, tokenizer);
    const std::vector<float> expected = test::logits_of(oracle, text, 24);
    for (const bool exact : {true, false}) {
      const auto group = make_group(each.ranks, exact);
      EXPECT_THAT(group->describe(), HasSubstr(fmt::format(", {} devices", each.ranks)));
      const CudaModel model(tiny.source(), *group, tokenizer);
      const std::vector<float> logits = test::logits_of(model, text, 40);
      EXPECT_EQ(test::logits_of(model, text, 7), logits);  // the stub adds in order in both modes
      double worst = 0.0;
      for (size_t i = 0; i < expected.size(); ++i) {
        worst = std::max(worst, std::abs(double{expected[i]} - logits[i]));
      }
      EXPECT_LT(worst, 0.02);
    }
  }
}

TEST_F(CudaParallel, EveryMethodGivesTheBaselinesText) {
  const auto group = make_group(2);
  const CudaModel target(tiny_.source(), *group, tokenizer_);
  const Model draft(other_.source(), *group, 0, Devices::first);
  Decoding how{.rule = "coupled", .temperature = 1.0f, .tokens = 5, .prompt = 7};
  how.draft = &draft;
  const auto expected = decode(target, how);
  for (const MethodEntry& method : methods()) {
    how.method = method.name;
    const OptionMap options = test::options_for(how.method, target, store_);
    EXPECT_EQ(decode(target, how, options), expected) << method.name;
  }
  // The sums of one device may round otherwise; a clear choice stays.
  const auto alone = emulated_cuda_entry().make({.target = "exact"});
  const CudaModel single(tiny_.source(), *alone, tokenizer_);
  how = {.tokens = 5, .prompt = 7};
  EXPECT_EQ(decode(single, how), decode(target, how));
}

// NCCL wants a sum in a graph on every device or on none; drafts and what is behind the last sum
// are the first device's alone.
TEST_F(CudaParallel, DevicesMakeGraphsAlikeAndTheFirstAloneDoesTheRest) {
  const auto group = make_group(2);
  const CudaModel target(tiny_.source(), *group, tokenizer_);
  const size_t before = fake_device(1).used;
  const Model draft(other_.source(), *group, 0, Devices::first);
  EXPECT_EQ(fake_device(1).used, before);
  decode(target, {.method = "draft_model", .tokens = 12, .draft = &draft});
  EXPECT_GT(fake_device(0).graph_launches, 5);
  EXPECT_EQ(fake_device(1).graph_launches, fake_device(0).graph_launches);
  EXPECT_LT(fake_device(1).launches, fake_device(0).launches);
  EXPECT_EQ(fake_device(1).copied_to_host, 0u);
}

TEST_F(CudaParallel, WhicheverCallFailsOnWhicheverDeviceTheStepEndsInOneLine) {
  const TinyModel tiny({.layers = 1, .ffn = 128, .type = DType::q8_0});
  const Tokenizer tokenizer = tiny.tokenizer();
  const std::vector<int32_t> text = {3, 1, 4, 1};
  const auto all = [&] {
    const auto group = make_group(2);
    const CudaModel model(tiny.source(), *group, tokenizer);
    test::logits_of(model, text, 1);                                // launches, captures, graphs
    return std::array{fake_device(0).calls, fake_device(1).calls};  // without the destructors'
  };
  const auto calls = all();
  for (const int at : {0, 1}) {
    EXPECT_GT(calls[static_cast<size_t>(at)], 20);
    for (int call = 1; call <= calls[static_cast<size_t>(at)]; ++call) {
      for (int i = 0; i < 2; ++i) fake_device(i) = FakeDevice();
      fake_device(0).devices = 2;
      fake_device(at).fail_at = call;
      int reached = 0;
      const std::string message = error_line_of([&] { reached = all()[static_cast<size_t>(at)]; });
      if (reached > 0) {
        EXPECT_LT(reached, call);  // where the host's tables lie decides what is captured
      } else {
        EXPECT_THAT(message, HasSubstr(at == 0 ? "cuda: " : "device 1: cuda: ")) << call;
      }
      EXPECT_EQ(fake_device(0).used + fake_device(1).used, 0u) << call;
    }
  }
}

TEST_F(CudaParallel, OutOfMemoryNamesTheDevice) {
  const TinyModel tiny({.layers = 1, .ffn = 128, .kv_heads = 4});
  const Tokenizer tokenizer = tiny.tokenizer();
  size_t of_weights = 0;
  const auto all = [&] {
    const auto group = make_group(4);
    const CudaModel model(tiny.source(), *group, tokenizer);
    of_weights = fake_device(2).used;
    test::logits_of(model, some_text(), 24);
  };
  EXPECT_EQ(error_line_of(all), "no error");
  fake_device(2).memory = of_weights - 1;
  EXPECT_THAT(error_line_of(all), HasSubstr("device 2: cuda: no room for"));
  fake_device(2).memory = of_weights + 1024;
  EXPECT_THAT(error_line_of(all), HasSubstr("device 2: cuda: no room for"));
}

TEST_F(CudaParallel, SharesThatAreNotEvenAreRefusedWithThoseThatAre) {
  const auto group = make_group(2);
  const TinyModel odd({.ffn = 96, .heads = 9, .kv_heads = 3});
  EXPECT_EQ(error_line_of([&] { Model(odd.source(), *group); }),
            "tiny: 9 heads, 3 KV heads and 96 inner values, in blocks of 1, cannot be shared by 2 "
            "devices; give --ranks 1 or 3");
  const TinyModel blocks({.ffn = 96, .type = DType::q8_0});  // 48 columns: a block and a half
  EXPECT_THAT(error_line_of([&] { Model(blocks.source(), *group); }), HasSubstr("give --ranks 1"));
}

TEST_F(CudaParallel, GroupsThatCannotBeAreRefusedInOneLine) {
  const auto make = [](int ranks) {
    emulated_cuda_entry().make({.target = "exact", .ranks = ranks});
  };
  EXPECT_EQ(error_line_of([&] { make(6); }),
            "backend cuda_emulated: --ranks 6 of 4 devices; give --ranks 4");
  EXPECT_EQ(error_line_of([&] { make(2); }),
            "--ranks 2: this build has no NCCL; install it, then configure anew");
  for (const std::string name : {"cpu", "reference"}) {
    EXPECT_EQ(error_line_of([&] { make_backend({.name = name, .ranks = 2}); }),
              fmt::format("--ranks 2: backend {} runs on one device; add --backend cuda", name));
  }
}

}  // namespace
}  // namespace coppice
