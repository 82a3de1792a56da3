// Looks up where the first and the last sample of a block are.
#include "dataset/order/read_runs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/address.h"
#include "core/status.h"
#include "dataset/order/permutation.h"
#include "dataset/source/mds_address.h"
#include "dataset/source/packed_member.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kRecentRuns = 256;  // a few windows of blocks

bool HasBlocks(const OrderSpec& order) { return order.shuffle == Shuffle::kBlocked; }

// The samples of a tar archive and the lines of a file follow one another.
std::pair<uint64_t, uint64_t> ExtentOf(const SamplePlaces& places) {
  uint64_t begin = ~uint64_t{0}, end = 0;
  const auto add = [&](uint64_t offset, uint64_t size) {
    if (size == 0) return;
    begin = std::min(begin, offset);
    end = std::max(end, offset + size);
  };
  ByteRange text{.path = "", .offset = places.text_offset, .size = places.text_size};
  LocateText(text);
  LocatePackedMember(text);
  add(text.offset, text.size);
  for (const ItemPlace& item : places.items) {
    if (!item.file.empty()) continue;
    ByteRange stored{.path = "", .offset = item.offset, .size = item.size};
    LocatePackedMember(stored);
    add(stored.offset, stored.size);
  }
  return {begin, end};
}

}  // namespace

ReadRuns::ReadRuns(const Job& job, const Index& index)
    : order_(job.order), index_(index), recent_(kRecentRuns) {}

void ReadRuns::AddTo(const SampleRef& ref, const std::string& shard_path, ByteRange& range) const {
  // Files are read by the kernel ahead of need.
  if (!HasBlocks(order_) || !IsAddress(shard_path) || range.path != shard_path || range.size == 0) return;
  const uint64_t key =
      MixKey({ref.dataset, ref.index / order_.block_samples, std::hash<std::string>()(shard_path)});
  std::shared_ptr<const Run> run = recent_.Find(key);
  if (run == nullptr) {
    absl::StatusOr<Run> found = RunOf(ref, shard_path);
    if (!found.ok()) return;
    run = recent_.Keep(key, std::make_shared<const Run>(*std::move(found)));
  }
  ByteRange bytes = range;
  LocateText(bytes);
  LocatePackedMember(bytes);
  if (run->shard_path != shard_path || bytes.offset < run->begin || bytes.offset + bytes.size > run->end)
    return;
  range.run_begin = run->begin;
  range.run_end = run->end;
  range.runs = order_.window_blocks;
}

absl::StatusOr<ReadRuns::Run> ReadRuns::RunOf(const SampleRef& ref, const std::string& shard_path) const {
  const uint64_t first = ref.index / order_.block_samples * order_.block_samples;
  const uint64_t last = std::min(first + order_.block_samples, index_.num_samples(ref.dataset)) - 1;
  EVENKEEL_ASSIGN_OR_RETURN(const SamplePlaces begin, FurthestIn(shard_path, ref.dataset, ref.index, first));
  EVENKEEL_ASSIGN_OR_RETURN(const SamplePlaces end, FurthestIn(shard_path, ref.dataset, ref.index, last));
  return Run{.shard_path = shard_path, .begin = ExtentOf(begin).first, .end = ExtentOf(end).second};
}

absl::StatusOr<SamplePlaces> ReadRuns::FurthestIn(const std::string& shard_path, uint32_t dataset,
                                                  uint64_t row, uint64_t last) const {
  EVENKEEL_ASSIGN_OR_RETURN(SamplePlaces furthest, index_.places(dataset, last));
  if (furthest.shard_path == shard_path) return furthest;
  uint64_t inside = row, outside = last;
  while (std::max(inside, outside) - std::min(inside, outside) > 1) {
    const uint64_t middle =
        inside < outside ? inside + (outside - inside) / 2 : inside - (inside - outside) / 2;
    EVENKEEL_ASSIGN_OR_RETURN(const SamplePlaces places, index_.places(dataset, middle));
    (places.shard_path == shard_path ? inside : outside) = middle;
  }
  return index_.places(dataset, inside);
}

}  // namespace evenkeel::dataset
