#include "core/read_file.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

class ReadAtMostTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "read_file_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& bytes) {
    const std::string path = folder_ + "/file";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  std::string folder_;
};

TEST_F(ReadAtMostTest, GivesTheWholeFileOrItsFirstBytes) {
  std::string bytes;
  for (uint64_t i = 0; i < 100'000; ++i) bytes += static_cast<char>(i * i % 251);
  const std::string path = Write(bytes);
  for (size_t most : {size_t{0}, size_t{1}, size_t{16384}, size_t{16385}, size_t{99'999}, size_t{100'000},
                      size_t{100'001}, size_t{1} << 40}) {
    const absl::StatusOr<std::string> read = ReadAtMost(path, most);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, bytes.substr(0, most)) << most;
  }
}

TEST_F(ReadAtMostTest, TakesAnEmptyFileForWhatItIs) {
  const absl::StatusOr<std::string> read = ReadAtMost(Write(""), 100);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, "");
}

TEST_F(ReadAtMostTest, SaysWhyAFileCannotBeRead) {
  const absl::Status missing = ReadAtMost(folder_ + "/none", 100).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_EQ(missing.message(), "No such file or directory");
  const absl::Status folder = ReadAtMost(folder_, 100).status();
  EXPECT_TRUE(absl::IsNotFound(folder)) << folder;
  EXPECT_EQ(folder.message(), "Is a directory");
}

}  // namespace
}  // namespace evenkeel
