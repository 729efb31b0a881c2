// A trained draft head as a file: one safetensors file with its config inside, or a published
// checkpoint, whose config.json lies beside it. Sources of the published layouts: Cai 2024
// (Medusa), Li 2024 (EAGLE) and Li 2025 (EAGLE-3), as their authors' code writes them.
//
//   DraftHead head("eagle3", "smollm2.eagle3.safetensors", target);
//   TensorView fc = head.file().matrix("fc.weight", dim, 3 * dim);
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model.h"
#include "core/safetensors.h"

namespace coppice {

/// What a head was made for. A published head names nothing but shapes.
struct HeadTarget {
  std::string name, architecture;  // "": unknown
  int dim = 0;
  int layers = 0;            // 0: unknown
  int vocabulary = 0;        // 0: unknown
  uint64_t fingerprint = 0;  // Model::fingerprint(); 0: unknown
};
HeadTarget describe_target(const Model& model);

struct HeadConfig {
  std::string kind;  // "medusa", "hydra", "eagle", "eagle3", "draft": decoding/distilled_model.h
  HeadTarget target;
  std::vector<int> taps;  // hidden states it reads: after that many layers of the target
  int count = 0;          // medusa, hydra: tokens ahead it predicts, a head each
  int blocks = 1;         // medusa, hydra: residual blocks of a head
  int heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;  // of eagle's layer
  std::vector<int> layers;  // draft: those of the target that its own began as
  float norm_eps = 1e-5f;
  float rotary_base = 1e4f;
  int draft_vocabulary = 0;  // rows of the output layer; 0: the target's own
  std::string training;      // JSON: how it was trained; may be empty
};
/// As it stands in the file's metadata under "coppice".
std::string head_config_text(const HeadConfig& config);

/// The file of drafters/pretrained of that kind ("draft" too) that was trained for the target.
/// Throws Error when there is none.
std::filesystem::path shipped_head(std::string_view kind, const Model& target);

class DraftHead {
 public:
  /// An empty path: the shipped one. Throws Error for what is no head (unknown layouts, configs
  /// that ask for other mathematics), and for a head of another kind or made for another target,
  /// saying what differs.
  DraftHead(std::string_view kind, const std::filesystem::path& path, const Model& target);

  const SafetensorsFile& file() const { return file_; }
  const HeadConfig& config() const { return config_; }
  /// In front of tensor names: "medusa_head." in some published files.
  const std::string& prefix() const { return prefix_; }
  /// Target id of each row of the output layer, ascending; empty: they are the same.
  std::vector<int32_t> draft_ids() const;

 private:
  void require(std::string_view kind, const Model& target) const;
  void fill_in_taps(int layers);

  SafetensorsFile file_;
  HeadConfig config_;
  std::string prefix_;
};

/// Spreads logits over a draft vocabulary to the target's ids; what is not drafted gets -infinity.
class DraftVocabulary {
 public:
  /// `ids` as DraftHead::draft_ids() gives them.
  DraftVocabulary(std::vector<int32_t> ids, int vocabulary);
  int size() const;  // values of a row of draft logits
  /// (vocabulary); valid until the next call, and as long as `logits`.
  std::span<const float> spread(std::span<const float> logits);

 private:
  int vocabulary_;
  std::vector<int32_t> ids_;  // empty: all
  std::vector<float> row_;
};

/// Some columns of a matrix, copied: a product with a joined input is the sum of products with its
/// parts. `first` and `count` are multiples of the type's block.
struct TensorColumns {
  TensorColumns(const TensorView& whole, int64_t first, int64_t count);
  std::vector<std::byte> bytes;
  TensorView view;
};

}  // namespace coppice
