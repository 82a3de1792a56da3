// Keeps what objects decompress to in unlinked files.
#include "dataset/source/unpacking_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/attempt.h"
#include "core/failure.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "core/write_all.h"
#include "dataset/source/source_over.h"
#include "dataset/source/unpack.h"

namespace evenkeel::dataset {
namespace {

// After the path of a compressed object. Normalised paths never contain kConfined.
constexpr std::string_view kContentMark = "/./content";
constexpr size_t kAtOnce = 4;

std::optional<std::string> PackedPathOf(const std::string& path) {
  if (!path.ends_with(kContentMark)) return std::nullopt;
  return path.substr(0, path.size() - kContentMark.size());
}

absl::Status MachineFailure(absl::StatusCode code, const std::string& path, absl::string_view what) {
  return WithKind(absl::Status(code, absl::StrCat(path, ": ", what)), FailureKind::kMachine);
}

// A file without a name.
class Unlinked {
 public:
  explicit Unlinked(const std::string& folder) {
    handle_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (handle_ >= 0) return;
    // Not every file system has them.
    std::string name = absl::StrCat(folder, "/evenkeel-unpacked-XXXXXX");
    handle_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (handle_ >= 0) ::unlink(name.c_str());
  }
  ~Unlinked() {
    if (handle_ >= 0) ::close(handle_);
  }
  Unlinked(const Unlinked&) = delete;
  Unlinked& operator=(const Unlinked&) = delete;
  int handle() const { return handle_; }  // -1, with errno just after it was made: it could not be

 private:
  int handle_ = -1;
};

class UnpackingSource : public SourceOver {
 public:
  UnpackingSource(std::unique_ptr<ByteSource> files, const UnpackOptions& options)
      : SourceOver(*files), files_(std::move(files)), options_(options) {
    if (!options_.folder.empty()) return;
    const char* given = std::getenv("TMPDIR");
    options_.folder = given != nullptr && *given != '\0' ? given : "/tmp";
  }

  absl::StatusOr<uint64_t> Size(const std::string& path) override {
    const std::optional<std::string> packed = PackedPathOf(path);
    if (!packed.has_value()) return files_->Size(path);
    EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<Content> content, Find(*packed));
    return content->num_bytes;
  }

  absl::StatusOr<std::string> Stamp(const std::string& path) override {
    return files_->Stamp(PackedPathOf(path).value_or(path));
  }

