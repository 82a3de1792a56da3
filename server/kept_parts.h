// Ready parts that nobody waits for, kept for those who ask again, least recently used first to go.
//
// Every call takes constant time, whatever the number of parts kept: the pool makes them under its lock, and
// a job of small parts keeps tens of thousands.
//
// Bytes are those that parts really hold (ReadyPart::held_bytes), not those of their payload.
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

  // Null where the part is not kept. Otherwise it becomes the most recently used.
  PartPtr Find(const PartName& name);
  // Keeps the part in place of one of the same name and forgets the least recently used until the limit
  // holds. A part larger than the limit is not kept, and nothing is forgotten for it.
  void Keep(PartPtr part);
  // Nothing where it is empty.
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
