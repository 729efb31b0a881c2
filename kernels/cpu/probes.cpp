// See probes.h. Functions carry their instruction set as an attribute: no caller runs one that the
// machine lacks, since targets are those of the cpu backend.
#include "kernels/cpu/probes.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace coppice::cpu {
namespace {

constexpr size_t kLine = 64;  // bytes of a cache line

/// Calls the reader for the pattern's number of streams.
template <class Reader>
uint64_t read_with(const uint8_t* data, size_t bytes, const ReadPattern& pattern) {
  const auto ahead = static_cast<size_t>(pattern.ahead);
  switch (pattern.streams) {
    case 8:
      return Reader::template read<8>(data, bytes, ahead);
    case 4:
      return Reader::template read<4>(data, bytes, ahead);
    case 2:
      return Reader::template read<2>(data, bytes, ahead);
    default:
      return Reader::template read<1>(data, bytes, ahead);
  }
}

// Keeps the compiler from hoisting what is computed from a register's value out of a loop.
#if defined(__aarch64__)
#define COPPICE_RENEW(value) asm volatile("" : "+w"(value))
#elif defined(__x86_64__)
#define COPPICE_RENEW(value) asm volatile("" : "+v"(value))
#else
#define COPPICE_RENEW(value) asm volatile("" : "+m"(value))
#endif

struct Scalar {
  template <int kStreams>
  static uint64_t read(const uint8_t* data, size_t bytes, size_t ahead) {
    const size_t part = bytes / kStreams;
    uint64_t sum[kLine / sizeof(uint64_t)] = {};
    for (size_t i = 0; i < part; i += kLine) {
      for (int s = 0; s < kStreams; ++s) {
        const uint8_t* line = data + static_cast<size_t>(s) * part + i;
        __builtin_prefetch(line + ahead, 0, 2);
        uint64_t words[kLine / sizeof(uint64_t)];
        std::memcpy(words, line, sizeof words);
        for (size_t w = 0; w < kLine / sizeof(uint64_t); ++w) sum[w] += words[w];
      }
    }
    uint64_t total = 0;
    for (const uint64_t word : sum) total += word;
    return total;
  }

  static constexpr int kChains = 32;
  static double multiply_add(int64_t rounds) {
    float sum[kChains] = {};
    for (int64_t i = 0; i < rounds; ++i) {
      float x = 1.0f;
      COPPICE_RENEW(x);
      for (float& s : sum) s += x * x;
    }
    double total = 0.0;
    for (const float s : sum) total += double{s};
    return total;
  }
  static int64_t dot(int64_t rounds) {
    int sum[kChains] = {};
    for (int64_t i = 0; i < rounds; ++i) {
      float one = 1.0f;
      COPPICE_RENEW(one);
      const int x = static_cast<int>(one);
      for (int& s : sum) s += x * x;
    }
    int64_t total = 0;
    for (const int s : sum) total += s;
    return total;
  }
};

#if defined(__x86_64__)

#define COPPICE_AVX2 [[gnu::target("avx2,fma")]]
#define COPPICE_AVX512 [[gnu::target("avx512f,avx512bw")]]
#define COPPICE_VNNI [[gnu::target("avx512f,avx512bw,avx512vnni")]]

struct Avx2 {
  template <int kStreams>
  COPPICE_AVX2 static uint64_t read(const uint8_t* data, size_t bytes, size_t ahead) {
    const size_t part = bytes / kStreams;
    __m256i sum[kStreams];
    for (__m256i& s : sum) s = _mm256_setzero_si256();
    for (size_t i = 0; i < part; i += kLine) {
      for (int s = 0; s < kStreams; ++s) {
        const uint8_t* line = data + static_cast<size_t>(s) * part + i;
        __builtin_prefetch(line + ahead, 0, 2);
        const auto* half = reinterpret_cast<const __m256i*>(line);
        sum[s] = _mm256_add_epi64(
            sum[s], _mm256_add_epi64(_mm256_load_si256(half), _mm256_load_si256(half + 1)));
      }
    }
    for (int s = 1; s < kStreams; ++s) sum[0] = _mm256_add_epi64(sum[0], sum[s]);
    uint64_t words[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), sum[0]);
    return words[0] + words[1] + words[2] + words[3];
  }

