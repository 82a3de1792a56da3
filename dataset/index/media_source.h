// Media that are objects of a store, for whoever builds an index: of many rows at once, each by one request.
//
// One after another they would cost three round trips each: for their size, their ETag and their bytes. Files of this
// machine are left to the source below.
//
// Example:
//     MediaSource media(source, /*max_bytes=*/64 << 20);
//     const std::unique_ptr<Expected> held = media.Hold(paths);    // reads all of them
//     absl::StatusOr<uint64_t> size = media.Size(paths.front());   // no request
//
// Thread safety: all members may be called from many threads. Hold and StampsOf start threads that end before they
// return.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "dataset/source/source_over.h"

namespace evenkeel::dataset {

class MediaSource : public SourceOver {
 public:
  // Rows whose media are worth a group of requests.
  static constexpr size_t kRowsAtOnce = 256;

  // `source` must outlive it. A medium of more than `max_bytes` is not held, but its size and stamp are.
  MediaSource(ByteSource& source, uint64_t max_bytes)
      : SourceOver(source), source_(source), max_bytes_(max_bytes) {}

  // Reads these media, if they are addresses, up to about 256 MiB of them. Until the result ends, Size, Stamp and ReadAt
  // answer from memory, also with the error that reading brought; media beyond are read as ever.
  std::unique_ptr<Expected> Hold(const std::vector<std::string>& paths);
  // Stamp of each, many at a time if they are addresses.
  std::vector<absl::StatusOr<std::string>> StampsOf(const std::vector<std::string>& paths);

  absl::StatusOr<uint64_t> Size(const std::string& path) override;
  absl::StatusOr<std::string> Stamp(const std::string& path) override;
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override;

 private:
  using Object = std::shared_ptr<const absl::StatusOr<WholeObject>>;
  class Held;

  // Null: not held.
  Object Find(const std::string& path);
  void Release(const std::vector<std::string>& paths);

  ByteSource& source_;
  const uint64_t max_bytes_;
  Mutex mutex_;
  // How many results of Hold have it, and the object.
  std::unordered_map<std::string, std::pair<size_t, Object>> objects_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::dataset
