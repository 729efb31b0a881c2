// See distilled_model.h.
#include "decoding/distilled_model.h"

#include <deque>
#include <vector>

#include "core/architecture.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

/// The file's tensors as a model's source, which views into it and into this object.
class Parts {
 public:
  Parts(const DraftHead& head, const Model& target) : file_(head.file()) {
    source_.name = file_.name();
    source_.config = distilled_config(target.config(), head.config());
    source_.config.output_ids = head.draft_ids();
    source_.packed_embedding = target.shared_embedding();
    const ModelConfig& config = source_.config;
    source_.output_norm = vector("output_norm.weight", config.dim);
    source_.output = matrix("output.weight", config.vocabulary, config.dim);
    if (file_.find("rope_freqs.weight") != nullptr) {
      source_.rotary_factors = vector("rope_freqs.weight", config.head_dim / 2);
    }
    for (size_t layer = 0; layer < config.layers.size(); ++layer) {
      source_.layers.push_back(read_layer(fmt::format("blk.{}.", layer)));
    }
    const size_t taken = taken_ + (config.output_ids.empty() ? 0 : 1);
    if (file_.tensors().size() != taken) {
      throw Error("{}: holds {} tensors; {} layers like the target's have {}", file_.name(),
                  file_.tensors().size(), config.layers.size(), taken);
    }
  }
  Parts(const Parts&) = delete;

  const ModelSource& source() const { return source_; }

 private:
  LayerTensors read_layer(const std::string& prefix) {
    LayerTensors out;
    for (const LayerPart& part : kLayerParts) {
      const std::string name = prefix + std::string(part.name);
      if (part.optional && file_.find(name) == nullptr) continue;
      const int64_t rows = extent(part.rows), cols = extent(part.cols);
      out.*part.view = part.rows == Extent::one ? vector(name, cols) : matrix(name, rows, cols);
    }
    return out;
  }
  int64_t extent(Extent of) const {
    const ModelConfig& config = source_.config;
    switch (of) {
      case Extent::dim:
        return config.dim;
      case Extent::ffn:
        return config.ffn;
      case Extent::q:
        return int64_t{config.heads} * config.head_dim;
      case Extent::kv:
        return int64_t{config.kv_heads} * config.head_dim;
      case Extent::head:
        return config.head_dim;
      case Extent::one:
        break;
    }
    return 1;
  }
  TensorView matrix(const std::string& name, int64_t rows, int64_t cols) {
    ++taken_;
    return file_.matrix(name, rows, cols);
  }
  TensorView vector(const std::string& name, int64_t size) {
    ++taken_;
    const std::vector<float>& values = vectors_.emplace_back(file_.vector(name, size));
    return {DType::f32, reinterpret_cast<const std::byte*>(values.data()), 1, size};
  }

  const SafetensorsFile& file_;
  ModelSource source_;
  std::deque<std::vector<float>> vectors_;
  size_t taken_ = 0;
};

}  // namespace

ModelConfig distilled_config(const ModelConfig& target, const HeadConfig& head) {
  ModelConfig config = target;
  config.name = "draft of " + target.name;
  // The target may come from a Hugging Face folder, whose rows of Q and K stand in another order.
  const Architecture* architecture = find_architecture(target.architecture);
  if (architecture != nullptr) config.rotary = architecture->gguf_rotary;
  config.layers.clear();
  for (const int layer : head.layers) {
    config.layers.push_back(target.layers[static_cast<size_t>(layer)]);
  }
  if (head.draft_vocabulary > 0) config.vocabulary = head.draft_vocabulary;
  return config;
}

bool holds_head(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" && SafetensorsFile(path).metadata().contains("coppice");
}

std::unique_ptr<Model> load_distilled(const std::filesystem::path& path, const Model& target,
                                      Backend& backend) {
  const DraftHead head("draft", path, target);
  const Parts parts(head, target);
  return std::make_unique<Model>(parts.source(), backend, target.context(), Devices::first);
}

}  // namespace coppice
