// A cache of ready parts without a waiting request, for consumers that ask again; evicts the least recently
// used.
//
// Every call takes constant time, whatever the number of parts: the pool calls it under its lock, and a job
// of small parts keeps tens of thousands.
//
// Bytes are what parts occupy in memory (ReadyPart::held_bytes), not the size of their payload.
//
// Thread safety: none; the pool's lock protects it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "core/part.h"
#include "server/ready_part.h"

namespace evenkeel::server {

class KeptParts {
 public:
  using PartPtr = std::shared_ptr<const ReadyPart>;

  // `max_bytes`: 0 keeps nothing.
  explicit KeptParts(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns null if the part is not kept. Otherwise it becomes the most recently used.
  PartPtr Find(const PartName& name);
  // Keeps the part, replacing one of the same name, and evicts the least recently used until the limit holds.
  // A part larger than the limit is not kept, and evicts nothing.
  void Keep(PartPtr part);
  // Does nothing if the cache is empty.
  void ForgetLeastRecent();
  void Clear();

  bool empty() const { return recent_.empty(); }
  size_t size() const { return recent_.size(); }
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  struct HashName {
    size_t operator()(const PartName& name) const;
  };
  using Recent = std::list<PartPtr>;  // most recently used first

  void Forget(Recent::iterator part);

  const uint64_t max_bytes_;
  Recent recent_;
  std::unordered_map<PartName, Recent::iterator, HashName> by_name_;  // looked up only, never iterated
  uint64_t held_bytes_ = 0;
};

}  // namespace evenkeel::server
