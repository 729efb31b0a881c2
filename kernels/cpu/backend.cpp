// The cpu backend behind kernels/backend.h: dispatch target, packing, memory; step.h runs the ops.
//
//   make_backend({.name = "cpu", .threads = 2, .target = "avx2"})
#include <sys/mman.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/step.h"

namespace coppice {
namespace cpu {
namespace {

std::vector<std::string_view> usable_targets() {
  std::vector<std::string_view> names;
  for (const ProductKernels* products : product_kernels()) names.push_back(products->name);
  return names;
}

const ProductKernels& products_of(std::string_view target) {
  for (const ProductKernels* products : product_kernels()) {
    if (products->name == target) return *products;
  }
  check_failed("target is one of usable_targets()", __FILE__, __LINE__);
}

/// Highway's targets that belong to the products' instruction set; none is Highway's scalar one.
int64_t highway_targets(std::string_view target) {
  int64_t targets = 0;
  if (target.starts_with("avx512")) targets = HWY_AVX3 | HWY_AVX2;
  if (target == "avx2") targets = HWY_AVX2;
  if (target == "neon") targets = HWY_NEON;
  return targets & hwy::SupportedTargets();
}

/// Zeroed memory on huge pages where the system has them: a step walks all of it.
Buffer allocate_huge(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes < 2 * kHugePage) return allocate_host(bytes);
  const size_t mapped = bytes + kHugePage;
  void* base = mapped < bytes ? MAP_FAILED
                              : mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw Failure("memory: no room for {} bytes", bytes);
  const auto address = reinterpret_cast<uintptr_t>(base);
  auto* data = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
  madvise(data, bytes, MADV_HUGEPAGE);  // a wish: without huge pages the memory is only slower
  return {std::shared_ptr<std::byte>(data, [base, mapped](std::byte*) { munmap(base, mapped); }),
          bytes};
}

class CpuBackend : public Backend {
 public:
  CpuBackend(std::string_view target, int threads)
      : pool_(threads),
        kernels_{products_of(target), attention_kernels(highway_targets(target)),
                 norm_kernels(highway_targets(target)),
                 vocabulary_kernels(highway_targets(target))} {}

  std::string describe() const override {
    return fmt::format("cpu {}, {} thread{}", kernels_.products.name, pool_.size(),
                       pool_.size() == 1 ? "" : "s");
  }

  std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking,
                               Share) override {
    return std::make_unique<PackedWeight>(parts, stacking, panel_memory_,
                                          [&](int count, const std::function<void(int)>& body) {
                                            pool_.run([&](int) noexcept {
                                              for (int i; (i = pool_.claim()) < count;) body(i);
                                            });
                                          });
  }

  Buffer allocate(size_t bytes) override { return allocate_huge(bytes); }

  void run(std::span<const Op> ops) override {
    plan_.prepare(ops, pool_.size());
    pool_.run([&](int thread) noexcept { Step(pool_, kernels_, plan_, thread).run(ops); });
  }

 private:
  std::shared_ptr<PanelMemory> panel_memory_ = std::make_shared<PanelMemory>();
  ThreadPool pool_;
  TargetKernels kernels_;
  StepPlan plan_;
};

/// `options` as make_backend resolved them: a usable target, one thread or more.
std::unique_ptr<Backend> make(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options.target, options.threads);
}

}  // namespace
}  // namespace cpu

BackendEntry cpu_entry() {
  return {"cpu", "weights stay quantised, 8-bit activations, vectors and threads",
          cpu::usable_targets, cpu::make};
}

}  // namespace coppice
