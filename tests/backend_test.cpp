// The list of backends: choice by name and target, and what a wrong choice is told.
#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/backend_cases.h"

namespace coppice::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Backends, AreDistinctAndHaveATarget) {
  for (const BackendEntry& entry : backends()) {
    EXPECT_FALSE(entry.summary.empty());
    EXPECT_TRUE(!entry.targets().empty() || entry.name == "cuda") << entry.name;
    const auto same = [&](const BackendEntry& other) { return other.name == entry.name; };
    EXPECT_EQ(std::count_if(backends().begin(), backends().end(), same), 1) << entry.name;
  }
}

TEST(Backends, DescribeNamesTargetAndThreads) {
  for (const BackendCase& each : backend_cases()) {
    if (each.backend == "cuda") continue;  // which has no threads
    const auto backend = make_backend({each.backend, 3, each.target});
    EXPECT_EQ(backend->describe(), each.backend + " " + each.target + ", 3 threads");
  }
}

TEST(Backends, BestTargetAndAllCoresAreTheDefault) {
  for (const BackendEntry& entry : backends()) {
    if (entry.targets().empty()) continue;  // a device that is not here
    const auto backend = make_backend({.name = std::string(entry.name), .threads = 0});
    EXPECT_THAT(backend->describe(),
                testing::StartsWith(fmt::format("{} {}, ", entry.name, entry.targets().front())));
    EXPECT_THAT(backend->describe(), testing::Not(HasSubstr(" 0 threads")));
  }
}

TEST(Backends, WrongChoicesNameTheRightOnes) {
  EXPECT_THAT([] { make_backend({.name = "gpu"}); },
              ThrowsMessage<Error>(testing::AllOf(HasSubstr("'gpu'"), HasSubstr("reference"))));
  EXPECT_THAT([] { make_backend({.name = "reference", .target = "mmx"}); },
              ThrowsMessage<Error>(testing::AllOf(HasSubstr("'mmx'"), HasSubstr("baseline"))));
  for (int threads : {-1, 1000000}) {
    EXPECT_THAT([threads] { make_backend({.name = "reference", .threads = threads}); },
                ThrowsMessage<Error>(HasSubstr(fmt::format("threads = {}", threads))));
  }
}

TEST(HostMemory, IsAlignedAndZeroed) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{100001}}) {
    const Buffer buffer = allocate_host(bytes);
    EXPECT_EQ(buffer.bytes, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data.get()) % 64, 0u);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.data.get()[i], std::byte{0});
  }
}

TEST(HostMemory, MoreThanAddressesIsAFailure) {
  EXPECT_THROW(allocate_host(SIZE_MAX), Failure);
}

}  // namespace
}  // namespace coppice::test
