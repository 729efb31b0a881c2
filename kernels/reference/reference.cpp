// The reference backend behind kernels/backend.h; its ops are in ops.h.
//
//   make_backend({.name = "reference", .target = "baseline"})
#include "kernels/reference/reference.h"

#include "kernels/base/error.h"
#include "kernels/reference/ops.h"

namespace coppice {
namespace reference {
namespace {

struct Target {
  std::string_view name;
  bool (*usable)();
  const Arithmetic& (*arithmetic)();
};

constexpr Target kTargets[] = {
#if defined(__x86_64__)
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
     avx2_arithmetic},
#endif
    {"baseline", [] { return true; }, baseline_arithmetic},
};

std::vector<std::string_view> usable_targets() {
  std::vector<std::string_view> names;
  for (const Target& target : kTargets) {
    if (target.usable()) names.push_back(target.name);
  }
  return names;
}

class ReferenceBackend : public Backend {
 public:
  ReferenceBackend(const Target& target, int threads)
      : target_(target), workspace_(threads, target.arithmetic()) {}

  std::string describe() const override {
    const int threads = workspace_.pool.workers();
    return fmt::format("reference {}, {} thread{}", target_.name, threads, threads == 1 ? "" : "s");
  }

  std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking,
                               Share) override {
    return reference::pack(parts, stacking, workspace_);
  }

  Buffer allocate(size_t bytes) override { return allocate_host(bytes); }

  void run(std::span<const Op> ops) override {
    for (const Op& op : ops) {
      std::visit([&](const auto& each) { reference::run(each, workspace_); }, op);
    }
  }

 private:
  const Target& target_;
  Workspace workspace_;
};

/// `options` as make_backend resolved them: a usable target, one thread or more.
std::unique_ptr<Backend> make(const BackendOptions& options) {
  for (const Target& target : kTargets) {
    if (target.name == options.target) {
      return std::make_unique<ReferenceBackend>(target, options.threads);
    }
  }
  check_failed("options.target is one of usable_targets()", __FILE__, __LINE__);
}

}  // namespace
}  // namespace reference

BackendEntry reference_entry() {
  return {"reference", "fp32 oracle: weights dequantised, Eigen", reference::usable_targets,
          reference::make};
}

}  // namespace coppice
