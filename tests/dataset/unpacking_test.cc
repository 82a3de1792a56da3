// Compressed objects: what they decompress to, in which order threads and budgets let it, and what damage does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "dataset/source/source_over.h"
#include "dataset/source/unpack.h"
#include "dataset/source/unpacking_source.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Text that compresses, and does not repeat.
std::string Words(size_t count, int seed = 0) {
  std::string out;
  for (size_t i = 0; i < count; ++i)
    absl::StrAppend(&out, "word ", i * 2654435761u + static_cast<size_t>(seed), "\n");
  return out;
}

absl::StatusOr<std::string> Unpacked(Packing packing, const std::string& bytes) {
  std::string out;
  const absl::Status status = Unpack(
      packing, bytes.size(),
      [&](uint64_t offset, std::span<std::byte> into) {
        if (offset + into.size() > bytes.size()) return absl::OutOfRangeError("end");
        std::memcpy(into.data(), bytes.data() + offset, into.size());
        return absl::OkStatus();
      },
      [&](std::span<const std::byte> piece) {
        out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return out;
}

class Packings : public ::testing::TestWithParam<std::pair<Packing, std::string (*)(const std::string&)>> {
 protected:
  Packing packing() const { return GetParam().first; }
  std::string Pack(const std::string& bytes) const { return GetParam().second(bytes); }
};

TEST_P(Packings, GiveWhatWasPacked) {
  for (const std::string& bytes :
       {std::string(), std::string("a"), Words(1000), Words(700000), std::string(9 << 20, 'z')}) {
    const auto unpacked = Unpacked(packing(), Pack(bytes));
    ASSERT_TRUE(unpacked.ok()) << unpacked.status();
    EXPECT_TRUE(*unpacked == bytes) << bytes.size();
  }
}

TEST_P(Packings, GoOnWithAnotherMember) {
  const auto unpacked = Unpacked(packing(), Pack("one ") + Pack("") + Pack("two"));
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(*unpacked, "one two");
}

TEST_P(Packings, NameDamage) {
  const std::string packed = Pack(Words(3000));
  for (size_t size = 0; size < packed.size(); size += 131)
    EXPECT_TRUE(absl::IsDataLoss(Unpacked(packing(), packed.substr(0, size)).status())) << size;
  EXPECT_TRUE(absl::IsDataLoss(Unpacked(packing(), packed + "more").status()));
  EXPECT_TRUE(absl::IsDataLoss(Unpacked(packing(), "not packed").status()));
  std::string changed = packed;
  changed[0] ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(Unpacked(packing(), changed).status()));
}

INSTANTIATE_TEST_SUITE_P(
    All, Packings, ::testing::Values(std::pair{Packing::kGzip, &Gzip}, std::pair{Packing::kZstd, &Zstd}),
    [](const auto& info) { return info.param.first == Packing::kGzip ? "Gzip" : "Zstd"; });

TEST(Gzip, MayBeFilledUpWithZeros) {
  EXPECT_EQ(*Unpacked(Packing::kGzip, Gzip("a") + std::string(1000, '\0')), "a");
  EXPECT_EQ(*Unpacked(Packing::kGzip, Gzip("a") + std::string(10, '\0') + Gzip("b")), "ab");
  EXPECT_TRUE(absl::IsDataLoss(Unpacked(Packing::kGzip, Gzip("a") + std::string(10, '\0') + "b").status()));
}

TEST(Packing, IsKnownByTheEndOfAName) {
  for (const char* name : {"a.tar.gz", "a.tgz", "s3://b/a.mds.gz"})
    EXPECT_EQ(PackingOf(name), Packing::kGzip) << name;
  for (const char* name : {"a.tar.zst", "a.mds.zstd"}) EXPECT_EQ(PackingOf(name), Packing::kZstd) << name;
  for (const char* name : {"a.tar", "a.gz.tar", "a.mds.br", ""}) {
    EXPECT_EQ(PackingOf(name), Packing::kNone) << name;
    EXPECT_EQ(ContentOf(name), name);
  }
}

class Unpacking : public ::testing::Test {
 protected:
  std::unique_ptr<ByteSource> Make(uint64_t budget_bytes = 1 << 30) {
    return MakeUnpackingSource(std::make_unique<SourceOver>(files_),
                               {folder_.path(), budget_bytes, absl::Seconds(5)});
  }
  std::string Read(ByteSource& source, const std::string& path, uint64_t offset, size_t size) {
    std::string out(size, ' ');
    const absl::Status read = source.ReadAt(ContentOf(path), offset, std::as_writable_bytes(std::span(out)));
    return read.ok() ? out : read.ToString();
  }

  TempFolder folder_;
  MemorySource files_;
};

TEST_F(Unpacking, ReadsRangesOfWhatIsInsideAndTheObjectItself) {
  const std::string words = Words(5000);
  files_.objects["a.gz"] = Gzip(words);
  auto source = Make();
  EXPECT_EQ(*source->Size("a.gz"), files_.objects["a.gz"].size());
  EXPECT_EQ(*source->Size(ContentOf("a.gz")), words.size());
  EXPECT_EQ(Read(*source, "a.gz", 1000, 50), words.substr(1000, 50));
  EXPECT_EQ(Read(*source, "a.gz", words.size() - 3, 3), words.substr(words.size() - 3));
  EXPECT_THAT(Read(*source, "a.gz", words.size() - 3, 4), HasSubstr("1 bytes short"));
  std::string raw(2, ' ');
  ASSERT_TRUE(source->ReadAt("a.gz", 0, std::as_writable_bytes(std::span(raw))).ok());
  EXPECT_EQ(raw, "\x1f\x8b");
}

TEST_F(Unpacking, DecompressesOnceForManyThreads) {
  const std::string words = Words(400000);
  files_.objects["a.zst"] = Zstd(words);
  auto source = Make();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (size_t at = static_cast<size_t>(i) * 1000; at + 100 < words.size(); at += 100003)
        wrong += Read(*source, "a.zst", at, 100) != words.substr(at, 100);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files_.bytes_read, files_.objects["a.zst"].size());
}

