// The cpu backend's matrix products, every type on every instruction set of this machine: against
// doubles over dequantised weights, bit for bit between instruction sets, row counts and splits,
// and at the values where 16-bit sums would overflow.
#include "kernels/cpu/products.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "kernels/base/error.h"
#include "tests/products_oracle.h"
#include "tests/random_weights.h"

namespace coppice::cpu {
namespace {

using test::RandomWeight;
using test::Values;

constexpr DType kTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,
                            DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                            DType::q4_k, DType::q5_k, DType::q6_k};

std::string name_of(DType type) {
  return std::string(traits(type).name);
}

void serial_for(int count, const std::function<void(int)>& body) {
  for (int i = 0; i < count; ++i) body(i);
}

PackedWeight pack(const std::vector<RandomWeight>& parts,
                  Stacking stacking = Stacking::concatenated) {
  std::vector<TensorView> views;
  for (const RandomWeight& part : parts) views.push_back(part.view);
  return PackedWeight(views, stacking, std::make_shared<PanelMemory>(), serial_for);
}
PackedWeight pack(const RandomWeight& part) {
  return PackedWeight({&part.view, 1}, Stacking::concatenated, std::make_shared<PanelMemory>(),
                      serial_for);
}

std::vector<float> random_rows(int rows, int inputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(inputs));
  for (float& value : x) value = normal(random);
  return x;
}

/// Rows quantised by an instruction set, in memory that was full of NaN before.
struct QuantisedRows {
  QuantisedRows(const ProductKernels& kernels, const std::vector<float>& x, int rows, int inputs)
      : integers(integer_bytes(rows, inputs) / sizeof(IntegerBlock)),
        floats(float_bytes(rows, inputs) / sizeof(FloatBlock)) {
    std::memset(static_cast<void*>(integers.data()), 0xff, integer_bytes(rows, inputs));
    std::memset(static_cast<void*>(floats.data()), 0xff, float_bytes(rows, inputs));
    const bool whole_blocks = inputs % kBlock == 0;  // else only float weights can read them
    activations = {rows, inputs, whole_blocks ? integers.data() : nullptr, floats.data()};
    for (int r = 0; r < rows; ++r) {
      kernels.quantise(x.data() + static_cast<size_t>(r) * static_cast<size_t>(inputs), r, 0,
                       cpu::block_count(inputs), activations);
    }
  }
  std::vector<IntegerBlock> integers;
  std::vector<FloatBlock> floats;
  Activations activations;
};

/// W x with outputs apart by `stride`; what is not written stays as it was, `before`.
std::vector<float> multiply(const ProductKernels& kernels, const PackedWeight& weight,
                            const std::vector<float>& x, int rows, const Epilogue& epilogue = {},
                            float before = 0.0f) {
  const QuantisedRows quantised(kernels, x, rows, weight.inputs);
  std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(weight.outputs), before);
  kernels.multiply(weight.panels(), quantised.activations, 0, weight.panels().count, epilogue,
                   y.data(), weight.outputs);
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class EverySet : public testing::TestWithParam<const ProductKernels*> {};

INSTANTIATE_TEST_SUITE_P(Products, EverySet,
                         testing::ValuesIn(product_kernels().begin(), product_kernels().end()),
                         [](const auto& set) { return std::string(set.param->name); });

TEST_P(EverySet, LiesWithinTheBoundOfTheOracle) {
  constexpr int kInputs = 768, kRows = 5;
  const std::vector<float> x = random_rows(kRows, kInputs, 11);
  for (DType type : kTypes) {
    for (int outputs : {1, 7, 16, 33}) {
      const RandomWeight w(type, outputs, kInputs, 5);
      const std::vector<float> y = multiply(*GetParam(), pack(w), x, kRows);
      for (int r = 0; r < kRows; ++r) {
        for (int o = 0; o < outputs; ++o) {
          const auto expected = test::expected_product(w.view, o, x.data() + r * kInputs);
          ASSERT_NEAR(y[static_cast<size_t>(r * outputs + o)], expected.value, expected.bound)
              << name_of(type) << " row " << r << " output " << o << " of " << outputs;
        }
      }
    }
  }
}

