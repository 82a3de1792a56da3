// Blocks of shared memory in memfd files: made, kept for the next item, and moved between mappings page by
// page.
#include "isolation/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"

namespace evenkeel::isolation {
namespace {

absl::Status NoMemory(const char* what, uint64_t num_bytes) {
  return WithKind(absl::UnavailableError(absl::StrCat("shared memory of ", num_bytes, " bytes: ", what, ": ",
                                                      std::strerror(errno))),
                  FailureKind::kMachine);
}

}  // namespace

SharedMemory::Block::~Block() {
  if (owner_ != nullptr) owner_->Release(begin_);
}

void SharedMemory::Block::Swap(Block& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(begin_, other.begin_);
  std::swap(num_bytes_, other.num_bytes_);
}

SharedMemory::File::~File() {
  if (fd >= 0) close(fd);
}

SharedMemory::~SharedMemory() {
  MutexLock lock(mutex_);
  for (const auto& [begin, mapping] : mappings_) {
    munmap(const_cast<std::byte*>(begin), mapping.file->num_bytes);
  }
}

size_t SharedMemory::MaxRetained() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return std::min<rlim_t>(limit.rlim_cur / 4, 4096);
}

absl::Status SharedMemory::Resize(File& file, uint64_t num_bytes) {
  const uint64_t whole = RoundUpToPage(std::max<uint64_t>(num_bytes, 1));
  if (file.num_bytes == whole) return absl::OkStatus();
  if (ftruncate(file.fd, static_cast<off_t>(whole)) != 0) return NoMemory("ftruncate", num_bytes);
  file.num_bytes = whole;
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory::FilePtr> SharedMemory::MakeFile(Use use, uint64_t num_bytes) {
  auto file = std::make_shared<File>();
  file->use = use;
  file->fd = memfd_create("evenkeel", MFD_CLOEXEC);
  if (file->fd < 0) return NoMemory("memfd_create", num_bytes);
  EVENKEEL_RETURN_IF_ERROR(Resize(*file, num_bytes));
  return file;
}

absl::StatusOr<SharedMemory::Block> SharedMemory::Map(FilePtr file, uint64_t num_bytes) {
  void* begin = mmap(nullptr, file->num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
  if (begin == MAP_FAILED) return NoMemory("mmap", num_bytes);
  if (file->use == Use::kInput) {
    // Reopened for reading only: this is the descriptor that decoders get.
    const int read_only = open(absl::StrCat("/proc/self/fd/", file->fd).c_str(), O_RDONLY | O_CLOEXEC);
    if (read_only < 0) {
      const absl::Status failed = NoMemory("open", num_bytes);
      munmap(begin, file->num_bytes);
      return failed;
    }
    close(std::exchange(file->fd, read_only));
  }
  Block block;
  block.begin_ = static_cast<std::byte*>(begin);
  block.num_bytes_ = num_bytes;
  block.owner_ = shared_from_this();
  MutexLock lock(mutex_);
  ++file->users;
  mappings_.emplace(block.begin_, Mapping{.file = std::move(file)});
  return block;
}

std::byte* SharedMemory::TakeKept(uint64_t num_bytes) {
  MutexLock lock(mutex_);
  for (size_t i = kept_.size(); i-- > 0;) {
    std::byte* begin = kept_[i];
    if (mappings_.at(begin).file->num_bytes < num_bytes) continue;
    kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(i));
    return begin;
  }
  return nullptr;
}

absl::StatusOr<SharedMemory::Block> SharedMemory::Allocate(Use use, uint64_t num_bytes) {
  // Sizes of inputs are rounded up to powers of two, so that a kept block fits more of the later items.
  uint64_t capacity = num_bytes;
  if (use == Use::kInput) {
    Block block;
    block.begin_ = TakeKept(num_bytes);
    if (block.begin_ != nullptr) {
      block.num_bytes_ = num_bytes;
      block.owner_ = shared_from_this();
      return block;
    }
    if (num_bytes <= kMaxKeptBytes) {
      for (capacity = 64 << 10; capacity < num_bytes;) capacity *= 2;
    }
  }
  EVENKEEL_ASSIGN_OR_RETURN(FilePtr file, MakeFile(use, capacity));
  return Map(std::move(file), num_bytes);
}

absl::StatusOr<SharedMemory::Block> SharedMemory::AllocateFor(Writer writer, uint64_t num_bytes) {
  FilePtr file = TakeKeptOutput(writer, num_bytes);
  absl::Status resized;
  if (file != nullptr) {
    // The file is not mapped here, so shrinking it can only hurt a writer that still uses it.
    resized = Resize(*file, num_bytes);
  } else {
    EVENKEEL_ASSIGN_OR_RETURN(file, MakeFile(Use::kOutput, num_bytes));
    Retain(*file, writer);
  }
  absl::StatusOr<Block> block = resized.ok() ? Map(file, num_bytes) : resized;
  if (!block.ok()) {
    MutexLock lock(mutex_);
    if (file->writer.has_value()) --num_retained_;
  }
  return block;
}

SharedMemory::FilePtr SharedMemory::Pick(size_t place) {
  FilePtr file = std::move(kept_outputs_[place]);
  kept_outputs_.erase(kept_outputs_.begin() + static_cast<ptrdiff_t>(place));
  kept_output_bytes_ -= file->num_bytes;
  return file;
}

SharedMemory::FilePtr SharedMemory::TakeKeptOutput(Writer writer, uint64_t num_bytes) {
  MutexLock lock(mutex_);
  // The kept output whose size is closest. Neither growing nor shrinking may cost more than half of the
  // larger size.
  std::optional<size_t> best;
  uint64_t least = num_bytes;  // bytes that would be added or freed
  for (size_t i = kept_outputs_.size(); i-- > 0;) {
    const File& file = *kept_outputs_[i];
    if (file.writer != writer) continue;
    const auto [smaller, larger] = std::minmax({file.num_bytes, RoundUpToPage(num_bytes)});
    if (larger - smaller > smaller || larger - smaller >= least) continue;
    least = larger - smaller;
    best = i;
  }
  return best.has_value() ? Pick(*best) : nullptr;
}

void SharedMemory::Retain(File& file, Writer writer) {
  FilePtr dropped;
  MutexLock lock(mutex_);
  writers_.insert(writer);
  if (num_retained_ >= max_retained_) {
    if (kept_outputs_.empty()) return;
    dropped = Pick(0);
    --num_retained_;
  }
  file.writer = writer;
  ++num_retained_;
}

void SharedMemory::Forget(Writer writer) {
  std::vector<FilePtr> dropped;
  MutexLock lock(mutex_);
  writers_.erase(writer);
  for (size_t i = kept_outputs_.size(); i-- > 0;) {
    if (kept_outputs_[i]->writer != writer) continue;
    dropped.push_back(Pick(i));
    --num_retained_;
  }
}

void SharedMemory::LetGo(FilePtr file, std::vector<FilePtr>& dropped) {
  if (--file->users > 0) return;
  if (file->writer.has_value()) {
    if (writers_.count(*file->writer) > 0 && file->num_bytes <= kMaxKeptOutputBytes) {
      kept_output_bytes_ += file->num_bytes;
      kept_outputs_.push_back(std::move(file));
      while (kept_output_bytes_ > kMaxKeptOutputBytes) {
        dropped.push_back(Pick(0));
        --num_retained_;
      }
      return;
    }
    --num_retained_;
  }
  dropped.push_back(std::move(file));
}

void SharedMemory::Release(std::byte* begin) {
  Mapping mapping;
  {
    MutexLock lock(mutex_);
    const auto found = mappings_.find(begin);
    const File& file = *found->second.file;
    if (file.use == Use::kInput && file.num_bytes <= kMaxKeptBytes && kept_.size() < kMaxKept) {
      kept_.push_back(begin);
      return;
    }
    mapping = std::move(found->second);
    num_moved_ -= mapping.num_moved;
    mappings_.erase(found);
  }
  munmap(begin, mapping.file->num_bytes);
  std::vector<FilePtr> dropped;  // closed after the lock is released, which frees their pages
  MutexLock lock(mutex_);
  LetGo(std::move(mapping.file), dropped);
  for (FilePtr& moved : mapping.moved) LetGo(std::move(moved), dropped);
}

std::map<const std::byte*, SharedMemory::Mapping>::const_iterator SharedMemory::Around(
    std::span<const std::byte> range) const {
  auto found = mappings_.upper_bound(range.data());
  if (found == mappings_.begin()) return mappings_.end();
  --found;
  const uint64_t offset = static_cast<uint64_t>(range.data() - found->first);
  const uint64_t capacity = found->second.file->num_bytes;
  // Bookkeeping of a move: the target holds the file, so that its writer does not get it again while the
  // target maps its pages.
  return offset > capacity || range.size() > capacity - offset ? mappings_.end() : found;
}

std::optional<SharedMemory::Place> SharedMemory::Find(std::span<const std::byte> range) const {
  MutexLock lock(mutex_);
  const auto found = Around(range);
  if (found == mappings_.end()) return std::nullopt;
  return Place{found->second.file->fd, static_cast<uint64_t>(range.data() - found->first)};
}

SharedMemory::FilePtr SharedMemory::BeginMove(std::span<const std::byte> from,
                                              std::span<const std::byte> to) {
  MutexLock lock(mutex_);
  const auto around = Around(to);
  if (around == mappings_.end() || around->second.file->use != Use::kOutput || num_moved_ >= kMaxMoved)
    return nullptr;
  FilePtr file = Around(from)->second.file;
  Mapping& target = mappings_.find(around->first)->second;
  ++num_moved_;
  ++target.num_moved;
  if (file->writer.has_value()) {  // the writer must not get it again while the target has its pages
    ++file->users;
    target.moved.push_back(file);
  }
  return file;
}

absl::Status SharedMemory::Move(const Block& from, uint64_t offset, std::span<std::byte> to) {
  // Pages can be moved only if source and target begin at the same offset within a page. The partial pages at
  // both ends are copied; the whole pages between them are mapped in place of the target's own.
  const std::span<const std::byte> bytes = from.bytes().subspan(offset, to.size());
  if (bytes.empty()) return absl::OkStatus();
  const uint64_t at = reinterpret_cast<uintptr_t>(to.data()) % kPageBytes;
  const uint64_t front = std::min<uint64_t>((kPageBytes - at) % kPageBytes, to.size());
  const uint64_t whole = (to.size() - front) / kPageBytes * kPageBytes;
  FilePtr file;
  if (offset % kPageBytes == at && whole >= kMinMovedBytes) file = BeginMove(bytes, to);
  if (file == nullptr) {
    std::memcpy(to.data(), bytes.data(), to.size());
    return absl::OkStatus();
  }
  std::memcpy(to.data(), bytes.data(), front);
  const uint64_t begin = static_cast<uint64_t>(bytes.data() - from.begin_) + front;
  if (mmap(to.data() + front, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file->fd,
           static_cast<off_t>(begin)) == MAP_FAILED) {
    return NoMemory("mmap", whole);
  }
  std::memcpy(to.data() + front + whole, bytes.data() + front + whole, to.size() - front - whole);
  return absl::OkStatus();
}

}  // namespace evenkeel::isolation
