// The target's hidden states at every token of the training texts, by one pass over each text. They
// are kept as f16 in a memory-mapped file of bounded size; what does not fit is computed anew each
// time, to the same bits.
//
//   HiddenStates states(model, backend, {2, 15, 27, 30}, texts, folder, 4 << 30);
//   states.read(7, out);   // (taps, tokens, dim)
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/kv_cache.h"
#include "core/model.h"
#include "decoding/packed_batch.h"
#include "experiments/training/answers.h"

namespace coppice {

class HiddenStates {
 public:
  /// The model, the backend and the texts outlive the object. Throws Failure when the file cannot
  /// be made.
  HiddenStates(const Model& model, Backend& backend, std::vector<int> taps,
               std::span<const TrainText> texts, const std::filesystem::path& folder,
               size_t most_bytes);
  ~HiddenStates();
  HiddenStates(const HiddenStates&) = delete;

  /// (taps, tokens, dim), rounded to f16.
  void read(size_t text, std::vector<float>& out);

 private:
  struct Place {
    size_t first = 0;  // in the file, in values
    bool fits = false, there = false;
  };
  void compute(const TrainText& text);
  size_t values_of(const TrainText& text) const;

  const Model* model_;
  std::vector<int> taps_;
  std::span<const TrainText> texts_;
  std::vector<Place> places_;
  uint16_t* stored_ = nullptr;
  size_t bytes_ = 0;
  KVCache cache_;
  Workspace workspace_;
  PackedBatch packed_;
  std::vector<uint16_t> halves_;
};

}  // namespace coppice
