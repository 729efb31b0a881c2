// See architecture.h.
#include "core/architecture.h"

#include <algorithm>

namespace coppice {
namespace {

constexpr Architecture kArchitectures[] = {
    {.name = "llama",
     .model_type = "llama",
     .gguf_rotary = RotaryStyle::adjacent,
     .rotary_factors = true},
    {.name = "qwen2", .model_type = "qwen2", .qkv_bias = true, .windows = true},
    {.name = "qwen3", .model_type = "qwen3", .head_norms = true, .windows = true},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .activation = Activation::gelu_tanh,
     .rotary_base = 1e6,
     .head_norms = true,
     .block_norms = true,
     .scaled_embedding = true,
     .local_layers = true,
     .tied_output = true,
     .norm_offset = 1.0f},
};

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const Architecture& architecture) { return architecture.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

void alternate_layers(ModelConfig& config, int window, int period) {
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    if ((layer + 1) % period != 0) config.layers[layer] = {.window = window, .rotary_table = 1};
  }
}

}  // namespace coppice
