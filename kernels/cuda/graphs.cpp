// See graphs.h.
#include "kernels/cuda/graphs.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/fields.h"
#include "kernels/cuda/weights.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

/// Appends fields one by one: the padding between them is not part of a list.
struct KeyWriter {
  std::string& key;

  template <class T>
  void value(const T& field) {
    static_assert(std::is_scalar_v<T>);
    key.append(reinterpret_cast<const char*>(&field), sizeof field);
  }
  /// By its number: another weight may come to stand at the address of one that is gone.
  void value(const Weight* const& weight) {
    const auto* own = dynamic_cast<const PackedWeight*>(weight);
    value(own == nullptr ? uint64_t{0} : own->number);
  }
  template <class T, class Count>
  void in(const T*& pointer, const Count&) {
    value(pointer);
  }
  template <class T, class Count>
  void out(T*& pointer, const Count&) {
    value(pointer);
  }
  template <class T, class Count>
  void in_out(T*& pointer, const Count&) {
    value(pointer);
  }
};

}  // namespace

GraphCache::~GraphCache() {
  for (const Entry& entry : entries_) {
    if (entry.graph != nullptr) static_cast<void>(cudaGraphExecDestroy(entry.graph));
  }
}

void GraphCache::capture(Entry& entry, Stream stream, const std::function<void()>& launch) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
  cudaGraph_t graph = nullptr;
  try {
    launch();
  } catch (...) {  // the stream must not stay in capture
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) {
      static_cast<void>(cudaGraphDestroy(graph));
    }
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "capturing a step");
  const cudaError_t status = cudaGraphInstantiate(&entry.graph, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  check(status, "making a step's graph");
}

void GraphCache::run(std::span<Op> ops, uint64_t salt, Stream stream,
                     const std::function<void()>& launch) {
  key_.clear();
  KeyWriter writer{key_};
  writer.value(salt);
  for (Op& op : ops) visit_fields(op, writer);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key_; });
  if (found == entries_.end()) {
    if (entries_.size() == most_) {
      if (entries_.back().graph != nullptr) {
        check(cudaGraphExecDestroy(entries_.back().graph), "dropping a step's graph");
      }
      entries_.pop_back();
    }
    entries_.push_front({key_, nullptr});
    launch();
    return;
  }
  entries_.splice(entries_.begin(), entries_, found);
  if (found->graph == nullptr) capture(*found, stream, launch);
  check(cudaGraphLaunch(found->graph, stream), "launching a step's graph");
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