  static constexpr int kChains = 12;  // 4 cycles of latency, up to 3 a cycle; 16 registers
  COPPICE_AVX2 static double multiply_add(int64_t rounds) {
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 sum[kChains];
    for (__m256& s : sum) s = _mm256_setzero_ps();
    for (int64_t i = 0; i < rounds; ++i) {
      for (__m256& s : sum) s = _mm256_fmadd_ps(one, one, s);
    }
    double total = 0.0;
    for (const __m256& s : sum) {
      float lanes[8];
      _mm256_storeu_ps(lanes, s);
      for (const float lane : lanes) total += double{lane};
    }
    return total;
  }

  // Sums stay in 16 bits over 8 products of pairs: 8 x 2 x 15 x 127 fits.
  static constexpr int kDotChains = 4;
  COPPICE_AVX2 static int64_t dot(int64_t rounds) {
    __m256i weight = _mm256_set1_epi8(1);
    const __m256i value = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
    __m256i sum[kDotChains];
    for (__m256i& s : sum) s = _mm256_setzero_si256();
    for (int64_t i = 0; i < rounds; ++i) {
      for (__m256i& s : sum) {
        COPPICE_RENEW(weight);
        __m256i pairs = _mm256_maddubs_epi16(weight, value);
        for (int k = 1; k < 8; ++k) {
          COPPICE_RENEW(weight);
          pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(weight, value));
        }
        s = _mm256_add_epi32(s, _mm256_madd_epi16(pairs, ones));
      }
    }
    int64_t total = 0;
    for (const __m256i& s : sum) {
      int32_t lanes[8];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), s);
      for (const int32_t lane : lanes) total += lane;
    }
    return total;
  }
};

COPPICE_AVX512 int64_t lane_sum(__m512i sum) {
  int32_t lanes[16];
  _mm512_storeu_si512(lanes, sum);
  int64_t total = 0;
  for (const int32_t lane : lanes) total += lane;
  return total;
}

struct Avx512 {
  template <int kStreams>
  COPPICE_AVX512 static uint64_t read(const uint8_t* data, size_t bytes, size_t ahead) {
    const size_t part = bytes / kStreams;
    __m512i sum[kStreams];
    for (__m512i& s : sum) s = _mm512_setzero_si512();
    for (size_t i = 0; i < part; i += kLine) {
      for (int s = 0; s < kStreams; ++s) {
        const uint8_t* line = data + static_cast<size_t>(s) * part + i;
        __builtin_prefetch(line + ahead, 0, 2);
        sum[s] = _mm512_add_epi64(sum[s], _mm512_load_si512(line));
      }
    }
    for (int s = 1; s < kStreams; ++s) sum[0] = _mm512_add_epi64(sum[0], sum[s]);
    uint64_t words[8];
    _mm512_storeu_si512(words, sum[0]);
    uint64_t total = 0;
    for (const uint64_t word : words) total += word;
    return total;
  }

  static constexpr int kChains = 16;
  COPPICE_AVX512 static double multiply_add(int64_t rounds) {
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 sum[kChains];
    for (__m512& s : sum) s = _mm512_setzero_ps();
    for (int64_t i = 0; i < rounds; ++i) {
      for (__m512& s : sum) s = _mm512_fmadd_ps(one, one, s);
    }
    double total = 0.0;
    for (const __m512& s : sum) {
      float lanes[16];
      _mm512_storeu_ps(lanes, s);
      for (const float lane : lanes) total += double{lane};
    }
    return total;
  }

  static constexpr int kDotChains = 4;
  COPPICE_AVX512 static int64_t dot(int64_t rounds) {
    __m512i weight = _mm512_set1_epi8(1);
    const __m512i value = _mm512_set1_epi8(1), ones = _mm512_set1_epi16(1);
    __m512i sum[kDotChains];
    for (__m512i& s : sum) s = _mm512_setzero_si512();
    for (int64_t i = 0; i < rounds; ++i) {
      for (__m512i& s : sum) {
        COPPICE_RENEW(weight);
        __m512i pairs = _mm512_maddubs_epi16(weight, value);
        for (int k = 1; k < 8; ++k) {
          COPPICE_RENEW(weight);
          pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(weight, value));
        }
        s = _mm512_add_epi32(s, _mm512_madd_epi16(pairs, ones));
      }
    }
    int64_t total = 0;
    for (const __m512i& s : sum) total += lane_sum(s);
    return total;
  }
};

