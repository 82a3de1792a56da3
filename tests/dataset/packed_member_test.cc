// Compressed members of tar archives: which samples they give, what bounds and damage do, and how they are read.
#include "dataset/source/packed_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "dataset/format/table.h"
#include "dataset/index/index.h"
#include "dataset/source/source_over.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<std::byte> Bytes(std::string& out) { return std::as_writable_bytes(std::span(out)); }

TEST(PackedMember, AddressHoldsItsRange) {
  for (const Packing packing : {Packing::kGzip, Packing::kZstd}) {
    for (const auto offset : {512ull, (1ull << 38) - 512}) {
      const auto address = PackedMemberAddress(packing, offset, 0xFFFFFFFF);
      ASSERT_TRUE(address.has_value());
      EXPECT_TRUE(IsPackedMember(*address));
      ByteRange range{.path = "a", .offset = *address, .size = 7};
      LocatePackedMember(range);
      EXPECT_EQ(range.offset, offset);
      EXPECT_EQ(range.size, 0xFFFFFFFFu);
    }
  }
  EXPECT_FALSE(PackedMemberAddress(Packing::kGzip, 1ull << 38, 1).has_value());
  EXPECT_FALSE(PackedMemberAddress(Packing::kGzip, 512, 1ull << 32).has_value());
  EXPECT_FALSE(PackedMemberAddress(Packing::kGzip, 100, 1).has_value());
  EXPECT_FALSE(PackedMemberAddress(Packing::kNone, 512, 1).has_value());
  ByteRange plain{.path = "a", .offset = 512, .size = 7};
  LocatePackedMember(plain);
  EXPECT_EQ(plain.offset, 512u);
  EXPECT_EQ(plain.size, 7u);
}

TEST(PackedMember, IsMeasuredUpToABoundAndReadAsMeasured) {
  MemorySource files;
  const std::string bytes(3 << 20, 'z');
  files.objects["a.tar"] = std::string(512, '\0') + Gzip(bytes) + Gzip("end");
  const uint64_t address = *PackedMemberAddress(Packing::kGzip, 512, files.objects["a.tar"].size() - 512);
  EXPECT_EQ(*UnpackedSize(files, "a.tar", address, 3 << 20 | 3), bytes.size() + 3);
  EXPECT_TRUE(absl::IsResourceExhausted(UnpackedSize(files, "a.tar", address, 3 << 20).status()));
  std::string out(bytes.size() + 3, ' ');
  ASSERT_TRUE(ReadPackedMember(files, "a.tar", address, Bytes(out)).ok());
  EXPECT_TRUE(out == bytes + "end");
  out.resize(bytes.size());
  EXPECT_TRUE(absl::IsDataLoss(ReadPackedMember(files, "a.tar", address, Bytes(out))));
  out.resize(bytes.size() + 4);
  EXPECT_TRUE(absl::IsDataLoss(ReadPackedMember(files, "a.tar", address, Bytes(out))));
}

// Notes what is announced.
class NotingSource : public SourceOver {
 public:
  NotingSource(ByteSource& files, std::vector<ByteRange>& noted) : SourceOver(files), noted_(noted) {}
  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t) override {
    noted_ = std::move(ranges);
    return nullptr;
  }

 private:
  std::vector<ByteRange>& noted_;
};

TEST(PackedMember, IsAnnouncedInThePiecesThatAreRead) {
  MemorySource files;
  std::vector<ByteRange> noted;
  auto source = MakePackedMemberSource(std::make_unique<NotingSource>(files, noted));
  const uint64_t address = *PackedMemberAddress(Packing::kZstd, 1024, (4 << 20) + 5);
  source->Expect({{.path = "a", .offset = 7, .size = 8}, {.path = "a", .offset = address, .size = 99}}, 0);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const ByteRange& range : noted) ranges.emplace_back(range.offset, range.size);
  EXPECT_THAT(ranges, ElementsAre(std::pair(7, 8), std::pair(1024, 4 << 20), std::pair(1024 + (4 << 20), 5)));
}

class PackedMembers : public ::testing::Test {
 protected:
  PackedMembers() : source_(MakeShardSource({})) {
    job_.path = "job.yaml";
    job_.index = folder_.path() + "/index";
    job_.limits.max_image_bytes = 1 << 20;
    job_.limits.max_text_bytes = 1 << 20;
  }

  IndexSummary Build(const std::string& tar) {
    job_.datasets = {{.name = "data", .shards = {folder_.Write("data.tar", tar)}}};
    exclusions_.clear();
    auto summary = BuildIndex(job_, measurer_, *source_, {}, &exclusions_);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.ok() ? *summary : IndexSummary();
  }
  std::map<std::string, std::string> Reasons() const {
    std::map<std::string, std::string> out;
    for (const Exclusion& exclusion : exclusions_)
      out[exclusion.key] = absl::StrCat(exclusion.reason, ": ", exclusion.detail);
    return out;
  }

