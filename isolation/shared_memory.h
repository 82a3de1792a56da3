// Memory shared with decoder processes: blocks in files without a name (memfd), mapped here.
//
// Example:
//     std::shared_ptr<SharedMemory> memory = SharedMemory::Make();
//     EVENKEEL_ASSIGN_OR_RETURN(SharedMemory::Block block,
//                               memory->Allocate(SharedMemory::Use::kInput, size));
//     ReadInto(block.bytes());
//     std::optional<SharedMemory::Place> place = memory->Find(block.bytes().subspan(10));  // file and offset
//
// Inputs can only be read by decoders: they get a descriptor opened for reading, and blocks are reused.
// Outputs are written by decoders, one block for one item, so that a decoder that keeps a block reaches
// nothing but the item that it was given. The result is then moved into the part, a block that no decoder
// sees: whole pages are remapped, and only pages shared with neighbours are copied.
//
// Most of the cost of confinement is fresh memory. So the file of an output is kept once its block and all
// parts with its pages are gone, for the next output of the same decoder: whatever that process still does to
// it, it could do to the next item as well. No other process ever gets the file, and none after the decoder
// ended.
//
// Thread safety: all members of SharedMemory may be called from many threads. A block belongs to one.
#pragma once

#include <atomic>
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

  // Where a range is: `fd` is the descriptor that decoders get, valid while the block lives.
  struct Place {
    int fd = -1;
    uint64_t offset = 0;
  };

  // A process that writes outputs: a number that is never used again.
  using Writer = uint64_t;

  static std::shared_ptr<SharedMemory> Make() { return std::make_shared<SharedMemory>(); }
  ~SharedMemory();

  // Zeroed, or with bytes of an earlier input; page-aligned. Unavailable: no memory or no file handles.
  absl::StatusOr<Block> Allocate(Use use, uint64_t num_bytes);
  // An output that only `writer` gets: zeroed, or with the contents of earlier outputs of this writer.
  absl::StatusOr<Block> AllocateFor(Writer writer, uint64_t num_bytes);
  // A number for a new writer.
  Writer NewWriter() { return ++last_writer_; }
  // The writer has ended or is no longer trusted: nothing that it could write is reused.
  void Forget(Writer writer);
  // nullopt: the range is not inside one block.
  std::optional<Place> Find(std::span<const std::byte> range) const;
  // Moves the bytes from `offset` of an output to `to`; copies them if both are at different offsets of a page,
  // if `to` is not inside one output, or if they are few. From then on they belong to `to`. Unavailable: the
  // kernel has no more mappings; the contents of `to` are then undefined.
  absl::Status Move(const Block& from, uint64_t offset, std::span<std::byte> to);

 private:
  // Resized only while it is not mapped here.
  struct File {
    ~File();
    int fd = -1;
    uint64_t num_bytes = 0;  // whole pages
    Use use = Use::kInput;
    std::optional<Writer> writer;  // of an output that is to be reused
    size_t users = 0;              // mappings with pages of it
  };
  using FilePtr = std::shared_ptr<File>;
  struct Mapping {
    FilePtr file;
    std::vector<FilePtr> moved;  // files to be reused, of which it has pages
    size_t num_moved = 0;        // ranges of other files mapped over its own
  };
  // Copying fewer bytes costs less than moving them.
  static constexpr uint64_t kMinMovedBytes = 256 << 10;
  // Each takes up to two of the kernel's mappings for a process, 65,530 by default.
  static constexpr size_t kMaxMoved = 16384;
  // Inputs kept for the next item: few, and of a size that most media have.
  static constexpr uint64_t kMaxKeptBytes = 8 << 20;
  static constexpr size_t kMaxKept = 64;
  // Bytes of outputs that are kept, of all writers.
  static constexpr uint64_t kMaxKeptOutputBytes = 128 << 20;

  // A quarter of the process's file handles, at most a few thousand.
  static size_t MaxRetained();
  static absl::StatusOr<FilePtr> MakeFile(Use use, uint64_t num_bytes);
  static absl::Status Resize(File& file, uint64_t num_bytes);
  absl::StatusOr<Block> Map(FilePtr file, uint64_t num_bytes);
  std::byte* TakeKept(uint64_t num_bytes);
  // A kept output of the writer of about this size. Null: there is none.
  FilePtr TakeKeptOutput(Writer writer, uint64_t num_bytes);
  // Marks `file` as one to be reused, unless there are too many.
  void Retain(File& file, Writer writer);
  // The block that contains a range, as in Find.
  std::map<const std::byte*, Mapping>::const_iterator Around(std::span<const std::byte> range) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The file of `from`, which is counted, if a range can be moved to `to`; else null.
  FilePtr BeginMove(std::span<const std::byte> from, std::span<const std::byte> to);
  void Release(std::byte* begin);
  // `file` has one user less: keeps it for its writer, or appends it to `dropped`.
  void LetGo(FilePtr file, std::vector<FilePtr>& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out the kept output at `place`.
  FilePtr Pick(size_t place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_retained_ = MaxRetained();
  std::atomic<Writer> last_writer_{0};
  mutable Mutex mutex_;
  std::map<const std::byte*, Mapping> mappings_ ABSL_GUARDED_BY(mutex_);  // by first byte
  std::vector<std::byte*> kept_ ABSL_GUARDED_BY(mutex_);                  // unused inputs, still in mappings_
  std::vector<FilePtr> kept_outputs_ ABSL_GUARDED_BY(mutex_);             // not mapped here, oldest first
  uint64_t kept_output_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_retained_ ABSL_GUARDED_BY(mutex_) = 0;   // outputs with a writer
  std::set<Writer> writers_ ABSL_GUARDED_BY(mutex_);  // writers that were not forgotten
  size_t num_moved_ ABSL_GUARDED_BY(mutex_) = 0;      // of all mappings
};

}  // namespace evenkeel::isolation
