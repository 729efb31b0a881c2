// Any bytes as a safetensors file: the reader either accepts them or throws an Error of one
// printable line, and every tensor's bytes can be read.
//
//   build/debug/fuzz/safetensors_fuzz -max_total_time=60 -rss_limit_mb=2048
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>

#include "core/safetensors.h"
#include "kernels/base/error.h"

namespace {

/// What must not be lost to the optimiser: the address sanitizer watches these reads.
volatile unsigned sink;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const coppice::SafetensorsFile file("fuzz", std::as_bytes(std::span(data, size)));
    unsigned sum = 0;
    for (const coppice::SafeTensor& tensor : file.tensors()) {
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
    }
    sink = sum;
  } catch (const coppice::Error& error) {
    for (const char c : std::string_view(error.what())) {
      COPPICE_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    }
  }
  return 0;
}
