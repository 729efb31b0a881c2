// Weights of any type with random values, for tests and benchmarks of products.
//
//   RandomWeight w(DType::q4_k, 48, 512, 7);   // 48 rows of 512 values, seed 7
//   PackedWeight packed({&w.view, 1}, Stacking::concatenated, memory, serial_for);
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "kernels/base/blocks.h"
#include "kernels/base/dtype.h"

namespace coppice::test {

enum class Values {
  random,
  largest,  // every stored value and small scale at its largest magnitude
};

struct RandomWeight {
  RandomWeight(DType type, int rows, int cols, uint64_t seed, Values values = Values::random) {
    view = {type, nullptr, rows, cols};
    bytes.resize(view.bytes());
    view.data = bytes.data();
    std::mt19937_64 random(seed);
    if (values == Values::largest) {
      std::memset(bytes.data(), 0xff, bytes.size());
    } else {
      for (size_t i = 0; i < bytes.size(); i += 8) {
        const uint64_t word = random();
        std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, bytes.size() - i));
      }
    }
    const auto block_bytes = static_cast<size_t>(traits(type).block_bytes);
    for (size_t i = 0; i < bytes.size(); i += block_bytes)
      set_scales(bytes.data() + i, random, values);
  }

  TensorView view;
  std::vector<std::byte> bytes;

 private:
  void set_scales(std::byte* data, std::mt19937_64& random, Values values) const {
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    const auto half = [&](float range) { return float_to_half(range * uniform(random)); };
    const auto block = [&]<class Block>(Block* b) {
      constexpr bool kTwice = requires {
        b->scales;
      };
      b->d = half(kTwice ? 0.0005f : 0.01f);
      if constexpr (requires { b->m; }) b->m = half(0.1f);
      if constexpr (requires { b->d_min; }) b->d_min = half(0.002f);
    };
    switch (view.type) {
      case DType::q4_0:
        return block(reinterpret_cast<BlockQ4_0*>(data));
      case DType::q4_1:
        return block(reinterpret_cast<BlockQ4_1*>(data));
      case DType::q5_0:
        return block(reinterpret_cast<BlockQ5_0*>(data));
      case DType::q5_1:
        return block(reinterpret_cast<BlockQ5_1*>(data));
      case DType::q8_0: {
        auto* b = reinterpret_cast<BlockQ8_0*>(data);
        if (values == Values::largest) std::memset(b->q, 0x80, sizeof(b->q));
        return block(b);
      }
      case DType::q4_k:
        return block(reinterpret_cast<BlockQ4_K*>(data));
      case DType::q5_k:
        return block(reinterpret_cast<BlockQ5_K*>(data));
      case DType::q6_k: {
        auto* b = reinterpret_cast<BlockQ6_K*>(data);
        if (values == Values::largest) std::memset(b->scales, 0x80, sizeof(b->scales));
        return block(b);
      }
      case DType::f16:
      case DType::bf16: {
        const float value = 0.1f * uniform(random);
        uint16_t bits = float_to_half(value);
        if (view.type == DType::bf16) {
          uint32_t whole;
          std::memcpy(&whole, &value, sizeof(whole));
          bits = static_cast<uint16_t>(whole >> 16);
        }
        std::memcpy(data, &bits, sizeof(bits));
        return;
      }
      case DType::f32: {
        const float value = 0.1f * uniform(random);
        std::memcpy(data, &value, sizeof(value));
        return;
      }
    }
  }
};

}  // namespace coppice::test
