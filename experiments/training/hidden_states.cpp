// See hidden_states.h.
#include "experiments/training/hidden_states.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr int kChunk = 256;
constexpr float kLargestHalf = 65504.0f;

int longest(std::span<const TrainText> texts) {
  size_t most = 1;
  for (const TrainText& text : texts) most = std::max(most, text.tokens.size());
  return static_cast<int>(most);
}

}  // namespace

HiddenStates::HiddenStates(const Model& model, Backend& backend, std::vector<int> taps,
                           std::span<const TrainText> texts, const std::filesystem::path& folder,
                           size_t most_bytes)
    : model_(&model),
      taps_(std::move(taps)),
      texts_(texts),
      cache_(backend, model.kv_shapes(), KVCache::pages_for(longest(texts))),
      workspace_(model, backend, {.rows = kChunk, .taps = static_cast<int>(taps_.size())}) {
  size_t values = 0;
  for (const TrainText& text : texts) {
    const size_t more = values_of(text);
    const bool fits = (values + more) * sizeof(uint16_t) <= most_bytes;
    places_.push_back({values, fits});
    if (fits) values += more;
  }
  bytes_ = values * sizeof(uint16_t);
  if (bytes_ == 0) return;
  const std::string path = (folder / "hidden-states").string();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  // Nobody else reads it: without a name it is gone when the run is.
  if (file >= 0) ::unlink(path.c_str());
  void* mapped = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes_)) == 0) {
    mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int reason = errno;
  if (file >= 0) ::close(file);
  if (mapped == MAP_FAILED) {
    throw Failure("{}: cannot be made with {} bytes: {}", path, bytes_, std::strerror(reason));
  }
  stored_ = static_cast<uint16_t*>(mapped);
}

HiddenStates::~HiddenStates() {
  if (stored_ != nullptr) ::munmap(stored_, bytes_);
}

size_t HiddenStates::values_of(const TrainText& text) const {
  return taps_.size() * text.tokens.size() * static_cast<size_t>(model_->config().dim);
}

void HiddenStates::read(size_t text, std::vector<float>& out) {
  Place& place = places_[text];
  const size_t values = values_of(texts_[text]);
  const uint16_t* halves = place.there ? stored_ + place.first : nullptr;
  if (halves == nullptr) {
    compute(texts_[text]);
    halves = halves_.data();
    if (place.fits) {
      std::copy_n(halves, values, stored_ + place.first);
      place.there = true;
    }
  }
  out.resize(values);
  for (size_t i = 0; i < values; ++i) out[i] = half_to_float(halves[i]);
}

void HiddenStates::compute(const TrainText& text) {
  const auto dim = static_cast<size_t>(model_->config().dim);
  const size_t tokens = text.tokens.size();
  halves_.resize(values_of(text));
  const SeqId sequence = cache_.open();
  for (size_t first = 0; first < tokens; first += kChunk) {
    const size_t count = std::min<size_t>(kChunk, tokens - first);
    auto tail = cache_.reserve(sequence, static_cast<int>(count));
    COPPICE_CHECK(tail.has_value());
    packed_.clear();
    packed_.add(std::span(text.tokens).subspan(first, count), nullptr, static_cast<int>(first),
                cache_.pages(sequence), false);
    ForwardBatch batch = packed_.batch();
    batch.tap_layers = taps_;
    const ForwardOutput output = model_->forward(batch, cache_, workspace_);
    for (size_t tap = 0; tap < taps_.size(); ++tap) {
      for (size_t row = 0; row < count; ++row) {
        const float* state = output.tap(static_cast<int>(tap), static_cast<int>(row));
        uint16_t* to = halves_.data() + (tap * tokens + first + row) * dim;
        for (size_t i = 0; i < dim; ++i) {
          to[i] = float_to_half(std::clamp(state[i], -kLargestHalf, kLargestHalf));
        }
      }
    }
    cache_.commit_all(std::move(*tail));
  }
  cache_.close(sequence);
}

}  // namespace coppice
