// EAGLE: one decoder layer drafts the target's next hidden state from the last one and the token
// that followed it, and so the token after; its own guesses feed it on. Sources: Li 2024, "EAGLE:
// Speculative Sampling Requires Rethinking Feature Uncertainty" and "EAGLE-2" (dynamic trees); Li
// 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
// Test" (low, middle and high states). The file says which network it is: decoding/feature_layer.h.
//
//   coppice generate --method eagle3 --set head=smollm2.eagle3.safetensors ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decoding/draft_rows.h"
#include "decoding/feature_layer.h"
#include "decoding/packed_batch.h"
#include "decoding/registry.h"
#include "decoding/tree_growth.h"

namespace coppice {

struct EagleOptions {
  std::string head;
  TreeOptions tree{.shape = "dynamic"};

  template <class Visitor>
  void visit(Visitor& v) {
    v("head", head,
      "file that `coppice train` wrote, or a published checkpoint; empty: the one shipped");
    tree.visit(v);
  }
};

inline void check_shape_options(const OptionMap& given, const EagleOptions& options) {
  check_shape_options(given, options.tree);
}

class Eagle : public Drafter, private DraftSource {
 public:
  /// `kind` is the method's name, "eagle" or "eagle3". Throws Error when the head is missing,
  /// damaged, of the other kind or another target's.
  Eagle(std::string_view kind, const EagleOptions& options, const MethodParts& parts);
  Needs needs() const override;
  void observe(std::span<const Observation> observations) override;
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  /// Row p of the layer reads the state at position p and the token at p + 1. Its K and V stand in
  /// slot p, which the target has committed: they stay.
  struct Sequence {
    int rows = 0;                 // computed from true states: positions 0..rows-1
    std::vector<float> features;  // (waiting, taps, dim): states of the positions from `rows` on
    bool lost = false;            // some states were never seen: it cannot draft
    // While a tree grows:
    const DraftJob* job = nullptr;
    int base = 0;  // position of the first row of `tree`
    DraftRows tree;
    std::vector<float> hidden;  // (computed rows, dim)
    int last_run = 0;           // first row of the last run that has logits,
    int first_logits = 0;       // and where these stand
  };
  Sequence& at(SeqId sequence);
  int waiting(const Sequence& sequence) const;
  void catch_up(Sequence& sequence, int rows);
  int room(const DraftJob& job) const override;
  int begin(const DraftJob& job) override;
  int add(SeqId sequence, int parent_row, int32_t token) override;
  void run(std::span<const SeqId> sequences) override;
  std::span<const float> logits(SeqId sequence, int row) override;

  TreeGrowth growth_;
  std::vector<int> taps_;
  std::unique_ptr<DraftVocabulary> vocabulary_;
  std::unique_ptr<FeatureLayer> layer_;
  std::vector<Sequence> sequences_;  // by SeqId
  PackedBatch packed_;
  std::vector<float> inputs_;  // features of the rows that run next
  FeatureOutput output_;
};

}  // namespace coppice
