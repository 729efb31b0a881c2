// The CUDA backend's host side on the fake runtime: what it says where there is no device it can
// use, that no call goes unchecked, staging of host memory, and graphs of lists that come again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model.h"
#include "kernels/base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host/runtime.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using cuda::host::fake_device;
using cuda::host::FakeDevice;
using testing::HasSubstr;

class CudaRuntime : public testing::Test {
 protected:
  ~CudaRuntime() override { fake_device() = FakeDevice(); }
  static std::unique_ptr<Backend> make() { return emulated_cuda_entry().make({.target = "exact"}); }

  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }

  /// x += y by two ops over host memory that overlap: the second reads what the first wrote.
  struct Lists {
    std::vector<float> x = std::vector<float>(24, 1.0f);
    std::vector<float> weight = std::vector<float>(8, 2.0f);
    std::vector<float> y = std::vector<float>(24, 4.0f);
    std::vector<float> out = std::vector<float>(16, -1.0f);
    std::vector<Op> ops() {
      return {AddNorm{y.data(), weight.data(), 0.0f, 3, 8, x.data()},
              Copy{x.data() + 8, 8, 2, 8, out.data(), 8}};
    }
  };
};

TEST_F(CudaRuntime, OneLineSaysWhyThereIsNoDevice) {
  fake_device().driver_version = 0;
  EXPECT_THAT(message_of(make), HasSubstr("no NVIDIA driver is installed"));
  EXPECT_TRUE(emulated_cuda_entry().targets().empty());
  fake_device().driver_version = 11080;
  EXPECT_THAT(message_of(make), HasSubstr("the driver knows CUDA 11.8, this build needs 13.0"));
  fake_device() = FakeDevice();
  fake_device().devices = 0;
  EXPECT_THAT(message_of(make), HasSubstr("the driver finds no device"));
  fake_device() = FakeDevice();
  fake_device().major = 7, fake_device().minor = 5;
  EXPECT_THAT(message_of(make), HasSubstr("has compute capability 7.5; this needs 8.0 or later"));
  fake_device() = FakeDevice();
  EXPECT_EQ(emulated_cuda_entry().targets().size(), 2u);
  EXPECT_THAT(make()->describe(), HasSubstr("exact, emulated on the host (sm_90), CUDA 13.0"));
}

TEST_F(CudaRuntime, OutOfMemoryNamesWhatHadNoRoom) {
  const auto backend = make();
  fake_device().memory = 4096;
  EXPECT_THAT(message_of([&] { backend->allocate(1 << 20); }),
              HasSubstr("no room for 1.0 MB of activations and cache"));
  const test::TinyModel tiny({.layers = 1});
  EXPECT_THAT(message_of([&] { Model model(tiny.source(), *backend); }), HasSubstr("no room for"));
  EXPECT_EQ(fake_device().used, 0u);  // what was taken before is given back
}

TEST_F(CudaRuntime, NoCallGoesUnchecked) {
  const auto all = [] {
    const auto backend = make();
    const Buffer buffer = backend->allocate(64);
    Lists lists;
    for (int i = 0; i < 3; ++i) backend->run(lists.ops());  // launches, a capture, a graph
    return fake_device().calls;                             // destructors cannot report a failure
  };
  fake_device() = FakeDevice();
  const int calls = all();
  EXPECT_GT(calls, 20);
  for (int at = 1; at <= calls; ++at) {
    fake_device() = FakeDevice();
    fake_device().fail_at = at;
    EXPECT_THROW(all(), std::runtime_error) << "call " << at;
    EXPECT_EQ(fake_device().used, 0u) << "call " << at;
  }
}

TEST_F(CudaRuntime, HostMemoryIsBroughtInAndBackAsOneRegionWhereItOverlaps) {
  const auto backend = make();
  Lists lists;
  backend->run(lists.ops());
  // RMS norm of equal values is one, times 2, added to 1.
  EXPECT_EQ(lists.x, std::vector<float>(24, 3.0f));
  EXPECT_EQ(lists.out, std::vector<float>(16, 3.0f));
  EXPECT_EQ(lists.y, std::vector<float>(24, 4.0f));
  EXPECT_EQ(fake_device().waits, 1);
}

TEST_F(CudaRuntime, AListThatComesAgainIsOneGraph) {
  const auto backend = make();
  Lists lists;
  for (int i = 0; i < 3; ++i) {
    std::fill(lists.x.begin(), lists.x.end(), 1.0f * i);
    const int launches = fake_device().launches;
    backend->run(lists.ops());
    EXPECT_EQ(fake_device().launches - launches, 2);
    EXPECT_EQ(lists.out, std::vector<float>(16, i + 2.0f));
    EXPECT_EQ(fake_device().graph_launches, i);
  }
  Lists other;
  other.weight.assign(8, 5.0f);
  auto ops = other.ops();
  std::get<Copy>(ops[1]).dim = 7;  // another list, though of the same shape
  backend->run(ops);
  EXPECT_EQ(fake_device().graph_launches, 2);
  EXPECT_EQ(other.out[6], 6.0f);
  EXPECT_EQ(other.out[7], -1.0f);
}

TEST_F(CudaRuntime, MovesAreLeftUnderWayAndAnEmptyListWaits) {
  const auto backend = make();
  const size_t bytes = kv_page_bytes(1, 8);
  const Buffer pages = backend->allocate(bytes);
  const std::vector<int32_t> from = {5}, to = {2};
  const Op move[] = {MoveKv{{pages.as<std::byte>(), bytes, 1, 8}, 1, from.data(), to.data()}};
  const int waits = fake_device().waits;
  backend->run(move);
  EXPECT_EQ(fake_device().waits, waits);
  backend->run({});
  EXPECT_EQ(fake_device().waits, waits + 1);
}

}  // namespace
}  // namespace coppice
