// The CUDA backend's host side on the fake runtime: what it says where there is no device it can
// use, that no call goes unchecked, staging of host memory, and graphs of lists that come again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "core/model.h"
#include "kernels/base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host/runtime.h"
#include "kernels/cuda/launch.cuh"
#include "tests/scratch.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using cuda::host::fake_device;
using cuda::host::FakeDevice;
using test::error_line_of;
using testing::HasSubstr;

class CudaRuntime : public testing::Test {
 protected:
  ~CudaRuntime() override { fake_device() = FakeDevice(); }
  static std::unique_ptr<Backend> make() { return emulated_cuda_entry().make({.target = "exact"}); }

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
  EXPECT_THAT(error_line_of(make), HasSubstr("no NVIDIA driver is installed"));
  EXPECT_TRUE(emulated_cuda_entry().targets().empty());
  fake_device().driver_version = 11080;
  EXPECT_THAT(error_line_of(make), HasSubstr("the driver knows CUDA 11.8, this build needs 13.0"));
  fake_device() = FakeDevice();
  fake_device().devices = 0;
  EXPECT_THAT(error_line_of(make), HasSubstr("the driver finds no device"));
  fake_device() = FakeDevice();
  fake_device().major = 7, fake_device().minor = 5;
  EXPECT_THAT(error_line_of(make),
              HasSubstr("has compute capability 7.5; this needs 8.0 or later"));
  fake_device() = FakeDevice();
  EXPECT_EQ(emulated_cuda_entry().targets().size(), 2u);
  EXPECT_THAT(make()->describe(), HasSubstr("exact, emulated on the host (sm_90), CUDA 13.0"));
}

TEST_F(CudaRuntime, OutOfMemoryNamesWhatHadNoRoom) {
  const auto backend = make();
  fake_device().memory = 4096;
  EXPECT_THAT(error_line_of([&] { backend->allocate(1 << 20); }),
              HasSubstr("no room for 1.0 MB of activations and cache"));
  const test::TinyModel tiny({.layers = 1});
  EXPECT_THAT(error_line_of([&] { Model model(tiny.source(), *backend); }),
              HasSubstr("no room for"));
  EXPECT_EQ(fake_device().used, 0u);  // what was taken before is given back
}

TEST_F(CudaRuntime, NoCallGoesUnchecked) {
  const auto all = [] {
    const auto backend = make();
    const Buffer buffer = backend->allocate(64);
    Lists lists;
    float value = 0.0f;
    int32_t index = 0;
    auto ops = lists.ops();
    ops.push_back(TopK{lists.out.data(), 16, 1, 16, 1, &index, &value});
    ops.push_back(AddNorm{lists.y.data(), lists.weight.data(), 0.0f, 2, 8, lists.out.data()});
    for (int i = 0; i < 3; ++i) backend->run(ops);  // launches, a capture, a graph
    return fake_device().calls;                     // destructors cannot report a failure
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

// What no fake shows, a call that stands alone: each is an argument of check(), compared, or
// discarded on purpose, as destructors do.
TEST_F(CudaRuntime, NoCallStandsAlone) {
  namespace fs = std::filesystem;
  const std::regex call(R"((\S*)\s*\b((cuda|cub::)[A-Z][A-Za-z:]*)\()");
  int calls = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(COPPICE_SOURCE_DIR) / "kernels/cuda")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path());
    std::string before, line;
    for (; std::getline(in, line); before = line) {
      const std::string text = before + " " + line;
      for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it) {
        if (it->position(2) <= static_cast<std::ptrdiff_t>(before.size())) continue;
        if ((*it)[2] == "cudaGetErrorString") continue;
        const std::string head = (*it)[1];
        ++calls;
        EXPECT_TRUE(head.ends_with("check(") || head.ends_with("static_cast<void>(") ||
                    head.ends_with("=") || head.ends_with("(") || head.ends_with("//"))
            << entry.path().filename() << ": " << line;
      }
    }
  }
  EXPECT_GT(calls, 40);
}

// Streams that no event orders: in a graph any order may come, and a branch that nobody waits for
// is no graph.
TEST_F(CudaRuntime, BranchesOfAGraphRunInAnyOrderAndMustBeJoined) {
  const auto set = [](int* at, int value, cuda::Stream stream) {
    cuda::host::enqueue(stream, [=] { *at = value; });
  };
  for (const bool joined : {true, false}) {
    cuda::OwnStream trunk, side;
    cudaEvent_t event = nullptr;
    cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    int last = 0;
    cuda::check(cudaStreamBeginCapture(trunk.get(), cudaStreamCaptureModeThreadLocal), "capture");
    cuda::check(cudaEventRecord(event, trunk.get()), "fork");
    cuda::check(cudaStreamWaitEvent(side.get(), event, 0), "fork");
    set(&last, 1, {side.get()});
    set(&last, 2, {trunk.get()});
    if (joined) {
      cuda::check(cudaEventRecord(event, side.get()), "join");
      cuda::check(cudaStreamWaitEvent(trunk.get(), event, 0), "join");
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(trunk.get(), &graph);
    EXPECT_EQ(status, joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    cuda::check(cudaEventDestroy(event), "an event");
    if (!joined) continue;
    cudaGraphExec_t executable = nullptr;
    cuda::check(cudaGraphInstantiate(&executable, graph, 0), "graph");
    cuda::check(cudaGraphDestroy(graph), "graph");
    int seen[3] = {};
    for (int i = 0; i < 40; ++i) {
      cuda::check(cudaGraphLaunch(executable, trunk.get()), "graph");
      ++seen[last];
    }
    cuda::check(cudaGraphExecDestroy(executable), "graph");
    EXPECT_GT(seen[1], 5);
    EXPECT_GT(seen[2], 5);
  }
}

// Taps and likeliest tokens are taken beside the ops that go on; what these change must wait.
TEST_F(CudaRuntime, WhatDraftersReadIsTakenBesideTheStep) {
  const auto backend = make();
  const std::vector<float> weight(8, 1.0f), y(8, 3.0f);
  std::vector<float> x(8), first(8), second(8);
  float value = 0.0f;
  int32_t index = -1;
  for (int run = 0; run < 40; ++run) {
    x.assign(8, static_cast<float>(run));
    x[5] += 0.5f;
    const AddNorm add{y.data(), weight.data(), 0.0f, 1, 8, x.data()};  // x += 1
    const Op ops[] = {
        Copy{x.data(), 8, 1, 8, first.data(), 8},   add, Copy{x.data(), 8, 1, 8, second.data(), 8},
        TopK{x.data(), 8, 1, 8, 1, &index, &value}, add, add};
    backend->run(ops);
    EXPECT_EQ(first[0], static_cast<float>(run));
    EXPECT_EQ(second[0], run + 1.0f);
    EXPECT_EQ(index, 5);
    EXPECT_EQ(value, run + 1.5f);
    EXPECT_EQ(x[0], run + 3.0f);
  }
  EXPECT_GT(fake_device().graph_launches, 20);
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
