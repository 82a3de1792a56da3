// What storage does to a reader, call by call: open and pread of this program fail when a test says so.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <functional>

#include "core/failure.h"
#include "dataset/index/index.h"
#include "tests/dataset/support.h"

namespace {

// The errno of the calls; 0: none fails. Of `open` only shards are met.
std::atomic<int> g_open_errno{0}, g_read_errno{0};

}  // namespace

// In place of the C library's: the linker takes the program's own first.
extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (const int error = g_open_errno; error != 0 && std::strstr(path, ".tar") != nullptr) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

ssize_t pread(int descriptor, void* bytes, size_t size, off_t offset) {
  if (const int error = g_read_errno; error != 0) {
    errno = error;
    return -1;
  }
  return syscall(SYS_pread64, descriptor, bytes, size, offset);
}

}  // extern "C"

namespace evenkeel::dataset {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kErrors[] = {ENOENT, ENOTDIR, EACCES,    EPERM,  EIO,   ESTALE, EMFILE,    ENFILE, ENOMEM,
                           ENOSPC, EBUSY,   ETIMEDOUT, EAGAIN, ENXIO, ENODEV, EREMOTEIO, ELOOP,  EISDIR};

class MachineFailures : public ::testing::Test {
 protected:
  void TearDown() override { g_open_errno = g_read_errno = 0; }

  // The item is "content" at byte 3 of the shard.
  absl::Status Read(ByteSource& source) {
    std::vector<std::byte> out(item_.size);
    return ReadItem(path_, item_, source, out);
  }
  static void ExpectMachine(const absl::Status& status, const std::string& path, absl::string_view what) {
    EXPECT_EQ(KnownKind(status), FailureKind::kMachine) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr(std::string(what))))
        << status;
  }

  TempFolder folder_;
  const std::string path_ = folder_.Write("a.tar", "abccontent");
  const ItemPlace item_{
      .offset = 3, .size = 7, .checksum = ChecksumOf(std::as_bytes(std::span("content", 7)))};
};

TEST_F(MachineFailures, OfEveryErrnoOfOpenAreTheMachinesAndEndWithTheirCause) {
  for (int error : kErrors) {
    auto source = MakeFileSource();
    g_open_errno = error;
    ExpectMachine(Read(*source), path_, std::strerror(error));
    g_open_errno = 0;
    EXPECT_TRUE(Read(*source).ok()) << std::strerror(error);
  }
}

TEST_F(MachineFailures, OfEveryErrnoOfReadAreTheMachinesAndEndWithTheirCause) {
  auto source = MakeFileSource();  // with the file open from one to the next
  for (int error : kErrors) {
    g_read_errno = error;
    ExpectMachine(Read(*source), path_, std::strerror(error));
    g_read_errno = 0;
    EXPECT_TRUE(Read(*source).ok()) << std::strerror(error);
  }
}

TEST_F(MachineFailures, AShardCutOffIsTheMachinesUntilItIsWholeAgain) {
  auto source = MakeFileSource();
  ASSERT_TRUE(Read(*source).ok());
  std::filesystem::resize_file(path_, 6);
  ExpectMachine(Read(*source), path_, "shorter than when it was indexed");
  folder_.Write("a.tar", "abccontent");
  EXPECT_TRUE(Read(*source).ok());
}

TEST_F(MachineFailures, AShardRenamedAwayIsTheMachinesUntilItComesBack) {
  auto source = MakeFileSource();
  std::filesystem::rename(path_, path_ + ".away");
  ExpectMachine(Read(*source), path_, "No such file or directory");
  std::filesystem::create_directory(path_);
  ExpectMachine(Read(*source), path_, "not a regular file");
  std::filesystem::remove(path_);
  std::filesystem::rename(path_ + ".away", path_);
  EXPECT_TRUE(Read(*source).ok());
}

TEST_F(MachineFailures, OtherBytesOfTheSameSizeAreAVerdictOnTheData) {
  auto source = MakeFileSource();
  ASSERT_TRUE(Read(*source).ok());
  folder_.Write("a.tar", "abccontenX");
  const absl::Status status = Read(*source);
  EXPECT_EQ(KnownKind(status), FailureKind::kData) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("differ from the indexed ones"));
}