TEST_P(EverySet, GivesTheBitsOfTheScalarSet) {
  constexpr int kInputs = 1024, kOutputs = 24, kRows = 9;
  const ProductKernels& scalar = *product_kernels().back();
  for (DType type : kTypes) {
    for (Values values : {Values::random, Values::largest}) {
      const RandomWeight w(type, kOutputs, kInputs, 6, values);
      std::vector<float> x = random_rows(kRows, kInputs, 12);
      for (int k = 0; k < 2 * kInputs; ++k) x[static_cast<size_t>(k)] = k < kInputs ? 3.0f : -3.0f;
      const PackedWeight packed = pack(w);
      EXPECT_TRUE(
          same_bits(multiply(*GetParam(), packed, x, kRows), multiply(scalar, packed, x, kRows)))
          << name_of(type);
    }
  }
}

/// All values at their largest, so that a saturated 16-bit sum cannot pass: the integer sums are
/// then known, and a block's product is exact.
TEST_P(EverySet, DoesNotSaturate) {
  for (DType type : kTypes) {
    const int inputs = traits(type).block_values == 256 ? 256 : 32;
    const RandomWeight w(type, 16, inputs, 7, Values::largest);
    const PackedWeight packed = pack(w);
    std::vector<float> weights(static_cast<size_t>(inputs));
    for (float sign : {127.0f, -127.0f}) {
      const std::vector<float> x(static_cast<size_t>(inputs), sign);  // scale 1, value +-127
      const std::vector<float> y = multiply(*GetParam(), packed, x, 1);
      for (int o = 0; o < 16; ++o) {
        dequantise_row(w.view, o, weights);
        double sum = 0.0, magnitude = 0.0;
        for (int k = 0; k < inputs; ++k) {
          const double wk = double{weights[static_cast<size_t>(k)]};
          sum += wk * double{sign};
          magnitude += (std::fabs(wk) + 2.0 * std::fabs(test::minimum_at(w.view, o, k))) * 127.0;
        }
        EXPECT_NEAR(y[static_cast<size_t>(o)], sum, magnitude * 0x1p-20) << name_of(type);
      }
    }
  }
}