TEST_F(Unpacking, ClosesWhatWasReadLongestAgo) {
  for (int i = 0; i < 6; ++i) files_.objects[absl::StrCat(i, ".gz")] = Gzip(Words(10000, i));
  const uint64_t one = Words(10000, 5).size();
  auto source = Make(4 * (one + 100));
  const auto reads = [&](int i) {
    const uint64_t before = files_.bytes_read;
    EXPECT_EQ(Read(*source, absl::StrCat(i, ".gz"), 100, 50), Words(10000, i).substr(100, 50));
    return files_.bytes_read > before;
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(reads(i));
  EXPECT_FALSE(reads(0));
  EXPECT_TRUE(reads(4));  // in the place of 1
  EXPECT_FALSE(reads(0));
  EXPECT_TRUE(reads(1));
}

TEST_F(Unpacking, EndsABombAtItsShareOfTheBudget) {
  files_.objects["bomb.gz"] = Gzip(std::string(64 << 20, '\0'));
  files_.objects["bomb.zst"] = Zstd(std::string(64 << 20, '\0'));
  files_.objects["a.gz"] = Gzip("fine");
  auto source = Make(32 << 20);
  for (const char* name : {"bomb.gz", "bomb.zst"}) {
    const auto size = source->Size(ContentOf(name));
    EXPECT_TRUE(absl::IsResourceExhausted(size.status())) << size.status();
    EXPECT_EQ(::evenkeel::KindOf(size.status()), FailureKind::kMachine);
    EXPECT_THAT(std::string(size.status().message()), HasSubstr("more than 8388608 bytes"));
  }
  EXPECT_EQ(Read(*source, "a.gz", 0, 4), "fine");
}

TEST_F(Unpacking, NamesDamageAndErrorsOfTheSource) {
  files_.objects["a.gz"] = Gzip(Words(1000)).substr(0, 200);
  auto source = Make();
  const auto size = source->Size(ContentOf("a.gz"));
  EXPECT_TRUE(absl::IsDataLoss(size.status())) << size.status();
  EXPECT_NE(::evenkeel::KindOf(size.status()), FailureKind::kMachine);
  EXPECT_THAT(std::string(size.status().message()), HasSubstr("a.gz: compressed data cut off"));
  EXPECT_TRUE(absl::IsNotFound(source->Size(ContentOf("gone.gz")).status()));
  // The next reader tries again.
  files_.objects["a.gz"] = Gzip("mended");
  EXPECT_EQ(Read(*source, "a.gz", 0, 6), "mended");
}

TEST_F(Unpacking, ReadsAgainWhatIsForgotten) {
  files_.objects["a.gz"] = Gzip("before");
  auto source = Make();
  EXPECT_EQ(Read(*source, "a.gz", 0, 6), "before");
  files_.objects["a.gz"] = Gzip("after!");
  EXPECT_EQ(Read(*source, "a.gz", 0, 6), "before");
  source->Forget(ContentOf("a.gz"));
  EXPECT_EQ(Read(*source, "a.gz", 0, 6), "after!");
}

// Waits with a deadline for a thread that stands still.
TEST_F(Unpacking, WaitsNoLongerThanItsPatience) {
  class Still : public SourceOver {
   public:
    using SourceOver::SourceOver;
    std::atomic<bool> reached{false}, released{false};
    absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
      reached = true;
      while (!released) std::this_thread::yield();
      return SourceOver::ReadAt(path, offset, out);
    }
  };
  files_.objects["a.gz"] = Gzip("words");
  auto still = std::make_unique<Still>(files_);
  Still& below = *still;
  auto source = MakeUnpackingSource(std::move(still), {folder_.path(), 1 << 30, absl::Milliseconds(50)});
  std::string first;
  std::thread thread([&] { first = Read(*source, "a.gz", 0, 5); });
  while (!below.reached) std::this_thread::yield();
  EXPECT_THAT(Read(*source, "a.gz", 0, 5), HasSubstr("no progress"));
  below.released = true;
  thread.join();
  EXPECT_EQ(first, "words");
}

TEST_F(Unpacking, LeavesNothingWhenTheProcessIsKilled) {
  files_.objects["a.gz"] = Gzip(Words(100000));
  const pid_t child = ::fork();
  if (child == 0) {
    auto source = Make();
    const bool read = source->Size(ContentOf("a.gz")).ok();
    ::kill(::getpid(), read ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(Unpacking, NamesTheFolderThatCannotBeWritten) {
  files_.objects["a.gz"] = Gzip("words");
  auto source = MakeUnpackingSource(std::make_unique<SourceOver>(files_), {folder_.path() + "/gone"});
  const std::string error = Read(*source, "a.gz", 0, 5);
  EXPECT_THAT(error, HasSubstr("cannot be decompressed into " + folder_.path() + "/gone: No such file"));
}

}  // namespace
}  // namespace evenkeel::dataset
