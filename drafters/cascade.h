// Several drafters under one budget, the cheap ones first: mode `first` asks each in turn until one
// proposes something, `merge` lets each grow its tree in the room that is left and joins them. Each
// is told what its own nodes became, so that any drafter can be a part. Source: the combination of
// retrieval with a costlier drafter is that of Spec-Bench's best entries (Xia 2024).
//
// What keeps rejection exact on a joined tree (tests/cascade_test.cpp enumerates it): siblings keep
// the order of the parts; a point mass that two parts propose is one node; a drawn token stays even
// beside a point mass of the same id, because dropping it for what it is would bias the text; no
// two parts draw with the same noise; a part's room is known before it draws, and nothing that was
// drawn is cut. That a later part's room depends on what an earlier one drew does no harm: its
// siblings come behind those, and whatever is left of p when they have failed does not depend on
// them.
//
//   method = "cascade"
//   methods = ["prompt_lookup", "draft_model"]
//   prompt_lookup.draft_length = 5
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "decoding/registry.h"

namespace coppice {

struct CascadeOptions {
  std::vector<std::string> methods = {"prompt_lookup", "jacobi"};
  std::string mode = "first";

  template <class Visitor>
  void visit(Visitor& v) {
    v("methods", methods, "what it is made of, in order; each one's options are METHOD.KEY");
    v("mode", mode, "ask one after the other until one proposes something, or join all",
      OneOf{{"first", "merge"}});
  }
};

class Cascade : public Drafter {
 public:
  enum class Mode { first, merge };
  /// Throws Error when the parts were made for different vocabularies. At most 256 parts.
  Cascade(std::vector<std::unique_ptr<Drafter>> parts, Mode mode);

  Needs needs() const override { return needs_; }
  void observe(std::span<const Observation> observations) override;
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  struct Part {
    std::unique_ptr<Drafter> drafter;
    int first_tap = 0;    // among the cascade's
    int first_layer = 0;  // likewise
    DraftPrice price;     // the step's, for nodes of this part
  };
  /// A part's tree for one sequence, until the step is observed.
  struct Growth {
    TokenTree tree;
    std::vector<int> node_of = {0};  // its nodes in the joined tree
  };
  Growth& growth(SeqId sequence, size_t part);
  static void join(Growth& growth, uint8_t source, TokenTree& tree);

  Mode mode_;
  Needs needs_;
  std::vector<Part> parts_;
  std::vector<std::vector<Growth>> growth_;  // by SeqId and part
  std::vector<DraftJob> jobs_;
  std::vector<DraftJob*> asked_;
  std::vector<Observation> seen_;
};

}  // namespace coppice
