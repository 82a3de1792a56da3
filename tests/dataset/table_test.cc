#include "dataset/format/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "tests/dataset/support.h"
#include "tests/source_dir.h"

namespace evenkeel::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) { return SourceDir() + "/tests/golden/data/tables/" + name; }

// The row's text and "name=value" of its media.
std::string RowOf(TableReader& table, uint64_t row) {
  auto text = table.Text(row);
  if (!text.ok()) return text.status().ToString();
  std::string out(*text);
  auto media = table.Media(row);
  if (!media.ok()) return media.status().ToString();
  for (const TableMedium& medium : *media) {
    std::string bytes(medium.size, '\0');
    const absl::Status read = table.ReadAt(medium.address, std::as_writable_bytes(std::span(bytes)));
    absl::StrAppend(&out, " ", medium.name, "=", read.ok() ? bytes : read.ToString());
  }
  return out;
}

class Tables : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = Golden(GetParam());
    auto size = source_->Size(path_);
    ASSERT_TRUE(size.ok()) << size.status();
    auto table = TableReader::Open(*source_, path_, *size);
    ASSERT_TRUE(table.ok()) << table.status();
    table_ = *std::move(table);
  }

  std::string path_;
  std::unique_ptr<ByteSource> source_ = MakeFileSource();
  std::unique_ptr<TableReader> table_;
};

TEST_P(Tables, HaveRowsAsJsonAndMediaByTheirNames) {
  ASSERT_EQ(table_->num_rows(), 7u);
  EXPECT_EQ(
      RowOf(*table_, 0),
      R"({"id": 0, "image": "image.0.png", "images": [], "raw": "raw.0", "messages": [{"role": "user", "content": )"
      R"("hi \"0\" é\n"}, {"role": "assistant", "content": "yo"}], "score": 0.5} image.0.png=image0 raw.0=raw0)");
  EXPECT_THAT(RowOf(*table_, 1), HasSubstr(R"("image": "image.0", "images": [], "raw": null)"));
  EXPECT_THAT(RowOf(*table_, 1), HasSubstr(R"("score": NaN} image.0=image1image1)"));
  EXPECT_THAT(RowOf(*table_, 2), HasSubstr(R"("image": null, "images": ["images.0.jpg"], "raw": "raw.0")"));
  EXPECT_THAT(RowOf(*table_, 2), HasSubstr(R"("score": -Infinity} images.0.jpg=i2.0 raw.0=raw2)"));
  EXPECT_THAT(RowOf(*table_, 3), HasSubstr(R"({"role": "assistant", "content": null}])"));
  EXPECT_THAT(RowOf(*table_, 6), HasSubstr(R"("score": null} image.0.png=)"));
  EXPECT_THAT(RowOf(*table_, 6),
              HasSubstr("images.0.jpg=i6.0 images.1.jpg=i6.1 images.2.jpg=i6.2 images.3.jpg=i6.3 "));
}

TEST_P(Tables, GiveTheSameRowsInAnyOrder) {
  std::vector<std::string> in_order;
  for (uint64_t row = 0; row < 7; ++row) in_order.push_back(RowOf(*table_, row));
  std::vector<uint64_t> rows = {0, 1, 2, 3, 4, 5, 6};
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::shuffle(rows.begin(), rows.end(), random);
    for (uint64_t row : rows) ASSERT_EQ(RowOf(*table_, row), in_order[row]);
  }
}

TEST_P(Tables, RefuseAddressesOfNothing) {
  std::byte out{};
  for (uint64_t address : {TextAddress(7), TextAddress(0) + (9 << 16), TextAddress(2) + (1 << 16),
                           TextAddress(0) + (1 << 16) + 1})
    EXPECT_FALSE(table_->ReadAt(address, std::span(&out, 1)).ok()) << address;
  std::string longer(1000, ' ');
  EXPECT_TRUE(absl::IsOutOfRange(table_->ReadAt(TextAddress(0), std::as_writable_bytes(std::span(longer)))));
}

INSTANTIATE_TEST_SUITE_P(All, Tables, ::testing::Values("columns.parquet", "columns-zstd.parquet"),
                         [](const auto& info) {
                           return info.param == "columns.parquet" ? "Snappy" : "Zstd";
                         });

TEST(TableSource, ReadsValuesFromManyThreads) {
  auto source = MakeTableSource(MakeFileSource(), 2 << 20);  // a table or two
  const std::string path = Golden("columns.parquet");
  std::string expected(6, ' ');
  ASSERT_TRUE(
      source->ReadAt(path, TextAddress(0) + (1 << 16), std::as_writable_bytes(std::span(expected))).ok());
  EXPECT_EQ(expected, "image0");
  std::string raw(4, ' ');
  ASSERT_TRUE(source->ReadAt(path, 0, std::as_writable_bytes(std::span(raw))).ok());
  EXPECT_EQ(raw, "PAR1");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 100; ++i) {
        const uint64_t row = (i * 5 + t) % 7;
        std::string bytes(6, ' ');
        const bool read =
            source->ReadAt(path, TextAddress(row) + (1 << 16), std::as_writable_bytes(std::span(bytes))).ok();
        if (read != (row != 2) || (read && bytes != absl::StrCat("image", row))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Every cut, and every byte of the footer and of the first pages changed: an end, with samples before it or none.
TEST(TableScanner, EndsAtADamage) {
  const std::string whole = ReadFile(Golden("columns-zstd.parquet"));
  Limits limits;
  const auto scan = [&](const std::string& bytes, bool* damaged) {
    MemorySource source;
    source.objects["t.parquet"] = bytes;
    auto scanner = MakeTableScanner(source, "t.parquet", bytes.size(), limits);
    size_t samples = 0;
    for (;;) {
      auto sample = scanner->Next();
      EXPECT_TRUE(sample.ok()) << sample.status();
      if (!sample.ok() || !sample->has_value()) break;
      if ((*sample)->reason == kShardDamaged) {
        EXPECT_EQ((*sample)->detail.find("t.parquet"), std::string::npos);
        continue;
      }
      for (const SampleMember& member : (*sample)->members) {
        std::string out(member.size, ' ');
        EXPECT_TRUE(scanner->ReadMember(member, std::as_writable_bytes(std::span(out))).ok());
      }
      ++samples;
    }
    *damaged = scanner->damaged();
    return samples;
  };
  bool damaged = false;
  EXPECT_EQ(scan(whole, &damaged), 7u);
  EXPECT_FALSE(damaged);
  for (size_t size = 0; size < whole.size(); size += 97) {
    EXPECT_EQ(scan(whole.substr(0, size), &damaged), 0u);
    EXPECT_TRUE(damaged);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    scan(bytes, &damaged);
  }
}

TEST(TableScanner, PassesOnErrorsOfTheSource) {
  MemorySource source;
  auto scanner = MakeTableScanner(source, "gone.parquet", 1000, Limits());
  EXPECT_TRUE(absl::IsNotFound(scanner->Next().status()));
}

}  // namespace
}  // namespace evenkeel::dataset
