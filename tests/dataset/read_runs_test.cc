// A range's run is the part of its block that is in its shard, for every draw and any cut of a dataset into shards.
#include "dataset/order/read_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dataset/source/mds_address.h"
#include "dataset/source/packed_member.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

// One dataset whose samples follow one another in shards.
class PlacesIndex : public Index {
 public:
  explicit PlacesIndex(std::vector<SamplePlaces> places) : places_(std::move(places)) {}

  Digest digest() const override { return {}; }
  uint64_t num_samples(uint32_t) const override { return places_.size(); }
  absl::StatusOr<SampleLengths> lengths(uint32_t, uint64_t) const override {
    return absl::UnimplementedError("places alone");
  }
  absl::StatusOr<SamplePlaces> places(uint32_t, uint64_t index) const override { return places_.at(index); }

 private:
  std::vector<SamplePlaces> places_;
};

std::vector<SamplePlaces> DrawPlaces(uint64_t seed, size_t samples) {
  std::mt19937_64 random(seed);
  std::vector<SamplePlaces> out;
  uint64_t shard = 0, offset = 512;
  for (size_t i = 0; i < samples; ++i) {
    if (random() % 10 == 0) {
      ++shard;
      offset = 512;
    }
    SamplePlaces& places = out.emplace_back();
    places.shard_path = absl::StrCat("s3://b/", shard, ".tar");
    places.text_offset = offset;
    places.text_size = 1 + random() % 500;
    offset += 1024;
    for (uint64_t item = random() % 3; item > 0; --item) {
      places.items.push_back({.offset = offset, .size = 1 + random() % 5000});
      offset += 5632;
    }
  }
  return out;
}

TEST(ReadRuns, AreTheBlocksPartOfTheShard) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<SamplePlaces> all = DrawPlaces(seed, 100 + seed);
    const PlacesIndex index(all);
    Job job;
    job.order = {.shuffle = Shuffle::kBlocked, .block_samples = 1 + seed % 17, .window_blocks = 3};
    const ReadRuns runs(job, index);
    for (uint64_t i = 0; i < all.size(); ++i) {
      ByteRange range = RangeOfText(all[i]);
      runs.AddTo({.dataset = 0, .index = i}, all[i].shard_path, range);
      uint64_t begin = ~uint64_t{0}, end = 0;
      const uint64_t first = i / job.order.block_samples * job.order.block_samples;
      for (uint64_t j = first; j < std::min<uint64_t>(first + job.order.block_samples, all.size()); ++j) {
        if (all[j].shard_path != all[i].shard_path) continue;
        begin = std::min(begin, all[j].text_offset);
        end = std::max(end, all[j].text_offset + all[j].text_size);
        for (const ItemPlace& item : all[j].items) end = std::max(end, item.offset + item.size);
      }
      EXPECT_EQ(std::pair(range.run_begin, range.run_end), std::pair(begin, end)) << seed << " " << i;
      EXPECT_EQ(range.runs, 3u);
    }
  }
}

TEST(ReadRuns, HaveTheStoredBytesOfCompressedMembers) {
  std::vector<SamplePlaces> all(2);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].shard_path = "s3://b/a.tar";
    all[i].text_offset = 1024 + 4096 * i;
    all[i].text_size = 70;
    const auto address = PackedMemberAddress(Packing::kGzip, 2048 + 4096 * i, 700);
    all[i].items.push_back({.offset = *address, .size = 30000});
  }
  const PlacesIndex index(all);
  Job job;
  job.order = {.shuffle = Shuffle::kBlocked, .block_samples = 2, .window_blocks = 3};
  const ReadRuns runs(job, index);
  ByteRange range = RangeOf(all[1].shard_path, all[1].items[0]);
  runs.AddTo({.dataset = 0, .index = 1}, all[1].shard_path, range);
  EXPECT_EQ(range.run_begin, 1024u);
  EXPECT_EQ(range.run_end, 2048u + 4096 + 700);
}

TEST(ReadRuns, HaveTheBytesThatTextsOfMdsShardsAreMadeOf) {
  std::vector<SamplePlaces> all(2);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].shard_path = "s3://b/a.mds";
    all[i].text_offset = MdsAddress(100 + 50 * i, 50);
    all[i].text_size = 70;
    all[i].items.push_back({.offset = 108 + 50 * i, .size = 30});
  }
  const PlacesIndex index(all);
  Job job;
  job.order = {.shuffle = Shuffle::kBlocked, .block_samples = 2, .window_blocks = 1};
  const ReadRuns runs(job, index);
  for (ByteRange range : {RangeOfText(all[1]), RangeOf(all[1].shard_path, all[1].items[0])}) {
    const uint64_t offset = range.offset;
    runs.AddTo({.dataset = 0, .index = 1}, all[1].shard_path, range);
    EXPECT_EQ(std::pair(range.run_begin, range.run_end), std::pair(uint64_t{100}, uint64_t{200}));
    EXPECT_EQ(range.offset, offset);
  }
}

TEST(ReadRuns, OnlyBlocksHaveThem) {
  const std::vector<SamplePlaces> all = DrawPlaces(1, 20);
  const PlacesIndex index(all);
  Job job;
  ByteRange range = RangeOfText(all[3]);
  ReadRuns(job, index).AddTo({.dataset = 0, .index = 3}, all[3].shard_path, range);
  EXPECT_EQ(range.runs, 0u);
  job.order.shuffle = Shuffle::kBlocked;
  ByteRange file = {.path = "s3://b/media/a.jpg", .offset = 0, .size = 10};
  ReadRuns(job, index).AddTo({.dataset = 0, .index = 3}, all[3].shard_path, file);
  EXPECT_EQ(file.runs, 0u) << "a file of its own has no neighbours";
}

}  // namespace
}  // namespace evenkeel::dataset
