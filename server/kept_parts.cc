// An LRU cache: a list in the order of use, and a hash table of its iterators.
#include "server/kept_parts.h"

#include <iterator>
#include <utility>

namespace evenkeel::server {

size_t KeptParts::HashName::operator()(const PartName& name) const {
  // Steps are consecutive and the other fields are small, so each word is mixed by an odd multiplier (2^64
  // divided by the golden ratio) and a shift; otherwise neighbours would share a bucket.
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  };
  mix(name.step);
  mix(uint64_t{name.rank} << 32 | name.microbatch);
  mix(uint64_t{name.piece} << 8 | name.phase.number());
  return hash;
}

KeptParts::PartPtr KeptParts::Find(const PartName& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second);
  return *found->second;
}

void KeptParts::Keep(PartPtr part) {
  if (part->held_bytes() > max_bytes_) return;
  if (const auto same = by_name_.find(part->name()); same != by_name_.end()) Forget(same->second);
  held_bytes_ += part->held_bytes();
  recent_.push_front(std::move(part));
  by_name_.emplace(recent_.front()->name(), recent_.begin());
  while (held_bytes_ > max_bytes_) ForgetLeastRecent();
}

void KeptParts::ForgetLeastRecent() {
  if (!recent_.empty()) Forget(std::prev(recent_.end()));
}

void KeptParts::Clear() {
  by_name_.clear();
  recent_.clear();
  held_bytes_ = 0;
}

void KeptParts::Forget(Recent::iterator part) {
  held_bytes_ -= (*part)->held_bytes();
  by_name_.erase((*part)->name());
  recent_.erase(part);
}

}  // namespace evenkeel::server
