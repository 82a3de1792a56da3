// Evaluates conditions and splits over the columns of shards.
#include "dataset/index/row_selection.h"

#include <algorithm>
#include <optional>

#include "core/status.h"

namespace evenkeel::dataset {
namespace {

bool IsOfLengths(const Condition& condition) {
  return condition.fact == SampleFact::kLlmTokens || condition.fact == SampleFact::kTrainedTokens;
}

bool HoldsForLengths(const Condition& condition, const SampleLengths& lengths) {
  return condition.Holds(condition.fact == SampleFact::kLlmTokens ? lengths.llm_length : lengths.loss_tokens);
}

bool HoldsForSides(const Condition& condition, const MediaFacts& item) {
  const double shorter = std::min(item.width, item.height), longer = std::max(item.width, item.height);
  if (condition.fact == SampleFact::kShortSide) return condition.Holds(shorter);
  if (condition.fact == SampleFact::kLongSide) return condition.Holds(longer);
  return shorter > 0 && condition.Holds(longer / shorter);
}

bool HoldsForSeconds(const Condition& condition, const MediaFacts& item) {
  const bool is_counted = item.medium == Medium::kAudio && item.sample_rate > 0;
  return condition.Holds(is_counted ? static_cast<double>(item.num_samples) / item.sample_rate
                                    : static_cast<double>(item.duration_us) / 1e6);
}

// Whether the condition holds for an item that has the fact; items that do not have it are not asked.
bool HoldsForItem(const Condition& condition, const MediaFacts& item) {
  switch (condition.fact) {
    case SampleFact::kShortSide:
    case SampleFact::kLongSide:
    case SampleFact::kAspectRatio:
      return item.medium == Medium::kAudio || HoldsForSides(condition, item);
    case SampleFact::kAudioSeconds:
      return item.medium != Medium::kAudio || HoldsForSeconds(condition, item);
    case SampleFact::kVideoSeconds:
      return item.medium != Medium::kVideo || HoldsForSeconds(condition, item);
    default:
      return true;
  }
}

bool HoldsForCounts(const Condition& condition, const std::vector<MediaFacts>& items) {
  const auto holds = [&](Medium medium) {
    return condition.Holds(static_cast<double>(
        std::ranges::count_if(items, [&](const MediaFacts& item) { return item.medium == medium; })));
  };
  switch (condition.fact) {
    case SampleFact::kImages:
      return holds(Medium::kImage);
    case SampleFact::kAudios:
      return holds(Medium::kAudio);
    case SampleFact::kVideos:
      return holds(Medium::kVideo);
    default:
      return true;
  }
}

// Whether all conditions hold that are not of lengths.
bool HoldForItems(const std::vector<Condition>& where, const std::vector<MediaFacts>& items) {
  return std::ranges::all_of(where, [&](const Condition& condition) {
    return HoldsForCounts(condition, items) &&
           std::ranges::all_of(items, [&](const MediaFacts& item) { return HoldsForItem(condition, item); });
  });
}

absl::Status ReadFacts(const PlaceRecord& place, const FactsReader& facts, std::vector<MediaFacts>& out) {
  out.clear();
  for (size_t i = 0; i < place.items.size(); ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::optional<MediaFacts> item, facts.Read(place.first_item + i));
    if (!item) return absl::DataLossError("a usable sample without facts; remove the index");
    out.push_back(*item);
  }
  return absl::OkStatus();
}

}  // namespace

RowSelection::RowSelection(const Job& job, const DatasetSpec& dataset, uint64_t rows)
    : where_(dataset.where),
      split_(job.SplitRange()),
      split_seed_(job.split_seed),
      needs_items_(!std::ranges::all_of(where_, IsOfLengths)),
      bits_(is_all() ? 0 : (rows + 63) / 64, 0) {}

absl::Status RowSelection::AddShard(std::string_view shard_file, const LengthsReader& lengths,
                                    const PlacesReader& places, const FactsReader& facts) {
  const uint64_t rows = lengths.totals().rows;
  std::vector<MediaFacts> items;
  for (uint64_t row = 0; row < rows; ++row, ++row_) {
    EVENKEEL_ASSIGN_OR_RETURN(const SampleLengths sample, lengths.Read(row));
    bool holds = std::ranges::all_of(where_, [&](const Condition& condition) {
      return !IsOfLengths(condition) || HoldsForLengths(condition, sample);
    });
    bool is_in_split = true;
    if (holds && (needs_items_ || !split_.is_all())) {
      EVENKEEL_ASSIGN_OR_RETURN(const uint64_t number, lengths.PlaceOf(row));
      EVENKEEL_ASSIGN_OR_RETURN(const PlaceRecord place, places.Read(number));
      if (needs_items_) EVENKEEL_RETURN_IF_ERROR(ReadFacts(place, facts, items));
      holds = HoldForItems(where_, items);
      is_in_split = split_.is_all() || split_.contains(SplitHash(split_seed_, shard_file, place.key));
    }
    if (holds && is_in_split) {
      bits_[row_ / 64] |= uint64_t{1} << (row_ % 64);
    } else {
      ++(holds ? left_out_.by_split : left_out_.by_where);
    }
  }
  return absl::OkStatus();
}

void RowSelection::Exclude(const std::vector<uint64_t>& rows) {
  for (const uint64_t row : rows) bits_[row / 64] &= ~(uint64_t{1} << (row % 64));
}

}  // namespace evenkeel::dataset
