// The drafter: grows a token tree for each sequence. What it needs from the target it states as
// data; what it keeps about a sequence it cuts back when told which positions were computed anew.
//
//   class Repeat : public Drafter { ... };   // README shows a complete one
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/kv_cache.h"
#include "core/model.h"
#include "core/sampling.h"
#include "core/token_tree.h"
#include "decoding/acceptance.h"
#include "decoding/draft_price.h"

namespace coppice {

struct Needs {
  std::vector<int> tap_layers;     // hidden states after that many layers, at every row
  int top_k = 0;                   // the target's most likely tokens at every row
  std::vector<KvShape> kv_layers;  // own layers in the target's cache, behind the target's
  int most_nodes = 0;              // largest tree it ever grows
  int vocabulary = 0;              // tokens of the vocabulary it was made for; 0: any
};

/// One sequence's finished step, for drafters to learn from. Rows are numbered within the sequence:
/// the trunk's first, then the tree's.
struct Observation {
  SeqId sequence = 0;
  std::span<const int32_t> tokens;  // every token now certain, those just emitted included
  int first_position = 0;           // of row 0: own state about it and behind it is stale
  std::span<const int> kept_rows;   // row of position first_position + i, now committed
  const TokenTree* tree = nullptr;  // as it was verified, cut and numbered anew; null: none
  std::span<const int> node_row;    // row of each node
  std::span<const int> path;        // accepted nodes that were kept
  const ForwardOutput* output = nullptr;
  int first_row = 0;               // batch row of row 0, for taps
  std::span<const int> logit_row;  // logit row of each row, -1: none; for top_k
  int first_tap = 0;               // the drafter's tap 0 among the step's
  /// Where the tree was cut, or is shared with other drafters (drafters/cascade.h): the node of
  /// `tree` that each node of the drafter's own became, node 0 first; -1: it was cut.
  std::optional<std::span<const int>> own_nodes;

  const float* tap(int tap_index, int row) const {
    return output->tap(first_tap + tap_index, first_row + row);
  }
  /// The target's most likely tokens behind a row, as many as the drafter needs or more; empty when
  /// they were not computed.
  std::span<const int32_t> top_ids(int row) const {
    const int at = logit_row[static_cast<size_t>(row)];
    if (at < 0) return {};
    return output->top_ids.subspan(static_cast<size_t>(at) * output->top_k,
                                   static_cast<size_t>(output->top_k));
  }
  /// Their logits.
  std::span<const float> top_logits(int row) const {
    const int at = logit_row[static_cast<size_t>(row)];
    if (at < 0) return {};
    return output->top_logits.subspan(static_cast<size_t>(at) * output->top_k,
                                      static_cast<size_t>(output->top_k));
  }
  /// Nodes that the drafter itself grew, node 0 included.
  int own_size() const { return own_nodes ? static_cast<int>(own_nodes->size()) : tree->size(); }
  int node_of(int own) const { return own_nodes ? (*own_nodes)[static_cast<size_t>(own)] : own; }
  /// Behind a node; empty when they were not computed.
  std::span<const int32_t> top_ids_of(int node) const {
    return top_ids(node_row[static_cast<size_t>(node)]);
  }
  /// Absolute position of node 0.
  int root_position() const { return first_position + node_row[0]; }
  bool accepted(int node) const {
    return node == 0 || std::find(path.begin(), path.end(), node) != path.end();
  }
};

/// One sequence that wants a tree.
struct DraftJob {
  SeqId sequence = 0;
  std::span<const int32_t> tokens;      // every certain token; the last is node 0
  int budget = 0;                       // most nodes; may be 0
  const DraftPrice* price = nullptr;    // what a token must earn; null: draft up to the budget
  Draw draw = Draw::argmax;             // how a drafter that samples draws
  Sampler* sampler = nullptr;           // the sequence's own warps and noise
  const KVCache::Tail* tail = nullptr;  // slots of this step: node 0's, then `budget` more
  KVCache* cache = nullptr;             // own layers stand behind the target's
  int first_layer = 0;                  // the drafter's own layer 0 in the cache
  TokenTree* tree = nullptr;            // out: node 0 is there, room for `budget` nodes
};

enum class Reason { finished, preempted };

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual Needs needs() const = 0;
  /// Records only: catching up happens in propose(), where it is priced. Modifies own state.
  virtual void observe(std::span<const Observation> observations) = 0;
  /// Grows job.tree; may write the job's tail slots in the cache, where nothing lasts longer than
  /// the call. The engine may cut nodes afterwards. Modifies own state.
  virtual void propose(std::span<DraftJob> jobs) = 0;
  /// Drops what is kept about a sequence. After `preempted` it comes back from position 0.
  virtual void forget(SeqId sequence, Reason reason) = 0;
};

}  // namespace coppice
