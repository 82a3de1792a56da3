// Reads and preprocesses one item or one text at a time, in memory that is used again for the next.
#include "cli/sample_work.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/strings/str_cat.h"
#include "core/part.h"

namespace evenkeel::cli {

absl::Status SampleWork::Produce(const std::string& path, const dataset::ItemPlace& place,
                                 const SampleItem& item) {
  bytes_.resize(place.size);
  EVENKEEL_RETURN_IF_ERROR(dataset::ReadItem(path, place, source_, bytes_));
  const auto& specs = processor_.FieldsIn(item.tower, item.medium);
  uint64_t total = 0;
  for (const preprocess::FieldSpec& field : specs) total += field.num_bytes(item.lengths) + kPartAlignment;
  fields_.resize(std::max<size_t>(fields_.size(), total));
  std::vector<std::span<std::byte>> spans;
  uint64_t begin = 0;
  for (const preprocess::FieldSpec& field : specs) {
    const uint64_t size = field.num_bytes(item.lengths);
    spans.push_back(std::span(fields_).subspan(begin, size));
    begin += (size + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
  const preprocess::ItemRequest request{.medium = item.medium,
                                        .suffix = place.suffix,
                                        .bytes = bytes_,
                                        .facts = item.of_video ? AudioOf(place.facts) : place.facts,
                                        .planned = item.lengths,
                                        .tower = item.tower};
  return AddContext(processor_.Produce(request, spans), absl::StrCat("'", place.suffix, "'"));
}

absl::StatusOr<const preprocess::Sequence*> SampleWork::BuildSequence(const dataset::SamplePlaces& places,
                                                                      const SampleLengths& lengths) {
  EVENKEEL_ASSIGN_OR_RETURN(const Conversation* conversation, reader_.Read(places, limits_, source_));
  std::vector<MediaFacts> facts;
  for (const dataset::ItemPlace& item : places.items) facts.push_back(item.facts);
  std::vector<SampleItem> items;
  for (const SampleItem& item : lengths.items) {
    if (item.has_placeholders()) items.push_back(item);
  }
  EVENKEEL_RETURN_IF_ERROR(processor_.BuildSequence(*conversation, items, facts, sequence_));
  return &sequence_;
}

}  // namespace evenkeel::cli
