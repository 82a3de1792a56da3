// The token ids of texts that chunks cut into pieces (`batch.chunk`), so that a long text is not tokenized once for each piece.
//
// Example:
//     std::shared_ptr<const std::vector<uint32_t>> ids = cache.Find(ref);
//     if (ids == nullptr) cache.Keep(ref, std::make_shared<const std::vector<uint32_t>>(Tokenize(ref)));
//
// Bounded by bytes: the texts that were used last. What it has is the same whoever tokenized it, so it changes no part.
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "core/annotated_mutex.h"
#include "core/words.h"

namespace evenkeel::stream {

class TextCache {
 public:
  using Ids = std::shared_ptr<const std::vector<uint32_t>>;

  explicit TextCache(uint64_t most_bytes = uint64_t{64} << 20) : most_bytes_(most_bytes) {}

  // Null: it is not kept. The epoch of `ref` does not matter.
  Ids Find(const SampleRef& ref);
  // Drops what was used longest ago. Texts of more than half of the cache's bytes are not kept.
  void Keep(const SampleRef& ref, Ids ids);

 private:
  using Name = std::pair<uint32_t, uint64_t>;  // dataset, index

  const uint64_t most_bytes_;
  Mutex mutex_;
  std::list<std::pair<Name, Ids>> recent_ ABSL_GUARDED_BY(mutex_);  // used last first
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace evenkeel::stream
