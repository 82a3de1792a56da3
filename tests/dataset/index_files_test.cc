#include <gtest/gtest.h>

#include <random>

#include "dataset/index/columns.h"
#include "dataset/index/index_folder.h"
#include "dataset/order/sampler.h"
#include "tests/dataset/support.h"
#include "tests/dataset/synthetic_index.h"

namespace evenkeel::dataset {
namespace {

TEST(PagedFile, ReadsAnyRangeOfAnySection) {
  MemorySource source;
  std::mt19937_64 random(1);
  std::vector<std::string> sections;
  for (size_t size : {0, 1, 4080, 4081, 20000}) {
    std::string section(size, ' ');
    for (char& c : section) c = static_cast<char>(random());
    sections.push_back(section);
  }
  source.objects["f"] = WritePaged({FileKind::kFacts, DigestOf(std::string_view("k")), {}, {1, 2, 3}},
                                   {sections.begin(), sections.end()});
  EXPECT_EQ(source.objects["f"].size() % kPageBytes, 0u);
  PageCache cache(1 << 20);
  auto file = PagedFile::Open(source, cache, "f", FileKind::kFacts);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->header().numbers[2], 3u);
  EXPECT_EQ((*file)->header().key, DigestOf(std::string_view("k")));
  for (int i = 0; i < 500; ++i) {
    size_t s = random() % sections.size();
    uint64_t begin = random() % (sections[s].size() + 1), size = random() % (sections[s].size() - begin + 1);
    std::string out(size, ' ');
    ASSERT_TRUE((*file)->Read(s, begin, std::as_writable_bytes(std::span(out))).ok());
    EXPECT_EQ(out, sections[s].substr(begin, size));
  }
  std::byte one;
  EXPECT_EQ((*file)->Read(1, 1, {&one, 1}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*file)->Read(9, 0, {&one, 1}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(PagedFile::Open(source, cache, "f", FileKind::kPlaces).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(PagedFile, NoticesEveryFlippedBit) {
  MemorySource source;
  std::string section(5000, 'x');
  const std::string good = WritePaged({FileKind::kFacts, {}, {}, {}}, {section});
  PageCache cache(1 << 20);
  for (size_t at = 0; at < good.size(); at += 37) {
    source.objects["f"] = good;
    source.objects["f"][at] ^= 4;
    auto file = PagedFile::Open(source, cache, "f", FileKind::kFacts);
    std::string out(section.size(), ' ');
    absl::Status status =
        file.ok() ? (*file)->Read(0, 0, std::as_writable_bytes(std::span(out))) : file.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << at;
  }
}

TEST(PageCache, KeepsToItsBytes) {
  MemorySource source;
  std::string section(kPagePayload * 1000, 'x');
  source.objects["f"] = WritePaged({FileKind::kFacts, {}, {}, {}}, {section});
  PageCache cache(64 * 4200);
  auto file = PagedFile::Open(source, cache, "f", FileKind::kFacts);
  ASSERT_TRUE(file.ok());
  std::byte one;
  for (int round = 0; round < 2; ++round) {
    for (uint64_t page = 0; page < 1000; ++page)
      ASSERT_TRUE((*file)->Read(0, page * kPagePayload, {&one, 1}).ok());
  }
  EXPECT_GT(source.reads, 1800u);  // 64 pages of 1,000 cannot have been kept for long
  uint64_t before = source.reads;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*file)->Read(0, 5, {&one, 1}).ok());
  EXPECT_LE(source.reads, before + 1);
}

// Damage behind good checksums, as a bad writer would make it: an error or rows within bounds, never a crash.
TEST(Columns, SurviveEveryMutationOfTheirContent) {
  PlacesWriter places;
  FactsWriter facts;
  LengthsWriter lengths;
  for (uint64_t i = 0; i < 20; ++i) {
    PlaceRecord place;
    place.key = "key" + std::to_string(i);
    place.text_form = TextForm::kPlain;
    place.text_offset = i * 5000;
    place.first_item = i;
    place.items = {{.offset = i * 5000 + 512, .size = 300, .suffix = "jpg"}};
    place.items[0].facts.medium = Medium::kImage;
    places.Add(place);
    facts.Add(MediaFacts{Medium::kImage, 3, 4});
    const uint32_t chosen = i % 4 == 3 ? 2 : 0;
    ASSERT_TRUE(lengths.Add(i, SampleLengths{7, 3, {{Medium::kImage, {4, 4, 1}}}, chosen}).ok());
  }
  places.Exclude({"k", "r", "d"});
  LengthsTotals totals;
  const std::vector<std::string> files = {places.Finish({}), facts.Finish({}), lengths.Finish({}, &totals)};
  PageCache cache(1 << 20);
  MemorySource source;
  std::mt19937_64 random(9);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = files[round % 3];
    uint64_t page = random() % (bytes.size() / kPageBytes);
    std::string payload = bytes.substr(page * kPageBytes, kPagePayload + 8);
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      payload[random() % (page == 0 ? 250 : 700)] = static_cast<char>(random());
    }
    Digest sum = DigestOf(payload);
    payload.append(reinterpret_cast<const char*>(sum.bytes.data()), 8);
    source.objects["f"] = bytes.replace(page * kPageBytes, kPageBytes, payload);
    auto ignore = [](const ExclusionRecord&) {};
    if (auto reader = PlacesReader::Open(source, cache, "f"); reader.ok()) {
      for (uint64_t i = 0; i < std::min<uint64_t>(reader->num_places(), 25); ++i)
        reader->Read(i).IgnoreError();
      reader->ForEachExclusion(ignore).IgnoreError();
    }
    if (auto reader = FactsReader::Open(source, cache, "f"); reader.ok()) {
      for (uint64_t i = 0; i < std::min<uint64_t>(reader->num_items(), 25); ++i)
        reader->Read(i).IgnoreError();
    }
    if (auto reader = LengthsReader::Open(source, cache, "f"); reader.ok()) {
      for (uint64_t i = 0; i < std::min<uint64_t>(reader->totals().rows, 25); ++i) {
        auto row = reader->Read(i);
        EXPECT_LE(row.ok() ? row->items.size() : 0, 25u);
        reader->RowOf(i).IgnoreError();
      }
    }
  }
}

// Expects the first row to be read as it was written; the totals of the file.
LengthsTotals ExpectFirstRow(const LengthsWriter& lengths, const SampleLengths& expected) {
  LengthsTotals totals;
  MemorySource source;
  source.objects["f"] = lengths.Finish({}, &totals);
  PageCache cache(1 << 20);
  const auto reader = LengthsReader::Open(source, cache, "f");
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return totals;
  const auto row = reader->Read(0);
  EXPECT_TRUE(row.ok()) << row.status();
  if (row.ok()) {
    EXPECT_EQ(*row, expected);
  }
  return totals;
}

TEST(Columns, KeepFurtherTowersOfAnItemWithoutAColumnForThem) {
  const SampleLengths towers{7,
                             3,
                             {{Medium::kImage, {4, 4, 1}},
                              {Medium::kImage, {9, 1, 9}, 1},
                              {Medium::kImage, {5, 1, 5}, 2},
                              {Medium::kAudio, {30, 30, 15}},
                              {Medium::kImage, {8, 8, 2}},
                              {Medium::kImage, {9, 1, 9}, 1},
                              {Medium::kImage, {5, 1, 5}, 2}}};
  LengthsWriter lengths;
  ASSERT_TRUE(lengths.Add(0, towers).ok());
  EXPECT_EQ(ExpectFirstRow(lengths, towers).items, 7u);
}

TEST(Columns, KeepTargetsApartFromItemsOfEncoders) {
  const SampleLengths sample{9,
                             3,
                             {{Medium::kImage, {4, 4, 1}},
                              {Medium::kImage, {9, 1, 9}, 1},
                              {Medium::kImage, {8, 8, 2}, kTargetTower},
                              {Medium::kAudio, {30, 30, 15}, kTargetTower},
                              {Medium::kImage, {4, 4, 1}}}};
  LengthsWriter lengths;
  ASSERT_TRUE(lengths.Add(0, sample).ok());
  ExpectFirstRow(lengths, sample);
}

TEST(Columns, KeepTheAudioOfVideosApartFromClips) {
  const SampleLengths sample{9,
                             3,
                             {{Medium::kVideo, {16, 16, 4}},
                              {Medium::kVideo, {9, 1, 9}, 1},
                              {Medium::kAudio, {30, 30, 15}, 0, /*of_video=*/true},
                              {Medium::kAudio, {3, 3, 1}, 1, /*of_video=*/true},
                              {Medium::kAudio, {30, 30, 15}}}};
  LengthsWriter lengths;
  ASSERT_TRUE(lengths.Add(0, sample).ok());
  EXPECT_FALSE(lengths.Add(1, {9, 3, {{Medium::kAudio, {1, 1u << 31, 1}}}}).ok())
      << "it would read as one of a video";
  ExpectFirstRow(lengths, sample);
}

TEST(Columns, KeepTheLengthOfAPairsChosenSequence) {
  const std::vector<SampleLengths> rows = {
      {9, 4, {}},
      {12, 5, {}, 7},
      {20, 3, {{Medium::kImage, {4, 4, 1}}, {Medium::kImage, {4, 4, 1}}}, 8},
      {6, 2, {{Medium::kAudio, {30, 30, 3}}}}};
  LengthsWriter lengths;
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_TRUE(lengths.Add(i, rows[i]).ok());
  LengthsTotals totals;
  MemorySource source;
  source.objects["f"] = lengths.Finish({}, &totals);
  PageCache cache(1 << 20);
  const auto reader = LengthsReader::Open(source, cache, "f");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(totals.items, 3u);
  EXPECT_EQ(reader->totals().items, 3u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = reader->Read(i);
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_EQ(*row, rows[i]) << i;
  }
}

TEST(Columns, RefuseWhatHasNoRoomInARow) {
  LengthsWriter lengths;
  EXPECT_FALSE(lengths.Add(0, SampleLengths{1, 1, {{Medium::kImage, {1, 1, 1u << 30}}}}).ok());
  EXPECT_FALSE(lengths.Add(0, SampleLengths{1, 1, {{Medium::kImage, {1u << 31, 1, 1}}}}).ok());
  EXPECT_FALSE(lengths.Add(kMaxSamplesPerShard, SampleLengths{1, 1, {}}).ok());
}

TEST(Catalogue, ComesBackAsItWasWritten) {
  Catalogue catalogue;
  ShardEntry shard;
  shard.name = "a b%\n\xFF.tar";
  shard.size = 1ull << 40;
  shard.stamp = "";
  shard.damaged = true;
  shard.lengths = {{DigestOf(std::string_view("k")), {}, {3, 4, 5, 6, {}}}, {}};
  catalogue["photos of cats"] = {shard, ShardEntry{.name = "b.tar"}};
  catalogue[""] = {};
  std::string text = WriteCatalogue(catalogue);
  auto read = ReadCatalogue(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WriteCatalogue(*read), text);
  EXPECT_EQ(read->at("photos of cats")[0].name, shard.name);
  EXPECT_EQ(read->at("photos of cats")[0].lengths[0].totals.items, 4u);
  EXPECT_EQ(read->size(), 2u);
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(ReadCatalogue(text.substr(0, n)).ok()) << n;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string mutated = text;
    mutated[i] ^= 1;
    EXPECT_FALSE(ReadCatalogue(mutated).ok()) << i;
  }
}

TEST(SyntheticIndex, OpensAndPlansThroughASmallCache) {
  TempFolder folder;
  Digest processor = DigestOf(std::string_view("p"));
  auto job = WriteSyntheticIndex(folder.path(), 20, 5000, processor);
  ASSERT_TRUE(job.ok()) << job.status();
  job->batch.samples = 512;
  SizeOnlySource shards(kSyntheticShardBytes);
  auto index = Index::Open(*job, processor, shards, 1 << 20);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ((*index)->num_samples(0), 100000u);
  auto sampler = Sampler::Make(*job, **index);
  ASSERT_TRUE(sampler.ok());
  auto samples = (*sampler)->Samples(123456);
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->refs.size(), 512u);
  for (size_t i = 0; i < samples->refs.size(); ++i) {
    EXPECT_EQ(samples->lengths[i], SyntheticLengths(samples->refs[i].index));
  }
}

}  // namespace
}  // namespace evenkeel::dataset
