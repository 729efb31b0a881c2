// Holds back the beginning of a character until the ids that end it arrive.
#include "core/tokenizer.h"
#include "core/utf8.h"

namespace coppice {

std::string TextStream::push(int32_t id) {
  held_ += tokenizer_->piece(id);
  std::string text;
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Sequence front = utf8_front(std::string_view(held_).substr(at));
    if (front.kind == Utf8Kind::unfinished) break;
    text += front.kind == Utf8Kind::character ? std::string_view(held_).substr(at, front.length)
                                              : kReplacementCharacter;
    at += front.length;
  }
  held_.erase(0, at);
  return text;
}

std::string TextStream::finish() {
  const std::string text = replace_ill_formed(held_);
  held_.clear();
  return text;
}

}  // namespace coppice
