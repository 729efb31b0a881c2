// REST: the end of the text is looked up in a datastore of other texts, the longest context first,
// and what followed there, with the counts of how often, becomes a token tree. Source: He 2023,
// "REST: Retrieval-Based Speculative Decoding", section 3 (contexts of 16 to 2 tokens,
// continuations of 10, the 64 prefixes seen most).
//
//   coppice datastore build --model smollm2 --out wiki.store wiki.txt
//   coppice generate --method retrieval --set datastore=\"wiki.store\" ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/datastore.h"
#include "decoding/recurrence.h"
#include "decoding/registry.h"

namespace coppice {

struct RetrievalOptions {
  std::string datastore;
  int max_context = 16;
  int min_context = 2;
  int continuation = 10;
  int max_nodes = 64;

  template <class Visitor>
  void visit(Visitor& v) {
    v("datastore", datastore, "file that `coppice datastore build` wrote");
    v("max_context", max_context, "longest context looked up, tried first", Range{1, 16});
    v("min_context", min_context, "shortest context looked up", Range{1, 16});
    v("continuation", continuation, "deepest node", Range{1, 16});
    v("max_nodes", max_nodes, "most nodes of the tree", Range{1, 256});
  }
};

class Retrieval : public Drafter {
 public:
  /// Throws Error when the datastore is missing, damaged or another tokenizer's.
  Retrieval(const RetrievalOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.most_nodes = options_.max_nodes}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  /// A string behind the context: where it occurs.
  struct Node {
    int parent = 0;
    int depth = 0;  // tokens behind the context
    int32_t token = 0;
    Datastore::Range range;
    size_t others = 0;  // times that the same went on otherwise
  };
  int longest_context(std::span<const int32_t> tokens, Datastore::Range& range) const;
  static bool less_often(const Node& a, const Node& b);
  void push_children(const Node& node, int index, int context);

  RetrievalOptions options_;
  std::unique_ptr<Datastore> store_;
  std::vector<HitHistory> hits_;  // by SeqId
  std::vector<Node> queue_;
};

}  // namespace coppice
