// Graphs of op lists that came before: the same list, at the same addresses, is launched as one
// graph, so that a step costs the host one call. A list is known by all its fields, byte by byte.
//
//   graphs.run(ops, stream, [&] { for (const Op& op : ops) ...launch... });
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

class GraphCache {
 public:
  explicit GraphCache(size_t most) : most_(most) {}
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;

  /// Runs `launch` on the stream, or the graph it was captured into. A list is captured when it
  /// comes the second time: most lists of a prefill never do. `salt`: whatever else the launches
  /// depend on.
  void run(std::span<Op> ops, uint64_t salt, Stream stream, const std::function<void()>& launch);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    cudaGraphExec_t graph = nullptr;  // null: seen once
  };
  void capture(Entry& entry, Stream stream, const std::function<void()>& launch);

  size_t most_;
  std::list<Entry> entries_;  // the latest used first
  std::string key_;
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