  absl::StatusOr<WholeObject> ReadWhole(const std::string& path, uint64_t max_bytes) override {
    return PackedPathOf(path).has_value() ? ByteSource::ReadWhole(path, max_bytes)
                                          : files_->ReadWhole(path, max_bytes);
  }

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    const std::optional<std::string> packed = PackedPathOf(path);
    if (!packed.has_value()) return files_->ReadAt(path, offset, out);
    EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<Content> content, Find(*packed));
    while (!out.empty()) {
      const ssize_t count = ::pread(content->file.handle(), out.data(), std::min<size_t>(out.size(), 1 << 30),
                                    static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        const int error = errno;
        Drop(*packed, content);
        return MachineFailure(absl::StatusCode::kUnavailable, path, std::strerror(error));
      }
      if (count == 0) {
        return MachineFailure(
            absl::StatusCode::kOutOfRange, path,
            absl::StrCat("ends at byte ", content->num_bytes.load(), ", ", out.size(), " bytes short"));
      }
      out = out.subspan(static_cast<size_t>(count));
      offset += static_cast<uint64_t>(count);
    }
    return absl::OkStatus();
  }

  // What is inside is read from this machine.
  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t turn) override {
    std::erase_if(ranges, [](const ByteRange& range) { return PackedPathOf(range.path).has_value(); });
    return files_->Expect(std::move(ranges), turn);
  }

  void Forget(const std::string& path) override {
    const std::string packed = PackedPathOf(path).value_or(path);
    Drop(packed, nullptr);
    files_->Forget(packed);
  }

 private:
  struct Content {
    explicit Content(const std::string& folder) : file(folder) {}
    Unlinked file;
    std::atomic<uint64_t> num_bytes{0};  // grows until it is done
    bool done = false;                   // guarded by the source's mutex_, as the next
    absl::Status status;
    std::list<std::string>::iterator used;  // if done without an error
  };

  using Contents = std::unordered_map<std::string, std::shared_ptr<Content>>;

  // The content of an object, decompressed if it is not there.
  absl::StatusOr<std::shared_ptr<Content>> Find(const std::string& packed) {
    std::shared_ptr<Content> content;
    {
      MutexLock lock(mutex_);
      const auto found = contents_.find(packed);
      if (found != contents_.end()) {
        content = found->second;
        EVENKEEL_RETURN_IF_ERROR(Await(packed, *content));
        const auto now = contents_.find(packed);
        if (now != contents_.end() && now->second == content)
          used_.splice(used_.begin(), used_, content->used);
        return content;
      }
      content = std::make_shared<Content>(options_.folder);
      if (content->file.handle() < 0) return DiskFailure(packed, errno);
      contents_.emplace(packed, content);
    }
    // Also where memory runs out: others wait for the end of this.
    const absl::Status status = Attempt([&] { return Fill(packed, *content); });
    MutexLock lock(mutex_);
    content->done = true;
    content->status = status;
    changed_.NotifyAll();
    const auto now = contents_.find(packed);
    const bool is_kept = now != contents_.end() && now->second == content;
    if (!status.ok()) {
      if (is_kept) contents_.erase(now);
      total_bytes_ -= content->num_bytes;
      return status;
    }
    if (is_kept) {
      content->used = used_.insert(used_.begin(), packed);
    } else {
      total_bytes_ -= content->num_bytes;  // forgotten meanwhile: for this reader alone
    }
    return content;
  }

  // Waits for the thread that decompresses it.
  absl::Status Await(const std::string& packed, const Content& content)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    uint64_t seen = content.num_bytes;
    absl::Time deadline = SteadyNow() + options_.patience;
    while (!content.done) {
      const absl::Time now = SteadyNow();
      if (const uint64_t bytes = content.num_bytes; bytes != seen) {
        seen = bytes;
        deadline = now + options_.patience;
      }
      if (now >= deadline) return NoProgress(packed);
      changed_.WaitFor(mutex_, std::min(deadline - now, options_.patience / 4));
    }
    return content.status;
  }

  absl::Status NoProgress(const std::string& packed) const {
    return MachineFailure(
        absl::StatusCode::kUnavailable, packed,
        absl::StrCat("no progress of its decompression for ", absl::FormatDuration(options_.patience)));
  }

  absl::Status DiskFailure(const std::string& packed, int error) const {
    return MachineFailure(
        absl::StatusCode::kUnavailable, packed,
        absl::StrCat("cannot be decompressed into ", options_.folder, ": ", std::strerror(error)));
  }

  absl::Status Fill(const std::string& packed, Content& content) {
    EVENKEEL_RETURN_IF_ERROR(TakeTurn(packed));
    const absl::Status status = Attempt([&] { return Decompress(packed, content); });
    MutexLock lock(mutex_);
    --unpacking_;
    changed_.NotifyAll();
    return status;
  }

  // Each of those before makes progress, or fails.
  absl::Status TakeTurn(const std::string& packed) {
    MutexLock lock(mutex_);
    uint64_t seen = written_bytes_;
    absl::Time deadline = SteadyNow() + options_.patience;
    while (unpacking_ >= kAtOnce) {
      const absl::Time now = SteadyNow();
      if (written_bytes_ != seen) {
        seen = written_bytes_;
        deadline = now + options_.patience;
      }
      if (now >= deadline) return NoProgress(packed);
      changed_.WaitFor(mutex_, std::min(deadline - now, options_.patience / 4));
    }
    ++unpacking_;
    return absl::OkStatus();
  }

  absl::Status Decompress(const std::string& packed, Content& content) {
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, files_->Size(packed));
    // A far object is fetched by many requests at once, as its source allows.
    std::vector<ByteRange> pieces;
    for (uint64_t at = 0; at < size; at += kUnpackPieceBytes)
      pieces.push_back({.path = packed, .offset = at, .size = std::min(kUnpackPieceBytes, size - at)});
    const std::unique_ptr<Expected> expected = files_->Expect(std::move(pieces), 0);
    const absl::Status status = Unpack(
        PackingOf(packed), size,
        [&](uint64_t offset, std::span<std::byte> out) { return files_->ReadAt(packed, offset, out); },
        [&](std::span<const std::byte> bytes) { return Write(packed, bytes, content); });
    return absl::IsDataLoss(status) ? AddContext(status, packed) : status;
  }

  absl::Status Write(const std::string& packed, std::span<const std::byte> bytes, Content& content) {
    const uint64_t share = options_.budget_bytes / kAtOnce;
    if (content.num_bytes + bytes.size() > share) {
      return MachineFailure(
          absl::StatusCode::kResourceExhausted, packed,
          absl::StrCat("decompresses to more than ", share, " bytes, a quarter of the ",
                       options_.budget_bytes,
                       " for decompressed shards; allow more (--unpack-size), or write smaller shards"));
    }
    std::vector<std::shared_ptr<Content>> closed;  // without the lock
    {
      MutexLock lock(mutex_);
      content.num_bytes += bytes.size();
      written_bytes_ += bytes.size();
      total_bytes_ += bytes.size();
      while (total_bytes_ > options_.budget_bytes && !used_.empty())
        closed.push_back(Take(contents_.find(used_.back())));
    }
    closed.clear();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return WriteAll(content.file.handle(), text) ? absl::OkStatus() : DiskFailure(packed, errno);
  }

  // Of a content in progress the thread that decompresses it sees that it is gone.
  std::shared_ptr<Content> Take(Contents::iterator place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::shared_ptr<Content> content = std::move(place->second);
    contents_.erase(place);
    if (!content->done) return content;
    used_.erase(content->used);
    total_bytes_ -= content->num_bytes;
    return content;
  }

  // Forgets the content of an object if it is `content`, or any if that is null.
  void Drop(const std::string& packed, const std::shared_ptr<Content>& content) {
    std::shared_ptr<Content> closed;  // without the lock
    MutexLock lock(mutex_);
    const auto found = contents_.find(packed);
    if (found == contents_.end() || (content != nullptr && found->second != content)) return;
    closed = Take(found);
  }

  const std::unique_ptr<ByteSource> files_;
  UnpackOptions options_;
  Mutex mutex_;
  CondVar changed_;
  Contents contents_ ABSL_GUARDED_BY(mutex_);            // by the object's path
  std::list<std::string> used_ ABSL_GUARDED_BY(mutex_);  // those that are done, the most recently read first
  uint64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;     // of all of them, and those in progress
  uint64_t written_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // ever
  size_t unpacking_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

bool IsPacked(const std::string& shard) { return PackingOf(shard) != Packing::kNone; }

std::string ContentOf(const std::string& shard) {
  return !IsPacked(shard) ? shard
                          : absl::StrCat(shard, absl::string_view(kContentMark.data(), kContentMark.size()));
}

std::unique_ptr<ByteSource> MakeUnpackingSource(std::unique_ptr<ByteSource> files,
                                                const UnpackOptions& options) {
  return std::make_unique<UnpackingSource>(std::move(files), options);
}

}  // namespace evenkeel::dataset
