// Fibers for the emulator's threads: stacks that are kept from launch to launch, and the switches
// between them, which the address sanitizer must be told of.
//
//   Fiber fiber(stacks.take(), [&] { ...; fiber.leave(); ... });   // leave: back to whoever
//   entered fiber.enter();                                                 // runs until it leaves
//   or ends
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define COPPICE_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COPPICE_ASAN_FIBERS 1
#endif
#endif
#if defined(COPPICE_ASAN_FIBERS)
#include <sanitizer/common_interface_defs.h>
#endif

namespace coppice::cuda {
inline namespace emulated {
namespace emulator {

/// Stacks with a guard page each.
class Stacks {
 public:
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() {
    for (auto& stack : stacks_) allocator_.deallocate(stack);
  }
  const boost::context::stack_context& at(size_t i) {
    while (stacks_.size() <= i) stacks_.push_back(allocator_.allocate());
    return stacks_[i];
  }

 private:
#if defined(COPPICE_ASAN_FIBERS)
  static constexpr size_t kBytes = 256 << 10;
#else
  static constexpr size_t kBytes = 64 << 10;
#endif
  boost::context::protected_fixedsize_stack allocator_{kBytes};
  std::vector<boost::context::stack_context> stacks_;
};

class Fiber {
 public:
  /// `body` must not throw; the stack is the caller's and lives longer.
  Fiber(const boost::context::stack_context& stack, std::function<void()> body)
      : stack_(stack), body_(std::move(body)) {
    const boost::context::preallocated memory(stack.sp, stack.size, stack);
    inside_ = boost::context::fiber(std::allocator_arg, memory, Borrowed{},
                                    [this](boost::context::fiber&& outside) {
                                      outside_ = std::move(outside);
                                      finish_switch(nullptr, &outside_bottom_, &outside_bytes_);
                                      body_();
                                      start_switch(nullptr, outside_bottom_, outside_bytes_);
                                      return std::move(outside_);
                                    });
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void enter() {
    void* own = nullptr;
    start_switch(&own, static_cast<std::byte*>(stack_.sp) - stack_.size, stack_.size);
    inside_ = std::move(inside_).resume();
    finish_switch(own, nullptr, nullptr);
  }
  void leave() {
    void* own = nullptr;
    start_switch(&own, outside_bottom_, outside_bytes_);
    outside_ = std::move(outside_).resume();
    finish_switch(own, &outside_bottom_, &outside_bytes_);
  }

 private:
  struct Borrowed {  // a stack allocator that owns nothing
    boost::context::stack_context allocate() { return {}; }
    void deallocate(boost::context::stack_context&) {}
  };
  // `bottom` null at the end of a fiber's life in start_switch's first argument: its fake stack
  // goes.
  static void start_switch([[maybe_unused]] void** own, [[maybe_unused]] const void* bottom,
                           [[maybe_unused]] size_t bytes) {
#if defined(COPPICE_ASAN_FIBERS)
    __sanitizer_start_switch_fiber(own, bottom, bytes);
#endif
  }
  static void finish_switch([[maybe_unused]] void* own, [[maybe_unused]] const void** bottom,
                            [[maybe_unused]] size_t* bytes) {
#if defined(COPPICE_ASAN_FIBERS)
    __sanitizer_finish_switch_fiber(own, bottom, bytes);
#endif
  }

  boost::context::stack_context stack_;
  std::function<void()> body_;
  boost::context::fiber inside_, outside_;
  const void* outside_bottom_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace emulator
}  // namespace emulated
}  // namespace coppice::cuda
