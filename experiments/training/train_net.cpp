// See train_net.h.
#include "experiments/training/train_net.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace coppice {

double Hits::tokens_per_step() const {
  double tokens = 1.0, path = 1.0;
  for (size_t k = 0; k < reached.size(); ++k) {
    path *= reached[k] > 0 ? static_cast<double>(right[k]) / static_cast<double>(reached[k]) : 0.0;
    tokens += path;
  }
  return tokens;
}

void Hits::add(const Hits& more) {
  reached.resize(std::max(reached.size(), more.reached.size()));
  right.resize(reached.size());
  for (size_t k = 0; k < more.reached.size(); ++k) {
    reached[k] += more.reached[k];
    right[k] += more.right[k];
  }
}

TrainNet::TrainNet(const HeadConfig& config, const TargetTensors& target, at::ScalarType type)
    : config_(config), target_(target), type_(type) {}

void TrainNet::add(const std::string& name, const at::Tensor& value) {
  parameters_.emplace_back(name, value.to(type_).detach().clone().requires_grad_(true));
}

void TrainNet::add_constant(const std::string& name, const at::Tensor& value) {
  constants_.emplace_back(name, value);
}

void TrainNet::move_to(at::Device device) {
  device_ = device;
  for (auto& [name, value] : parameters_) value = value.detach().to(device).requires_grad_(true);
  for (at::Tensor* part :
       {&target_.embedding, &target_.output, &target_.norm, &target_.draft_row}) {
    *part = part->to(device);
  }
}

const at::Tensor& TrainNet::parameter(const std::string& name) const {
  for (const auto& [known, value] : parameters_) {
    if (known == name) return value;
  }
  check_failed(name.c_str(), __FILE__, __LINE__);
}

at::Tensor TrainNet::normed_last(const Example& example) const {
  return rms_norm(example.last, target_.norm, target_.norm_eps);
}

at::Tensor TrainNet::embed(const Example& example) const {
  return target_.embedding.index_select(0, example.tokens);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt((x * x).mean(-1, true) + eps) * weight;
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine,
                  RotaryStyle style) {
  const int64_t half = x.size(-1) / 2;
  if (style == RotaryStyle::half_split) {
    const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return at::cat({a * cosine - b * sine, a * sine + b * cosine}, -1);
  }
  const at::Tensor pairs = x.unflatten(-1, {half, 2});
  const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  return at::stack({a * cosine - b * sine, a * sine + b * cosine}, -1).flatten(-2);
}

at::Tensor read_rows(const TensorView& view, const std::vector<int32_t>& ids) {
  const auto rows = ids.empty() ? view.rows : static_cast<int64_t>(ids.size());
  at::Tensor out = at::empty({rows, view.cols}, at::kFloat);
  for (int64_t row = 0; row < rows; ++row) {
    float* to = out.data_ptr<float>() + row * view.cols;
    dequantise_row(view, ids.empty() ? row : ids[static_cast<size_t>(row)],
                   {to, static_cast<size_t>(view.cols)});
  }
  return out;
}

}  // namespace coppice
