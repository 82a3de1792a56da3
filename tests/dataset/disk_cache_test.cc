// The cache on a disk: finds what was kept, notices damage, keeps within its limit, and survives what disks do.
#include "dataset/source/disk_cache.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLimit = 256 << 20;  // a MiB in each folder

std::vector<std::byte> Bytes(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

std::unique_ptr<DiskCache> OpenIn(const TempFolder& folder) {
  return *DiskCache::Open(folder.path(), kLimit);
}

// Whether the range is found with the right bytes.
bool Has(DiskCache& cache, const std::string& address, uint64_t offset, size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  return cache.Find(address, offset, bytes) && bytes == Bytes(size, seed);
}

TEST(DiskCache, FindsWhatWasKeptAlsoInAnotherProcess) {
  TempFolder folder;
  OpenIn(folder)->Keep("s3://b/a.tar", 512, Bytes(5000, 1));
  const auto cache = OpenIn(folder);
  EXPECT_TRUE(Has(*cache, "s3://b/a.tar", 512, 5000, 1));
  EXPECT_FALSE(Has(*cache, "s3://b/a.tar", 512, 4999, 1));
  EXPECT_FALSE(Has(*cache, "s3://b/a.tar", 513, 5000, 1));
  EXPECT_FALSE(Has(*cache, "s3://b/b.tar", 512, 5000, 1));
  EXPECT_EQ(cache->counts().hits, 1);
  EXPECT_EQ(cache->counts().misses, 3);
}

TEST(DiskCache, RemovesWhatIsDamaged) {
  TempFolder folder;
  const auto cache = OpenIn(folder);
  for (const int how : {0, 1, 2}) {
    cache->Keep("s3://b/a.tar", 0, Bytes(5000, 1));
    const std::vector<std::string> files = folder.Files();
    ASSERT_EQ(files.size(), 1);
    const std::string path = folder.path() + "/" + files[0];
    if (how == 0) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(2500).put('?');
    } else {
      std::filesystem::resize_file(path, how == 1 ? 5000 : 0);
    }
    EXPECT_FALSE(Has(*cache, "s3://b/a.tar", 0, 5000, 1));
    EXPECT_TRUE(folder.Files().empty());
  }
  EXPECT_EQ(cache->counts().damaged, 3);
}

TEST(DiskCache, KeepsWithinItsLimitAndTheYoungest) {
  TempFolder folder;
  const auto cache = OpenIn(folder);
  constexpr size_t kSize = 100'000;
  constexpr uint64_t kRanges = 4000;  // 400 MB
  for (uint64_t i = 0; i < kRanges; ++i) cache->Keep("s3://b/a.tar", i * kSize, Bytes(kSize, i % 7));
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  EXPECT_LE(bytes, kLimit * 11 / 10);
  EXPECT_GE(bytes, kLimit / 2);
  uint64_t old = 0, young = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    old += Has(*cache, "s3://b/a.tar", i * kSize, kSize, i % 7);
    const uint64_t last = kRanges - 1 - i;
    young += Has(*cache, "s3://b/a.tar", last * kSize, kSize, last % 7);
  }
  EXPECT_GT(young, old + 400);
}

TEST(DiskCache, DoesNotKeepWhatWouldPushOutEverything) {
  TempFolder folder;
  const auto cache = OpenIn(folder);
  cache->Keep("s3://b/a.tar", 0, Bytes(300'000, 1));
  EXPECT_TRUE(folder.Files().empty());
  EXPECT_EQ(cache->counts().unwritten, 0);
}

TEST(DiskCache, ADiskThatTakesNothingIsNoError) {
  TempFolder folder;
  const auto cache = OpenIn(folder);
  std::filesystem::remove_all(folder.path());  // as root, rights would not do
  cache->Keep("s3://b/a.tar", 0, Bytes(5000, 1));
  cache->Keep("s3://b/a.tar", 0, Bytes(5000, 1));
  EXPECT_EQ(cache->counts().unwritten, 1);  // the second was not tried
  EXPECT_FALSE(Has(*cache, "s3://b/a.tar", 0, 5000, 1));
}

TEST(DiskCache, RefusesAFolderThatCannotWork) {
  TempFolder folder;
  const std::string file = folder.Write("file", "x");
  EXPECT_THAT(DiskCache::Open(file, kLimit).status().message(), HasSubstr("not a folder"));
  EXPECT_THAT(DiskCache::Open(folder.path(), kLimit - 1).status().message(), HasSubstr("at least 268435456"));
  EXPECT_FALSE(DiskCache::Open("/proc/evenkeel", kLimit).ok());
}

// A process that ends in the middle of writing leaves nothing that is found.
TEST(DiskCache, AKilledWriterLeavesNoHalfRange) {
  TempFolder folder;
  const auto cache = OpenIn(folder);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (uint64_t offset = 0;; offset += 50'000) cache->Keep("s3://b/a.tar", offset, Bytes(50'000, 3));
    }
    ::usleep(2000 + 500 * i);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    uint64_t found = 0;
    while (Has(*cache, "s3://b/a.tar", found * 50'000, 50'000, 3)) ++found;
    EXPECT_EQ(cache->counts().damaged, 0);
  }
}

}  // namespace
}  // namespace evenkeel::dataset
