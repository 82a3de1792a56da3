#include "dataset/source/byte_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

std::string Get(ByteSource& source, const std::string& path, uint64_t offset, size_t size) {
  std::string out(size, '?');
  absl::Status status = source.ReadAt(path, offset, std::as_writable_bytes(std::span(out)));
  return status.ok() ? out : std::string(absl::StatusCodeToString(status.code()));
}

TEST(FileSource, ReadsRangesAndNamesItsErrors) {
  TempFolder folder;
  std::string path = folder.Write("a", "0123456789");
  auto source = MakeFileSource();
  EXPECT_EQ(*source->Size(path), 10u);
  EXPECT_EQ(Get(*source, path, 3, 4), "3456");
  EXPECT_EQ(Get(*source, path, 10, 0), "");
  EXPECT_EQ(Get(*source, path, 8, 4), "OUT_OF_RANGE");
  EXPECT_EQ(Get(*source, path + "x", 0, 1), "NOT_FOUND");
  EXPECT_EQ(Get(*source, folder.path(), 0, 1), "INVALID_ARGUMENT");
  EXPECT_EQ(source->Size(path + "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(source->Size(path + "x").status().message().find(path), absl::string_view::npos);
}

TEST(FileSource, ChangesItsStampWithTheFile) {
  TempFolder folder;
  std::string path = folder.Write("a", "1");
  auto source = MakeFileSource();
  std::string before = *source->Stamp(path);
  EXPECT_EQ(before, *source->Stamp(path));
  std::filesystem::last_write_time(path,
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(before, *source->Stamp(path));
}

size_t OpenDescriptors() {
  auto fds = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

TEST(FileSource, KeepsABoundedNumberOfFilesOpenFromManyThreads) {
  TempFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 40; ++i) paths.push_back(folder.Write(std::to_string(i), std::to_string(i + 1000)));
  size_t before = OpenDescriptors();
  auto source = MakeFileSource(4);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 400; ++i) {
        int k = (i * 7 + t) % 40;
        if (Get(*source, paths[k], 0, 4) != std::to_string(k + 1000)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(OpenDescriptors(), before + 4);
}

}  // namespace
}  // namespace evenkeel::dataset