  TempFolder folder_;
  std::unique_ptr<ByteSource> source_;
  Job job_;
  FakeMeasurer measurer_;
  std::vector<Exclusion> exclusions_;
};

TEST_F(PackedMembers, EndBombsAndDamageInNamedExclusions) {
  const std::string bomb = Gzip(std::string(64 << 20, 'x')), photo = Gzip("8x8" + std::string(5000, 'p'));
  std::string damaged = photo;
  damaged[damaged.size() - 6] ^= 1;  // the checksum at the end
  Build(Tar({{"bomb.jpg.gz", bomb},
             {"bomb.txt", "t"},
             {"cut.jpg.gz", photo.substr(0, photo.size() / 2)},
             {"cut.txt", "t"},
             {"damaged.jpg.gz", damaged},
             {"damaged.txt", "t"},
             {"empty.jpg.gz", ""},
             {"empty.txt", "t"},
             {"long.txt.gz", bomb},
             {"none.txt.zst", "not compressed"},
             {"twice.jpg", "8x8"},
             {"twice.jpg.gz", photo},
             {"twice.txt", "t"},
             {"good.jpg.gz", photo},
             {"good.nii.gz", bomb},  // no medium: ignored
             {"good.txt", "t"}}));
  const auto reasons = Reasons();
  EXPECT_EQ(reasons.size(), 7u);
  EXPECT_THAT(reasons.at("bomb"),
              HasSubstr("image beyond a limit: 'jpg': decompresses to more than 1048576"));
  EXPECT_THAT(reasons.at("cut"), HasSubstr("damaged image: 'jpg': compressed data cut off"));
  EXPECT_THAT(reasons.at("damaged"), HasSubstr("damaged image: 'jpg': compressed data damaged"));
  EXPECT_THAT(reasons.at("empty"), HasSubstr("damaged image"));
  EXPECT_THAT(reasons.at("long"), HasSubstr("text too long: 'txt': decompresses to more than 1048576"));
  EXPECT_THAT(reasons.at("none"), HasSubstr("damaged text: 'txt'"));
  EXPECT_THAT(reasons.at("twice"), HasSubstr("duplicate suffix"));
  auto index = Index::Open(job_, measurer_.digest(), *source_);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ((*index)->num_samples(0), 1u);
  EXPECT_EQ((*index)->places(0, 0)->items[0].size, 5003u);
}

TEST_F(PackedMembers, AreNamedWithAndWithoutTheirEnd) {
  const auto chat = [](const std::string& name) {
    return absl::StrCat(R"({"messages":[{"role":"user","content":[{"type":"image","image":")", name,
                        R"("}]},{"role":"assistant","content":"a"}]})");
  };
  Build(Tar({{"c/1.0.jpg.gz", Gzip("16x8")},
             {"c/1.1.jpg.gz", Gzip("24x8")},
             {"c/1.json", chat("1.jpg")},
             {"c/2.0.jpg.gz", Gzip("16x8")},
             {"c/2.1.jpg.gz", Gzip("24x8")},
             {"c/2.json.gz", Gzip(chat("c/2.1.jpg.gz"))},
             {"c/3.0.jpg", "16x8"},
             {"c/3.json", chat("0.jpg.gz")}}));
  EXPECT_THAT(Reasons().at("c/3"), HasSubstr("media do not match the text"));
  auto index = Index::Open(job_, measurer_.digest(), *source_);
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_EQ((*index)->num_samples(0), 2u);
  for (uint64_t row : {0, 1}) EXPECT_EQ((*index)->places(0, row)->items[0].facts.width, 24u);
}

TEST_F(PackedMembers, ThatChangedAreNamedByTheirBytes) {
  const std::string photo = Gzip("16x8" + std::string(2000, 'p'));
  const std::string tar = Tar({{"a.jpg.gz", photo}, {"a.txt", "t"}});
  Build(tar);
  auto index = Index::Open(job_, measurer_.digest(), *source_);
  ASSERT_TRUE(index.ok()) << index.status();
  const SamplePlaces places = *(*index)->places(0, 0);
  std::string out(places.items[0].size, ' ');
  EXPECT_TRUE(ReadItem(places.shard_path, places.items[0], *source_, Bytes(out)).ok());
  EXPECT_EQ(out, "16x8" + std::string(2000, 'p'));
  std::string changed = tar;
  changed[512 + photo.size() / 2] ^= 1;
  folder_.Write("data.tar", changed);
  const absl::Status read = ReadItem(places.shard_path, places.items[0], *source_, Bytes(out));
  EXPECT_EQ(read.code(), absl::StatusCode::kFailedPrecondition) << read;
  EXPECT_EQ(KnownKind(read), FailureKind::kData);
  EXPECT_THAT(std::string(read.message()), HasSubstr("bytes at byte 512 differ"));
}

}  // namespace
}  // namespace evenkeel::dataset
