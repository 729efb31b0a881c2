// Any bytes as a datastore, their checksum put right so that what lies behind it is reached: it is
// refused with an Error of one printable line, or can be searched.
//
//   build/debug/fuzz/datastore_fuzz -max_total_time=60 -rss_limit_mb=2048
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "core/datastore.h"
#include "kernels/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint64_t> aligned(size / 8 + 1);
  if (size > 0) std::memcpy(aligned.data(), data, size);
  const auto image = std::as_writable_bytes(std::span(aligned)).first(size);
  if (size >= coppice::kDatastoreHeader) {
    const uint64_t sum = coppice::datastore_checksum(image.subspan(coppice::kDatastoreHeader));
    std::memcpy(image.data() + coppice::kDatastoreHeader - sizeof sum, &sum, sizeof sum);
  }
  try {
    const coppice::Datastore store("fuzz", image);
    const std::vector<int32_t> context = {store.token(0, 0), store.token(0, 1)};
    const auto range = store.find(context);
    for (size_t place = range.first; place < range.last; ++place) store.token(place, 2);
  } catch (const coppice::Error& error) {
    for (const char c : std::string_view(error.what())) {
      COPPICE_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    }
  }
  return 0;
}