TEST_F(MachineFailures, AFileThatTookTheShardsPlaceIsReadInsteadOfTheOpenOne) {
  for (const std::string wrong : {"abc???????", "abcco"}) {
    folder_.Write("a.tar", wrong);
    auto source = MakeFileSource();
    EXPECT_FALSE(Read(*source).ok());
    folder_.Write("a.new", "abccontent");
    std::filesystem::rename(folder_.path() + "/a.new", path_);
    EXPECT_TRUE(Read(*source).ok()) << wrong;
  }
  // While the open one is good its bytes are those that were indexed, whatever happens to the name.
  auto source = MakeFileSource();
  ASSERT_TRUE(Read(*source).ok());
  std::filesystem::remove(path_);
  EXPECT_TRUE(Read(*source).ok());
}

#ifndef EVENKEEL_SANITIZED  // which opens files of its own
TEST_F(MachineFailures, RunningOutOfDescriptorsIsTheMachinesUntilThereAreSome) {
  auto source = MakeFileSource();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = Read(*source);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ExpectMachine(status, path_, "Too many open files");
  EXPECT_TRUE(Read(*source).ok());
}
#endif

// Fails the n-th read.
class FailingSource : public ByteSource {
 public:
  FailingSource(uint64_t failing, int error) : failing_(failing), error_(error) {}
  uint64_t reads() const { return reads_; }

  absl::StatusOr<uint64_t> Size(const std::string& path) override { return files_->Size(path); }
  absl::StatusOr<std::string> Stamp(const std::string& path) override { return files_->Stamp(path); }
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    if (++reads_ == failing_) g_read_errno = error_;
    const absl::Status read = files_->ReadAt(path, offset, out);
    g_read_errno = 0;
    return read;
  }

 private:
  const uint64_t failing_;
  const int error_;
  uint64_t reads_ = 0;
  std::unique_ptr<ByteSource> files_ = MakeFileSource();
};

TEST_F(MachineFailures, NeverBecomeExclusionsOfTheIndex) {
  std::string shard;  // of more than one piece of ShardContent
  for (int i = 0; i < 3; ++i) {
    shard += TarFile("s" + std::to_string(i) + ".txt", "text");
    shard += TarFile("s" + std::to_string(i) + ".jpg", "64x48");
    shard += TarFile("s" + std::to_string(i) + ".other", std::string(5 << 20, 'x'));
  }
  Job job;
  job.path = "job.yaml";
  job.batch.samples = 1;
  job.datasets.push_back({.name = "d", .shards = {folder_.Write("big.tar", shard + TarEnd())}});
  FakeMeasurer measurer;
  FailingSource sound(0, 0);
  job.index = folder_.path() + "/sound";
  ASSERT_TRUE(BuildIndex(job, measurer, sound).ok());
  ASSERT_GE(sound.reads(), 4);
  for (int error : {EIO, ENOENT, EACCES, EISDIR, ESTALE}) {
    for (uint64_t read = 1; read <= sound.reads(); ++read) {
      job.index = folder_.path() + "/failing";
      FailingSource source(read, error);
      std::vector<Exclusion> exclusions;
      const auto built = BuildIndex(job, measurer, source, {}, &exclusions);
      ExpectMachine(built.status(), "big.tar", std::strerror(error));
      EXPECT_FALSE(std::filesystem::exists(job.index + "/current")) << "nothing was recorded";
    }
  }
}

TEST_F(MachineFailures, AShardThatShrinksWhileItIsIndexedIsNoExclusion) {
  class ShrinkingSource : public FailingSource {
   public:
    using FailingSource::FailingSource;
    absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
      // Away and back within one read, which no look at time and size finds afterwards.
      const std::string bytes = ReadFile(path);
      const auto time = std::filesystem::last_write_time(path);
      if (offset > 0) std::filesystem::resize_file(path, offset + 1);
      const absl::Status read = FailingSource::ReadAt(path, offset, out);
      if (offset > 0) {
        folder->Write("big.tar", bytes);
        std::filesystem::last_write_time(path, time);
      }
      return read;
    }
    const TempFolder* folder = nullptr;
  };
  std::string shard = TarFile("a.txt", "text") + TarFile("a.other", std::string(5 << 20, 'x'));
  Job job;
  job.path = "job.yaml";
  job.batch.samples = 1;
  job.index = folder_.path() + "/index";
  job.datasets.push_back(
      {.name = "d", .shards = {folder_.Write("big.tar", shard + TarFile("b.txt", "text") + TarEnd())}});
  ShrinkingSource source(0, 0);
  source.folder = &folder_;
  FakeMeasurer measurer;
  ExpectMachine(BuildIndex(job, measurer, source).status(), "big.tar", "bytes short");
}

}  // namespace
}  // namespace evenkeel::dataset
