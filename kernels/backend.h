// The operations a transformer needs, as plain structs of pointers, sizes and strides, and the
// backends that run them. A forward pass is a list of ops; a backend runs the list in order and
// decides for itself how to fuse, tile and thread.
//
// Row invariance (the contract every backend keeps): what an op writes for a row is the same bits
// whatever other rows stand in the same op, for any thread count. Each output is reduced in one
// order that depends on its column and the row's absolute position alone.
//
//   auto backend = make_backend({.name = "cpu", .threads = 2});
//   auto weight = backend->pack({views, 3}, Stacking::concatenated);
//   backend->run(ops);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/shared/noise.h"
#include "kernels/shared/warp.h"

namespace coppice {

/// KV slots in a page. Also the block of attention's running softmax: block edges are absolute
/// positions 0, 32, 64, ... so that a row's result does not depend on what is committed.
inline constexpr int kPageSlots = 32;

/// A weight matrix in a backend's own layout, made by Backend::pack. y = W x.
class Weight {
 public:
  virtual ~Weight() = default;
  int outputs = 0;   // values a Linear writes for a row
  int inputs = 0;    // values it reads
  size_t bytes = 0;  // memory held
};

/// What each device of a backend that has several holds of a weight. Source: Shoeybi et al. 2019
/// (Megatron-LM), section 3.
enum class Share {
  first,    // the first device all of it, the others nothing
  copied,   // each all of it
  rows,     // each its part of every part's rows: of the outputs
  columns,  // each its part of the columns: y is then a part of a sum over all (AllReduce)
};

enum class Stacking {
  concatenated,  // outputs of the parts one after the other (Q, K, V in one pass)
  gated,         // exactly two parts of equal shape, gate and up: y = activation(gate x) * (up x)
};

/// out[r] = table[token[r]] * scale
struct Embed {
  const Weight* table = nullptr;   // outputs = vocabulary, inputs = dim
  const int32_t* token = nullptr;  // (rows), each in 0..table->outputs-1
  int rows = 0;
  float scale = 1.0f;
  float* out = nullptr;  // (rows, dim)
};

enum class Activation { none, silu, gelu_tanh };

/// y[r] = activation(W norm(x[gather[r]]) + bias), added to y[r] when `accumulate`.
/// A gated weight applies `activation` to the gate half alone and multiplies by the up half.
struct Linear {
  const Weight* weight = nullptr;
  const float* x = nullptr;  // (rows, inputs), row stride x_stride
  int x_stride = 0;
  const int32_t* gather = nullptr;  // (rows) row of x that each y row reads; null: row r
  int rows = 0;
  const float* norm = nullptr;  // (inputs) RMS-norm weight applied to x first; null: none
  float norm_eps = 0.0f;
  const float* bias = nullptr;  // (outputs), of shared rows (ranks, outputs); null: none, as gated
  Activation activation = Activation::none;
  bool accumulate = false;
  float* y = nullptr;  // (rows, outputs), row stride y_stride
  int y_stride = 0;
};

/// x[r] += RMS-norm(y[r]) * weight: the norm after a block that gemma has.
struct AddNorm {
  const float* y = nullptr;       // (rows, dim)
  const float* weight = nullptr;  // (dim)
  float eps = 0.0f;
  int rows = 0;
  int dim = 0;
  float* x = nullptr;  // (rows, dim)
};

/// out[r] = x[r]; rows of `dim` floats with strides. Takes a hidden state out as a tap.
struct Copy {
  const float* x = nullptr;
  int x_stride = 0;
  int rows = 0;
  int dim = 0;
  float* out = nullptr;
  int out_stride = 0;
};

/// One layer's K and V: f16, in pages of kPageSlots slots. Layout of a page (bytes kv_page_bytes):
/// K transposed, (kv_heads, head_dim, kPageSlots), then V, (kv_heads, kPageSlots, head_dim).
struct KvLayer {
  std::byte* base = nullptr;  // page p of this layer begins at base + p * page_stride
  size_t page_stride = 0;
  int kv_heads = 0;
  int head_dim = 0;
};
constexpr size_t kv_page_bytes(int kv_heads, int head_dim) {
  return size_t{2} * kv_heads * head_dim * kPageSlots * sizeof(uint16_t);
}

/// What one row attends to: the key of position p (p <= position) stands in slot p when
/// p < prefix, else in slot tail_slots[tail + p - prefix]. The last key is the row's own.
/// Slot s is page pages[page_table + s / kPageSlots], place s % kPageSlots.
struct AttentionRow {
  int32_t position = 0;    // 0-based; the row has position + 1 keys, fewer under a window
  int32_t slot = 0;        // where this row's K and V are written
  int32_t prefix = 0;      // keys whose slot equals their position
  int32_t tail = 0;        // offset into tail_slots
  int32_t page_table = 0;  // offset into pages; rows of one sequence share it and are contiguous
};

enum class RotaryStyle {
  adjacent,    // rotates (2i, 2i+1): llama
  half_split,  // rotates (i, i + head_dim/2): qwen2, gemma3
};

/// Per-head RMS norm of Q and K (optional), rotary embedding, K and V rounded to f16 and written to
/// their slots, then softmax(scale Q K^T) V over each row's keys. Every K and V is read as stored,
/// the row's own included. All writes happen before the first read.
struct Attention {
  const float* qkv = nullptr;  // (rows, (heads + 2 kv_heads) head_dim): Q, K, V
  int rows = 0;
  int heads = 0;
  const float* q_norm = nullptr;  // (head_dim) or null
  const float* k_norm = nullptr;
  float norm_eps = 0.0f;
  const float* rotary = nullptr;  // (positions, head_dim/2, 2): cosine, sine
  RotaryStyle style = RotaryStyle::adjacent;
  float scale = 0.0f;
  int window = 0;  // a key is seen when row.position - key position < window; 0: all
  KvLayer kv;
  const AttentionRow* row = nullptr;  // (rows)
  const int32_t* tail_slots = nullptr;
  const int32_t* pages = nullptr;
  float* out = nullptr;  // (rows, heads head_dim)
};

/// Copies K and V between slots, in the order given: the cache's commit of an accepted path.
struct MoveKv {
  KvLayer kv;
  int count = 0;
  const int32_t* from = nullptr;  // (count) page * kPageSlots + place
  const int32_t* to = nullptr;    // (count)
};

/// The k largest of each row, largest first, equal values by lower index first. NaN is below all.
struct TopK {
  const float* x = nullptr;  // (rows, cols), row stride x_stride
  int x_stride = 0;
  int rows = 0;
  int cols = 0;
  int k = 0;                 // 1..cols
  int32_t* index = nullptr;  // (rows, k)
  float* value = nullptr;    // (rows, k)
};

/// A node of a drafted tree, as Judge reads one; core/token_tree.h says what the fields mean.
struct JudgeNode {
  int32_t token = 0;
  int32_t parent = -1;
  int32_t depth = 0;
  int32_t first_child = -1;
  int32_t next_sibling = -1;
  int32_t logit_row = 0;
  int32_t proposal = -1;  // -1: a point mass
  int32_t verify = 1;
};

/// A distribution that tokens were drawn from.
struct JudgeProposal {
  int32_t first = 0;      // of its probabilities in Judge::q
  int32_t first_id = -1;  // of its tokens in Judge::q_ids; -1: entry e is token e
  int32_t count = 0;
  int32_t without_replacement = 0;
};

struct JudgeBias {
  int32_t token = 0;
  float add = 0.0f;  // -infinity forbids the token
};

/// Warps the logits of a tree's nodes and walks the tree by a rule of kernels/shared/walk.h, with
/// noise by its address: what core's Sampler and decoding's rules do, and the same bits. For
/// backends whose logits the host is slow to read.
struct Judge {
  enum class Rule { greedy, coupled, rejection };
  Rule rule = Rule::greedy;       // greedy at temperature 0
  const float* logits = nullptr;  // rows with stride logits_stride
  int logits_stride = 0;
  int vocabulary = 0;               // tokens that can be drawn
  const JudgeNode* node = nullptr;  // (nodes)
  int nodes = 0;
  const JudgeProposal* proposal = nullptr;  // (proposals)
  int proposals = 0;
  const float* q = nullptr;
  const int32_t* q_ids = nullptr;
  int q_values = 0;
  int q_tokens = 0;
  Filters filters;
  Penalties penalties;
  const int32_t* history = nullptr;  // (history_count) the last certain tokens, node 0's included
  int history_count = 0;
  int window = 0;  // tokens of history and path that penalties look at; 0: there are none
  const JudgeBias* bias = nullptr;  // (biases), each token once; added before masked ones are cut
  int biases = 0;
  const int32_t* masked = nullptr;  // (masks) never drawn
  int masks = 0;
  NoiseKey key;
  int root_position = 0;  // of node 0
  /// (nodes + 1): accepted nodes, the token that follows them, then these nodes from depth 1 down.
  /// verdict[0] = -1: a row that was asked for holds NaN or +infinity, or leaves no token.
  int32_t* verdict = nullptr;
};

/// y = the sum of y over all devices of the backend, in their order; added to x where there is one.
struct AllReduce {
  float* y = nullptr;  // (rows, dim)
  int rows = 0;
  int dim = 0;
  float* x = nullptr;  // (rows, dim) or null
};

using Op = std::variant<Embed, Linear, AddNorm, Copy, Attention, MoveKv, TopK, Judge, AllReduce>;

/// Memory that ops read and write; 64-byte aligned, zeroed. Freed with the object.
struct Buffer {
  std::shared_ptr<std::byte> data;
  size_t bytes = 0;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data.get());
  }
};
Buffer allocate_host(size_t bytes);

