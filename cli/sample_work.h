// Runs what a worker runs for the items and the text of a sample, on the calling thread: for commands that check, measure or
// show samples.
//
// Thread safety: none; each thread has its own. What it refers to must outlive it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/status.h"
#include "dataset/index/index.h"
#include "preprocess/processor.h"

namespace evenkeel::cli {

class SampleWork {
 public:
  SampleWork(const Limits& limits, const preprocess::Processor& processor, dataset::ByteSource& source)
      : limits_(limits), processor_(processor), source_(source) {}

  // Reads an item of the shard at `path` and makes its fields, which are dropped. Errors: of the source and the processor.
  absl::Status Produce(const std::string& path, const dataset::ItemPlace& place, const SampleItem& item);

  // Reads the sample's text and makes its sequence, which is valid until the next call. Errors: likewise.
  absl::StatusOr<const preprocess::Sequence*> BuildSequence(const dataset::SamplePlaces& places,
                                                            const SampleLengths& lengths);
  // Columns of the sample whose sequence was made last, valid until the next call. Errors: of AppendColumns.
  absl::StatusOr<std::string_view> Columns(const Job& job, const dataset::SamplePlaces& places) {
    return reader_.Columns(job, places.key);
  }

 private:
  const Limits& limits_;
  const preprocess::Processor& processor_;
  dataset::ByteSource& source_;
  std::vector<std::byte> bytes_, fields_;
  dataset::ConversationReader reader_;
  preprocess::Sequence sequence_;
};

// Calls `each(place, item)` for a sample's items in their order, those of several towers once for each, and returns the first
// error.
template <typename Each>
absl::Status ForEachItem(const dataset::SamplePlaces& places, const SampleLengths& lengths,
                         const Each& each) {
  size_t next = 0;  // into places.items, which have every item once
  for (const SampleItem& item : lengths.items) {
    next += item.begins_medium() ? 1 : 0;
    EVENKEEL_RETURN_IF_ERROR(each(places.items[next - 1], item));
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::cli
