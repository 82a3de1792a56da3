// The source of bytes: range reads by path. Files are read here, objects of a store by dataset/source/store_source.h.
//
// Every error is a failure of the machine (core/failure.h: FailureKind::kMachine), also a missing
// object or one shorter than requested: the reader's checksum decides whether the bytes are the right
// ones. An object with another ETag than before is FailedPrecondition of FailureKind::kData.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::dataset {

// In a path: what follows must be inside the folder before it. "/data/images/./a/1.jpg" is no file outside of
// /data/images, whatever its components or symbolic links lead to. Paths of jobs never have it: they are normalised.
inline constexpr std::string_view kConfined = "/./";

// A stamp that begins so is an object's ETag, which is the same on every machine.
inline constexpr std::string_view kETagMark = "etag ";

struct ByteRange {
  std::string path;
  uint64_t offset = 0;
  uint64_t size = 0;
  // What else of the object will be read soon: from `run_begin` to below `run_end`, with the range in it, one of `runs` such
  // runs at a time. None if `runs` is 0.
  uint64_t run_begin = 0;
  uint64_t run_end = 0;
  uint64_t runs = 0;
};

struct WholeObject {
  uint64_t size = 0;
  std::string stamp;             // as ByteSource::Stamp
  std::vector<std::byte> bytes;  // none if there are more than were asked for
};

// The interest of one reader in ranges that it announced; ends with it.
class Expected {
 public:
  virtual ~Expected() = default;
};

// What a source has read, since it was made.
struct ReadCounts {
  // Ranges of far objects: fetched before they were read, still on their way then, and read without an announcement.
  uint64_t ready = 0, late = 0, direct = 0;
  uint64_t bytes_ahead = 0;  // requested, or fetched and not yet read, or kept for neighbours, now
  uint64_t cache_hits = 0, cache_misses = 0;
  uint64_t cache_damaged = 0;    // among the misses
  uint64_t cache_unwritten = 0;  // ranges that the cache's disk did not take
};

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // NotFound, PermissionDenied, Unavailable (try again). InvalidArgument: not a file, or outside the folder that
  // the path is confined to.
  virtual absl::StatusOr<uint64_t> Size(const std::string& path) = 0;
  // An opaque text that changes whenever the object does (an ETag after kETagMark; a file's time and inode): lets the
  // index skip what it has read, never part of an identity. Empty: unknown, read it again.
  virtual absl::StatusOr<std::string> Stamp(const std::string& path) {
    static_cast<void>(path);
    return std::string();
  }
  // Takes it as known that an object has this size and stamp, so that it is not asked for them; reads of another one fail as
  // those of one that changed. False: it is known already, or cannot be taken so; ask Size and Stamp.
  virtual bool Assume(const std::string& path, uint64_t size, std::string_view stamp) {
    static_cast<void>(path), static_cast<void>(size), static_cast<void>(stamp);
    return false;
  }
  // Fills `out` from `offset`. OutOfRange: the object ends earlier; otherwise as Size.
  virtual absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) = 0;
  // An object of at most `max_bytes` with its size and stamp, of a far one by a single request; of a larger one these
  // alone. Errors as ReadAt; the stamp is that of the bytes.
  virtual absl::StatusOr<WholeObject> ReadWhole(const std::string& path, uint64_t max_bytes);
  // The objects that an address with * or ? in its last component stands for, in the order of their names; none: an
  // empty list. InvalidArgument: cannot be listed; otherwise as Size.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& pattern) {
    return absl::InvalidArgumentError(pattern + ": cannot be listed");
  }
  // Announces what ReadAt will be asked for, each range once, about in this order; a lower `turn` comes first. A source of
  // far objects fetches it meanwhile, as its bounds allow. Reading is the same without, but slower. Null: nothing is
  // fetched ahead. The source must outlive the result.
  virtual std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t turn) {
    static_cast<void>(ranges), static_cast<void>(turn);
    return nullptr;
  }
  virtual ReadCounts counts() const { return {}; }
  // Drops cached state of an object, so that the next read uses the present file: a file that was replaced by
  // rename stays readable through an open descriptor.
  virtual void Forget(const std::string& path) { static_cast<void>(path); }
};

// Files by path, kept open in a bounded cache of descriptors.
std::unique_ptr<ByteSource> MakeFileSource(size_t max_open_files = 256);

}  // namespace evenkeel::dataset
