// Tensor parallel over emulated devices, one a thread: the stub communicator moves the real data
// between them. All ranks decode the same text, the reference's within tolerance, and a rank's
// share is the right one.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>

#include "core/shard.h"
#include "kernels/base/error.h"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host/runtime.h"
#include "tests/cuda_decode.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::CudaModel;
using test::TinyModel;

/// What the ranks of a group share.
struct Meeting {
  explicit Meeting(int ranks) : barrier(ranks), own(static_cast<size_t>(ranks)) {}
  std::barrier<> barrier;
  std::vector<const float*> own;
};

class StubCommunicator final : public cuda::Communicator {
 public:
  StubCommunicator(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(meeting_.own.size()); }
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
      meeting_.barrier.arrive_and_wait();
    });
  }

 private:
  template <class Take>
  void meet(const float* own, const Take& take) {
    meeting_.own[static_cast<size_t>(rank_)] = own;
    meeting_.barrier.arrive_and_wait();
    for (size_t rank = 0; rank < meeting_.own.size(); ++rank) take(rank, meeting_.own[rank]);
    meeting_.barrier.arrive_and_wait();
  }

  Meeting& meeting_;
  int rank_;
};

struct RankResult {
  std::vector<float> logits, by_seven;
  std::vector<std::vector<int32_t>> baseline, drafted;
  std::string name;
  std::string error;
};

std::vector<RankResult> run_group(const ModelSource& whole, const Tokenizer& tokenizer, int ranks,
                                  const std::string& target, std::span<const int32_t> text) {
  Meeting meeting(ranks);
  std::vector<RankResult> results(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankResult& result = results[static_cast<size_t>(rank)];
      try {
        const auto backend = cuda::make_parallel_cuda(
            {.target = target}, std::make_unique<StubCommunicator>(meeting, rank));
        const Shard shard(whole, rank, ranks);
        const CudaModel model(shard.source(), *backend, tokenizer);
        result.name = backend->describe();
        result.logits = test::logits_of(model, text, 40);
        result.by_seven = test::logits_of(model, text, 7);
        result.baseline = test::decode(model, {.rule = "coupled", .temperature = 1.0f});
        result.drafted = test::decode(
            model, {.method = "prompt_lookup", .rule = "coupled", .temperature = 1.0f});
      } catch (const std::exception& error) {
        result.error = error.what();
        meeting.barrier.arrive_and_drop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(CudaParallel, RanksAgreeBitForBitAndWithTheReference) {
  for (const bool gemma : {false, true}) {
    const TinyModel tiny({.layers = 2, .ffn = 128, .gemma_like = gemma, .sharpness = 4.0f});
    const Tokenizer tokenizer = tiny.tokenizer();
    std::vector<int32_t> text;
    for (int i = 0; i < 24; ++i) text.push_back((i * i + 5 * i) % 57);
    const auto reference = make_backend({.name = "reference", .threads = 1});
    const CudaModel oracle(tiny.source(), *reference, tokenizer);
    const std::vector<float> expected = test::logits_of(oracle, text, 24);
    for (const std::string target : {"exact", "fast"}) {
      const auto ranks = run_group(tiny.source(), tokenizer, 2, target, text);
      for (const RankResult& rank : ranks) {
        ASSERT_EQ(rank.error, "");
        EXPECT_EQ(rank.logits, ranks[0].logits);
        EXPECT_EQ(rank.by_seven, rank.logits);  // the stub adds in rank order in both modes
        EXPECT_EQ(rank.drafted, rank.baseline);
        EXPECT_EQ(rank.baseline, ranks[0].baseline);
        double worst = 0.0;
        for (size_t i = 0; i < expected.size(); ++i) {
          worst = std::max(worst, std::abs(double{expected[i]} - rank.logits[i]));
        }
        EXPECT_LT(worst, 0.02);
      }
      EXPECT_NE(ranks[1].name.find("rank 1 of 2"), std::string::npos) << ranks[1].name;
    }
  }
}

TEST(CudaParallel, SharesThatAreNotEvenAreRefused) {
  const TinyModel tiny({});
  EXPECT_THROW(Shard(tiny.source(), 0, 3), Error);
  const TinyModel blocks({.ffn = 96, .type = DType::q8_0});  // 48 columns: a block and a half
  EXPECT_THROW(Shard(blocks.source(), 0, 2), Error);
  EXPECT_THROW(cuda::nccl_communicator({}), Error);  // no NCCL in emulation
}

}  // namespace
}  // namespace coppice