struct Avx512Vnni : Avx512 {
  static constexpr int kDotChains = 16;  // 5 cycles of latency, up to 2 a cycle
  COPPICE_VNNI static int64_t dot(int64_t rounds) {
    const __m512i one = _mm512_set1_epi8(1);
    __m512i sum[kDotChains];
    for (__m512i& s : sum) s = _mm512_setzero_si512();
    for (int64_t i = 0; i < rounds; ++i) {
      for (__m512i& s : sum) s = _mm512_dpbusd_epi32(s, one, one);
    }
    int64_t total = 0;
    for (const __m512i& s : sum) total += lane_sum(s);
    return total;
  }
};

#undef COPPICE_AVX2
#undef COPPICE_AVX512
#undef COPPICE_VNNI

#elif defined(__aarch64__)

struct Neon {
  template <int kStreams>
  static uint64_t read(const uint8_t* data, size_t bytes, size_t ahead) {
    const size_t part = bytes / kStreams;
    uint64x2_t sum[kStreams];
    for (uint64x2_t& s : sum) s = vdupq_n_u64(0);
    for (size_t i = 0; i < part; i += kLine) {
      for (int s = 0; s < kStreams; ++s) {
        const uint8_t* line = data + static_cast<size_t>(s) * part + i;
        __builtin_prefetch(line + ahead, 0, 2);
        const uint64x2x4_t words = vld1q_u64_x4(reinterpret_cast<const uint64_t*>(line));
        sum[s] = vaddq_u64(sum[s], vaddq_u64(vaddq_u64(words.val[0], words.val[1]),
                                             vaddq_u64(words.val[2], words.val[3])));
      }
    }
    for (int s = 1; s < kStreams; ++s) sum[0] = vaddq_u64(sum[0], sum[s]);
    return vaddvq_u64(sum[0]);
  }

  static constexpr int kChains = 16;
  static double multiply_add(int64_t rounds) {
    const float32x4_t one = vdupq_n_f32(1.0f);
    float32x4_t sum[kChains];
    for (float32x4_t& s : sum) s = vdupq_n_f32(0.0f);
    for (int64_t i = 0; i < rounds; ++i) {
      for (float32x4_t& s : sum) s = vfmaq_f32(s, one, one);
    }
    double total = 0.0;
    for (const float32x4_t& s : sum) total += double{vaddvq_f32(s)};
    return total;
  }

  static constexpr int kDotChains = 16;
  [[gnu::target("arch=armv8.2-a+dotprod")]] static int64_t dot(int64_t rounds) {
    const int8x16_t one = vdupq_n_s8(1);
    int32x4_t sum[kDotChains];
    for (int32x4_t& s : sum) s = vdupq_n_s32(0);
    for (int64_t i = 0; i < rounds; ++i) {
      for (int32x4_t& s : sum) s = vdotq_s32(s, one, one);
    }
    int64_t total = 0;
    for (const int32x4_t& s : sum) total += vaddvq_s32(s);
    return total;
  }
};

#endif

#undef COPPICE_RENEW

// The last is what a target without probes of its own gets.
constexpr MachineProbes kProbes[] = {
#if defined(__x86_64__)
    {"avx512_vnni", read_with<Avx512Vnni>, Avx512Vnni::multiply_add, 16 * Avx512Vnni::kChains,
     Avx512Vnni::dot, 64 * Avx512Vnni::kDotChains},
    {"avx512", read_with<Avx512>, Avx512::multiply_add, 16 * Avx512::kChains, Avx512::dot,
     8 * 64 * Avx512::kDotChains},
    {"avx2", read_with<Avx2>, Avx2::multiply_add, 8 * Avx2::kChains, Avx2::dot,
     8 * 32 * Avx2::kDotChains},
#elif defined(__aarch64__)
    {"neon", read_with<Neon>, Neon::multiply_add, 4 * Neon::kChains, Neon::dot,
     16 * Neon::kDotChains},
#endif
    {"scalar", read_with<Scalar>, Scalar::multiply_add, Scalar::kChains, Scalar::dot,
     Scalar::kChains},
};

}  // namespace

const MachineProbes& machine_probes(std::string_view target) {
  const auto* found = std::find_if(std::begin(kProbes), std::end(kProbes),
                                   [&](const MachineProbes& p) { return p.target == target; });
  return found != std::end(kProbes) ? *found : *(std::end(kProbes) - 1);
}

}  // namespace coppice::cpu
