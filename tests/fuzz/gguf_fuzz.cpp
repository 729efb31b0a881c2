// Any bytes as a model file: reader, model and vocabulary either accept them or throw an Error of
// one printable line, and every tensor's bytes can be read.
//
//   build/debug/fuzz/gguf_fuzz -max_total_time=60 -rss_limit_mb=2048 tests/fuzz/corpus/gguf
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/gguf.h"
#include "core/model_source.h"
#include "core/tokenizer.h"
#include "kernels/base/error.h"

namespace {

/// What must not be lost to the optimiser: the address sanitizer watches these reads.
volatile unsigned sink;

template <class Attempt>
void error_or_success(Attempt attempt) {
  try {
    attempt();
  } catch (const coppice::Error& error) {
    for (const char c : std::string_view(error.what())) {
      COPPICE_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    }
  }
}

void read_everything(const coppice::GgufFile& file) {
  unsigned sum = 0;
  for (const coppice::GgufTensor& tensor : file.tensors()) {
    for (int64_t row = 0; row < tensor.view.rows; ++row) {
      const std::byte* bytes = tensor.view.row(row);
      for (size_t i = 0; i < tensor.view.row_bytes(); ++i) sum += static_cast<unsigned>(bytes[i]);
    }
  }
  sink = sum;
  error_or_success([&] { coppice::read_model(file); });
  error_or_success([&] { coppice::read_vocabulary(file); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  error_or_success(
      [&] { read_everything(coppice::GgufFile("fuzz", std::as_bytes(std::span(data, size)))); });
  return 0;
}
