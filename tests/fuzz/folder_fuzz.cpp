// Any bytes as a config.json and as a tokenizer.json: each reader either accepts them or throws an
// Error of one printable line; a tokenizer that was accepted encodes.
//
//   build/debug/fuzz/folder_fuzz tests/fuzz/corpus/folder -max_total_time=60 -rss_limit_mb=2048
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/folder_config.h"
#include "core/folder_vocabulary.h"
#include "kernels/base/error.h"

namespace {

template <class Call>
void error_or_success(const Call& call) {
  try {
    call();
  } catch (const coppice::Error& error) {
    for (const char c : std::string_view(error.what())) {
      COPPICE_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  error_or_success([&] {
    const auto object = coppice::JsonObject::parse("fuzz", text);
    error_or_success([&] { coppice::read_folder_config(object); });
    error_or_success([&] {
      const coppice::Tokenizer tokenizer(coppice::read_tokenizer_json(object, 1000));
      tokenizer.encode("he said: 12 \n\n<s>", coppice::SpecialText::parsed);
    });
  });
  return 0;
}