class Backend {
 public:
  explicit Backend(int ranks = 1) : ranks_(ranks) {}
  virtual ~Backend() = default;
  /// Name, dispatch target and threads, for the manifest: "cpu avx512_vnni, 2 threads".
  virtual std::string describe() const = 0;
  /// Copies the parts into this backend's layout; the views may be unmapped afterwards. Sizes of
  /// the Weight are those that one device has.
  virtual std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking,
                                       Share share = Share::first) = 0;
  std::unique_ptr<Weight> pack(const TensorView& whole) {
    return pack({&whole, 1}, Stacking::concatenated);
  }
  virtual Buffer allocate(size_t bytes) = 0;
  /// Runs the ops in order; returns when their results can be read: K and V moved by a list that
  /// ends with MoveKv by the next list, an empty one included. Allocates nothing in steady use.
  /// Pointers are best from allocate(); a backend with memory of its own copies what stands
  /// elsewhere, so tables of a step and small results may, weights of norms should not.
  /// Of several devices the first runs the list, the others what its sums (AllReduce) need of them:
  /// memory that ops write is each device's own there, what the host writes there is the first's.
  virtual void run(std::span<const Op> ops) = 0;
  /// A Judge in the list costs less than handing its logits to the host.
  virtual bool judges() const { return false; }
  /// Devices that share the weights packed by rows or columns.
  int ranks() const { return ranks_; }

 private:
  int ranks_;
};

struct BackendOptions {
  std::string name = "cpu";
  int threads = 0;     // 0: one per core this process may run on
  std::string target;  // dispatch target, "" = the best this machine has
  int ranks = 1;       // devices that share a model
};

struct BackendEntry {
  std::string_view name;
  std::string_view summary;
  std::vector<std::string_view> (*targets)();  // usable on this machine, best first
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
  bool several_devices = false;  // takes more ranks than one
};

/// Every backend of this build, the default first.
std::span<const BackendEntry> backends();
/// Throws Error when the name or the target is unknown, naming those there are.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

}  // namespace coppice