TEST_P(EverySet, RowsDoNotDependOnTheRowsBesideThem) {
  constexpr int kInputs = 512, kOutputs = 40, kRows = 70;
  const std::vector<float> x = random_rows(kRows, kInputs, 13);
  for (DType type : kTypes) {
    const PackedWeight packed = pack(RandomWeight(type, kOutputs, kInputs, 8));
    std::vector<float> alone;
    for (int r = 0; r < kRows; ++r) {
      const std::vector<float> row(x.begin() + r * kInputs, x.begin() + (r + 1) * kInputs);
      const std::vector<float> y = multiply(*GetParam(), packed, row, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    const bool scalar = std::string(GetParam()->name) == "scalar";
    for (int rows = 1; rows <= kRows; rows += scalar && rows > 10 ? 20 : 1) {
      const std::vector<float> y = multiply(*GetParam(), packed, x, rows);
      ASSERT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0)
          << name_of(type) << ", " << rows << " rows";
    }
  }
}

TEST_P(EverySet, AnySplitOfThePanelsGivesTheSameBits) {
  constexpr int kInputs = 256, kRows = 11;
  std::vector<RandomWeight> parts;
  for (const auto& [type, outputs] :
       {std::pair(DType::q4_k, 48), {DType::f16, 7}, {DType::q6_k, 33}}) {
    parts.emplace_back(type, outputs, kInputs, parts.size());
  }
  const PackedWeight packed = pack(parts);
  const Panels& panels = packed.panels();
  EXPECT_EQ(panels.count, 3 + 1 + 3);
  EXPECT_EQ(packed.outputs, 48 + 7 + 33);
  EXPECT_TRUE(panels.reads_integers && panels.reads_floats);
  const std::vector<float> x = random_rows(kRows, kInputs, 14);
  const std::vector<float> whole = multiply(*GetParam(), packed, x, kRows);
  const QuantisedRows quantised(*GetParam(), x, kRows, kInputs);
  for (int size : {1, 2, 3, 5}) {
    std::vector<float> y(whole.size());
    for (int first = 0; first < panels.count; first += size) {
      GetParam()->multiply(panels, quantised.activations, first,
                           std::min(first + size, panels.count), {}, y.data(), packed.outputs);
    }
    EXPECT_TRUE(same_bits(y, whole)) << "by " << size;
  }
  int begin = 0;  // each part is what it is alone
  for (const RandomWeight& part : parts) {
    const std::vector<float> y = multiply(*GetParam(), pack(part), x, kRows);
    for (int r = 0; r < kRows; ++r) {
      EXPECT_EQ(
          std::memcmp(y.data() + r * part.view.rows, whole.data() + r * packed.outputs + begin,
                      static_cast<size_t>(part.view.rows) * sizeof(float)),
          0);
    }
    begin += static_cast<int>(part.view.rows);
  }
}

TEST_P(EverySet, FinishesWithBiasActivationAndAddition) {
  constexpr int kInputs = 64, kOutputs = 19, kRows = 3;
  const RandomWeight w(DType::q8_0, kOutputs, kInputs, 9);
  const PackedWeight packed = pack(w);
  const std::vector<float> x = random_rows(kRows, kInputs, 15), bias = random_rows(1, kOutputs, 16);
  const std::vector<float> plain = multiply(*GetParam(), packed, x, kRows);
  for (Activation activation : {Activation::none, Activation::silu, Activation::gelu_tanh}) {
    const Epilogue epilogue{bias.data(), activation, true};
    const std::vector<float> y = multiply(*GetParam(), packed, x, kRows, epilogue, 2.0f);
    for (size_t i = 0; i < y.size(); ++i) {
      const double v = double{plain[i]} + double{bias[i % kOutputs]};
      const double gelu =
          0.5 * v * (1.0 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
      const double expected = activation == Activation::none   ? v
                              : activation == Activation::silu ? v / (1.0 + std::exp(-v))
                                                               : gelu;
      EXPECT_NEAR(y[i], 2.0 + expected, 1e-6 * (3.0 + std::fabs(v)));
    }
  }
}

TEST_P(EverySet, ActivationsHoldFarFromZero) {
  const std::vector<float> extremes = {0.0f,   -0.0f, 1e-30f, 5.0f, -5.0f, 20.0f,
                                       -20.0f, 90.0f, -90.0f, 1e4f, -1e4f, 1e18f};
  const int n = static_cast<int>(extremes.size());
  std::vector<RandomWeight> one;  // 1 x 1, so that y is the bias
  one.emplace_back(DType::f32, n, 1, 1);
  const PackedWeight packed = pack(one);
  for (Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    const std::vector<float> y =
        multiply(*GetParam(), packed, {0.0f}, 1, {extremes.data(), activation, false});
    for (int i = 0; i < n; ++i) {
      const double v = double{extremes[static_cast<size_t>(i)]};
      const double z =
          activation == Activation::silu ? v : 1.5957691216057308 * (v + 0.044715 * v * v * v);
      EXPECT_NEAR(y[static_cast<size_t>(i)], v / (1.0 + std::exp(-z)), 4e-7 * std::fabs(v)) << v;
    }
  }
}

TEST_P(EverySet, GatedWeightsMultiplyTheActivatedGateByUp) {
  constexpr int kInputs = 256, kOutputs = 37, kRows = 18;
  const std::vector<float> x = random_rows(kRows, kInputs, 17);
  std::vector<RandomWeight> parts;
  parts.emplace_back(DType::q4_k, kOutputs, kInputs, 1);
  parts.emplace_back(DType::q5_0, kOutputs, kInputs, 2);
  const PackedWeight gated = pack(parts, Stacking::gated);
  EXPECT_EQ(gated.outputs, kOutputs);
  EXPECT_EQ(gated.panels().count, 3);
  const Epilogue silu{nullptr, Activation::silu, false};
  const std::vector<float> y = multiply(*GetParam(), gated, x, kRows, silu);
  std::vector<float> expected = multiply(*GetParam(), pack(parts[0]), x, kRows, silu);
  const std::vector<float> up = multiply(*GetParam(), pack(parts[1]), x, kRows);
  for (size_t i = 0; i < up.size(); ++i) expected[i] *= up[i];
  EXPECT_TRUE(same_bits(y, expected));
}

TEST_P(EverySet, NaNAndInfinityReachEveryOutputOfTheirRowAlone) {
  constexpr int kInputs = 512, kOutputs = 20, kRows = 6;
  for (DType type : kTypes) {
    const PackedWeight packed = pack(RandomWeight(type, kOutputs, kInputs, 10));
    const std::vector<float> x = random_rows(kRows, kInputs, 18);
    const std::vector<float> clean = multiply(*GetParam(), packed, x, kRows);
    for (float flaw :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (int k : {0, 21, 500}) {
        std::vector<float> flawed = x;
        flawed[static_cast<size_t>(3 * kInputs + k)] = flaw;
        const std::vector<float> y = multiply(*GetParam(), packed, flawed, kRows);
        for (size_t i = 0; i < y.size(); ++i) {
          if (i / kOutputs == 3) {
            EXPECT_FALSE(std::isfinite(y[i])) << name_of(type);
          } else {
            EXPECT_EQ(y[i], clean[i]);
          }
        }
      }
    }
  }
}

TEST_P(EverySet, QuantisesToTheNearestEvenInteger) {
  std::vector<float> x(64, 0.0f);
  const float values[] = {127.0f, -127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49f, 126.5f};
  const int expected[] = {127, -127, 0, 2, 2, 0, -2, 0, 126};
  std::memcpy(x.data(), values, sizeof(values));
  x[32] = 1e-36f;  // a block of nothing but tiny values is zero
  const QuantisedRows quantised(*GetParam(), x, 1, 64);
  const IntegerBlock& block = quantised.integers[0];
  int sum = 0;
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(block.value[0][i], expected[i]);
    sum += expected[i];
  }
  EXPECT_EQ(block.scale[0], 1.0f);
  EXPECT_EQ(block.sum[0], static_cast<float>(sum));
  EXPECT_EQ(block.minus_8_sum[0], -8 * sum);
  EXPECT_EQ(block.minus_16_sum[0], -16 * sum);
  EXPECT_EQ(block.minus_128_sum[0], -128 * sum);
  EXPECT_EQ(block.minus_32_half_sum[0][0], -32 * sum);
  EXPECT_EQ(block.minus_32_half_sum[1][0], 0);
  EXPECT_EQ(quantised.integers[1].scale[0], 0.0f);
  EXPECT_EQ(quantised.integers[1].value[0][0], 0);
}

TEST(PackedWeight, GivesRowsBackBitForBit) {
  constexpr int kInputs = 512, kOutputs = 35;
  for (DType type : kTypes) {
    const RandomWeight w(type, kOutputs, kInputs, 20);
    const PackedWeight packed = pack(w);
    std::vector<float> expected(kInputs), got(kInputs);
    for (int r = 0; r < kOutputs; ++r) {
      dequantise_row(w.view, r, expected);
      embed_row(packed.panels(), r, 1.0f, got.data());
      EXPECT_TRUE(same_bits(got, expected)) << name_of(type);
      embed_row(packed.panels(), r, 24.0f, got.data());
      for (float& value : expected) value *= 24.0f;
      EXPECT_TRUE(same_bits(got, expected)) << name_of(type);
    }
  }
}

TEST(PackedWeight, HoldsLittleMoreThanItsFile) {
  for (DType type : kTypes) {
    const RandomWeight w(type, 64, 1024, 21);
    const PackedWeight packed = pack(w);
    EXPECT_LE(static_cast<double>(packed.bytes), 1.03 * static_cast<double>(w.view.bytes()))
        << name_of(type);
  }
}

TEST(PackedWeight, RefusesPartsThatDoNotFit) {
  const RandomWeight a(DType::q8_0, 16, 64, 1), b(DType::q8_0, 16, 96, 1),
      c(DType::q8_0, 17, 64, 1);
  const auto memory = std::make_shared<PanelMemory>();
  const TensorView unequal[] = {a.view, b.view}, uneven[] = {a.view, c.view};
  EXPECT_THROW(PackedWeight(unequal, Stacking::concatenated, memory, serial_for), Error);
  EXPECT_THROW(PackedWeight(uneven, Stacking::gated, memory, serial_for), Error);
}

}  // namespace
}  // namespace coppice::cpu
