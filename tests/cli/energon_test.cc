// The notes of a prepared folder, whole and damaged. tests/e2e/test_energon.py has what a job makes of them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/energon_fields.h"
#include "cli/energon_folder.h"
#include "tests/mutations.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kInfo[] =
    R"({"energon_version": "7.4.1", "shard_counts": {"a/0.tar": 3, "a/1.tar": 4, "b.tar": 5}})";
constexpr char kOldInfo[] = "energon_version: 2.0\nshard_counts:\n  a/0.tar: 3\n  'a/1.tar': 4\n  b.tar: 5\n";
constexpr char kSplit[] =
    "split_parts:\n  train:\n  - a/{0..1}.tar\n  val: ['b.tar']\nexclude:\n- a/{0.tar,1.tar/k}\n";
constexpr char kFields[] =
    "sample_type:\n  __module__: megatron.energon\n  __class__: VQASample\nfield_map:\n  image: jpg,png\n"
    "  context: json[conversations][0][value]\n  answers: json[conversations][1][value]\nsubflavors: {a: "
    "1}\n";

class EnergonNotes : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::path(::testing::TempDir()) / "energon_notes").string();
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/.nv-meta");
    fs::create_directories(folder_ + "/a");
    for (const char* shard : {"/a/0.tar", "/a/1.tar", "/b.tar"}) std::ofstream(folder_ + shard) << "x";
    Write(".info.json", kInfo);
    Write("split.yaml", kSplit);
    Write("dataset.yaml", kFields);
  }
  std::string Path(const std::string& name) const { return folder_ + "/.nv-meta/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }

  std::string folder_;
};

TEST_F(EnergonNotes, GiveTheShardsAndSamplesOfASplit) {
  const auto split = ReadEnergonSplit(folder_, "train", "");
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->shards, std::vector<std::string>{folder_ + "/a/1.tar"});
  EXPECT_EQ(split->exclude, std::vector<std::string>{"1.tar/k"});
  EXPECT_EQ(split->samples, 3u);
}

TEST_F(EnergonNotes, OfOlderReleasesAreTheSame) {
  fs::remove(Path(".info.json"));
  Write(".info.yaml", kOldInfo);
  const auto split = ReadEnergonSplit(folder_, "train", "");
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->samples, 3u);
}

TEST_F(EnergonNotes, HaveFieldsWithTheirPlaces) {
  const auto fields = ReadEnergonFields(Path("dataset.yaml"));
  ASSERT_TRUE(fields.ok()) << fields.status();
  EXPECT_TRUE(fields->has_turns);
  ASSERT_EQ(fields->media.size(), 2u);
  EXPECT_EQ(fields->media[1].suffix, "png");
  EXPECT_EQ(fields->answer[0].path, (std::vector<std::string>{"conversations", "1", "value"}));
}

TEST_F(EnergonNotes, ThatAreDamagedAreReadOrRefusedWithTheirName) {
  const std::pair<const char*, std::string> files[] = {
      {".info.json", kInfo}, {"split.yaml", kSplit}, {"dataset.yaml", kFields}, {".info.yaml", kOldInfo}};
  uint64_t refused = 0;
  for (const auto& [name, text] : files) {
    if (std::string(name) == ".info.yaml") fs::remove(Path(".info.json"));
    Write(name, text);
    const Bytes whole = ReadBytes(Path(name));
    const uint64_t count = MutationCount(1500);
    for (uint64_t n = 0; n < count; ++n) {
      const Bytes bytes = Mutated(whole, n);
      Write(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      const absl::Status split = ReadEnergonSplit(folder_, "train", "").status();
      const absl::Status fields = ReadEnergonFields(Path("dataset.yaml")).status();
      for (const absl::Status& status : {split, fields}) {
        if (status.ok()) continue;
        ++refused;
        EXPECT_NE(status.message().find(folder_), std::string::npos) << status;
      }
    }
    Write(name, text);
  }
  EXPECT_GT(refused, MutationCount(1500) / 2);
}

}  // namespace
}  // namespace evenkeel::cli
