// A list of texts, the last one used first, from whose end texts are dropped.
#include "stream/text_cache.h"

namespace evenkeel::stream {
namespace {

constexpr size_t kMostTexts = 256;  // of which Find looks at each

}  // namespace

TextCache::Ids TextCache::Find(const SampleRef& ref) {
  MutexLock lock(mutex_);
  for (auto it = recent_.begin(); it != recent_.end(); ++it) {
    if (it->first != Name(ref.dataset, ref.index)) continue;
    recent_.splice(recent_.begin(), recent_, it);
    return it->second;
  }
  return nullptr;
}

void TextCache::Keep(const SampleRef& ref, Ids ids) {
  const auto bytes_of = [](const Ids& one) { return one->size() * sizeof(uint32_t); };
  if (bytes_of(ids) > most_bytes_ / 2) return;
  const Name name(ref.dataset, ref.index);
  MutexLock lock(mutex_);
  for (const auto& [kept, unused] : recent_) {
    if (kept == name) return;  // another thread was faster
  }
  bytes_ += bytes_of(ids);
  recent_.emplace_front(name, std::move(ids));
  while (bytes_ > most_bytes_ || recent_.size() > kMostTexts) {
    bytes_ -= bytes_of(recent_.back().second);
    recent_.pop_back();
  }
}

}  // namespace evenkeel::stream
