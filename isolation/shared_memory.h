// Memory that decoder processes see, too: blocks that are files without a name (memfd), mapped here.
//
// Example:
//     std::shared_ptr<SharedMemory> memory = SharedMemory::Make();
//     EVENKEEL_ASSIGN_OR_RETURN(SharedMemory::Block block,
//                               memory->Allocate(SharedMemory::Use::kInput, size));
//     ReadInto(block.bytes());
//     std::optional<SharedMemory::Place> place = memory->Find(block.bytes().subspan(10));  // file and offset
//
// Input is what decoders may only read: its file is handed out opened for reading, and blocks are used again.
// Output is what they write, one block for one item, so that a decoder that keeps one reaches nothing but
// what it was asked for. What it has written is moved into the part, which is a block that no decoder ever
// sees: whole pages change their place, and nothing is copied but what lies in pages with neighbours.
//
// Fresh memory is most of what confinement costs. So an output's file is kept when its block and every part
// with its pages are gone, for the same decoder's next: what that process still has of it, it could as well
// have done to the item that it is asked for. No other process ever gets it, and none after the decoder
// ended.
//
// Thread safety: all members of SharedMemory may be called from many threads. A block belongs to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"

namespace evenkeel::isolation {

inline constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t RoundUpToPage(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

class SharedMemory : public std::enable_shared_from_this<SharedMemory> {
 public:
  enum class Use : uint8_t { kInput, kOutput };

  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { Swap(other); }
    Block& operator=(Block&& other) noexcept {
      Swap(other);
      return *this;
    }
    ~Block();

    std::span<std::byte> bytes() const { return {begin_, num_bytes_}; }

   private:
    friend class SharedMemory;
    void Swap(Block& other) noexcept;

    std::shared_ptr<SharedMemory> owner_;
    std::byte* begin_ = nullptr;
    uint64_t num_bytes_ = 0;
  };

  // Where a range lies: `fd` as decoders get it, valid while the block lives.
  struct Place {
    int fd = -1;
    uint64_t offset = 0;
  };

  // A process that writes outputs: a number that none had before it.
  using Writer = uint64_t;

  static std::shared_ptr<SharedMemory> Make() { return std::make_shared<SharedMemory>(); }
  ~SharedMemory();

  // Zeroed, or with what an earlier input left; begins at a page. Unavailable: no memory or no file handles.
  absl::StatusOr<Block> Allocate(Use use, uint64_t num_bytes);
  // An output that only `writer` gets: zeroed, or with what earlier outputs of this writer left.
  absl::StatusOr<Block> AllocateFor(Writer writer, uint64_t num_bytes);
  // The writer has ended, or is to be trusted no longer: nothing that it could write is used again.
  void Forget(Writer writer);
  // None where the range is not inside one block.
  std::optional<Place> Find(std::span<const std::byte> range) const;
  // Moves the bytes from `offset` of an output to `to`, copying where either is not at the same place of a
  // page, where `to` is not inside one output, and where there is little to be moved. The output's bytes are
  // `to`'s from then on. Unavailable: the kernel has no more mappings; what `to` holds is undefined.
  absl::Status Move(const Block& from, uint64_t offset, std::span<std::byte> to);

 private:
  // Resized while nothing of it is mapped alone.
  struct File {
    ~File();
    int fd = -1;
    uint64_t num_bytes = 0;  // whole pages
    Use use = Use::kInput;
    std::optional<Writer> writer;  // of an output that is to be used again
    size_t users = 0;              // mappings with pages of it
  };
  using FilePtr = std::shared_ptr<File>;
  struct Mapping {
    FilePtr file;
    std::vector<FilePtr> moved;  // those to be used again of which it has pages
    size_t num_moved = 0;        // stretches of other files in its place
  };
  // Below it, copying costs less than moving.
  static constexpr uint64_t kLeastMovedBytes = 256 << 10;
  // Each takes up to two of the mappings that the kernel allows a process, 65,530 where nobody raised it.
  static constexpr size_t kMaxMoved = 16384;
  // Inputs kept for the next item: a size that most media have, and few of them.
  static constexpr uint64_t kMaxKeptBytes = 8 << 20;
  static constexpr size_t kMaxKept = 64;
  // Outputs kept, of all writers.
  static constexpr uint64_t kMaxKeptOutputBytes = 128 << 20;

  // A quarter of the file handles that the process may have, and a few thousand at most.
  static size_t MaxRetained();
  static absl::StatusOr<FilePtr> MakeFile(Use use, uint64_t num_bytes);
  static absl::Status Resize(File& file, uint64_t num_bytes);
  absl::StatusOr<Block> Map(FilePtr file, uint64_t num_bytes);
  std::byte* TakeKept(uint64_t num_bytes);
  // A kept output of the writer, of about this size. Null: there is none.
  FilePtr TakeKeptOutput(Writer writer, uint64_t num_bytes);
  // Makes `file` one to be used again, unless there are too many.
  void Retain(File& file, Writer writer);
  // The block around a range, as in Find.
  std::map<const std::byte*, Mapping>::const_iterator Around(std::span<const std::byte> range) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The file of `from`, where `to` is of an output that a stretch of it may be moved into; then it counts.
  FilePtr BeginMove(std::span<const std::byte> from, std::span<const std::byte> to);
  void Release(std::byte* begin);
  // `file` has a user less: keeps it for its writer, or hands it to `dropped`.
  void LetGo(FilePtr file, std::vector<FilePtr>& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The kept output at `place`, which is kept no longer.
  FilePtr Pick(size_t place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_retained_ = MaxRetained();
  mutable Mutex mutex_;
  std::map<const std::byte*, Mapping> mappings_ ABSL_GUARDED_BY(mutex_);  // by their begin
  std::vector<std::byte*> kept_ ABSL_GUARDED_BY(mutex_);                  // unused inputs, still in mappings_
  std::vector<FilePtr> kept_outputs_ ABSL_GUARDED_BY(mutex_);             // mapped nowhere here, oldest first
  uint64_t kept_output_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_retained_ ABSL_GUARDED_BY(mutex_) = 0;   // outputs that have a writer
  std::set<Writer> writers_ ABSL_GUARDED_BY(mutex_);  // those that were not forgotten
  size_t num_moved_ ABSL_GUARDED_BY(mutex_) = 0;      // of all mappings
};

}  // namespace evenkeel::isolation
