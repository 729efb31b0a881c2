// A small model's own layers as the file that `coppice train draft` writes: a draft that is known
// before anything is trained.
//
//   TinyDraft draft(tiny.source(), describe_target(model), {0, 2}, {1, 5, 9});
//   draft.write(path);
#pragma once

#include <cstring>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "decoding/distilled_model.h"

namespace coppice::test {

struct TinyDraft {
  /// `ids`: what it drafts, ascending; empty: all.
  TinyDraft(const ModelSource& source, const HeadTarget& target, std::vector<int> layers,
            const std::vector<int32_t>& ids = {}) {
    config.kind = "draft";
    config.target = target;
    config.layers = std::move(layers);
    config.draft_vocabulary = static_cast<int>(ids.size());
    for (size_t own = 0; own < config.layers.size(); ++own) {
      const LayerTensors& from = source.layers[static_cast<size_t>(config.layers[own])];
      for (const LayerPart& part : kLayerParts) {
        const TensorView& view = from.*part.view;
        const std::string name = "blk." + std::to_string(own) + "." + std::string(part.name);
        if (view.data != nullptr) add(name, view, part.rows == Extent::one);
      }
    }
    add("output_norm.weight", source.output_norm, true);
    TensorView output = source.output;
    if (!ids.empty()) {
      std::vector<std::byte>& rows = memory_.emplace_back();
      for (const int32_t id : ids) {
        rows.insert(rows.end(), output.row(id), output.row(id) + output.row_bytes());
        d2t.push_back(id - static_cast<int64_t>(d2t.size()));
      }
      output = {output.type, rows.data(), config.draft_vocabulary, output.cols};
    }
    add("output.weight", output, false);
  }

  void write(const std::filesystem::path& path) const {
    std::vector<SafeTensor> out = tensors;
    if (!d2t.empty()) {
      out.push_back(
          {"d2t", "I64", {static_cast<int64_t>(d2t.size())}, std::as_bytes(std::span(d2t))});
    }
    write_safetensors(path, out, {{"coppice", head_config_text(config)}});
  }

  HeadConfig config;
  std::vector<SafeTensor> tensors;  // views into the model
  std::vector<int64_t> d2t;

 private:
  void add(const std::string& name, const TensorView& view, bool vector) {
    const bool quantised = view.type == DType::q8_0;
    const int64_t stored = quantised ? static_cast<int64_t>(view.row_bytes()) : view.cols;
    tensors.push_back({name, quantised ? "U8" : "F32",
                       vector ? std::vector{stored} : std::vector{view.rows, stored},
                       std::span(view.data, view.bytes())});
  }

  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace coppice::test
