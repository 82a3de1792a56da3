// Which samples of its datasets a stream draws: those that meet conditions on what the index knows of them
// (`where` of a dataset), and those of one share, told apart by a hash of their names (`splits` of a job).
//
// Part of every stream that asks for it. Thread safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"

namespace evenkeel {

// In the order of the job file's keys.
enum class SampleFact : uint8_t {
  kLlmTokens,      // of the sample, as the llm has them
  kTrainedTokens,  // of these, those with a loss
  kImages,         // how many the sample has
  kAudios,
  kVideos,
  kShortSide,     // pixels of every image and every video, as stored
  kLongSide,      // likewise
  kAspectRatio,   // the long side over the short one, of the same
  kAudioSeconds,  // of every audio
  kVideoSeconds,  // of every video
};
inline constexpr uint8_t kNumSampleFacts = 10;
std::string_view SampleFactName(SampleFact fact);

struct Condition {
  SampleFact fact;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();

  bool Holds(double value) const { return value >= least && value <= most; }
  bool operator==(const Condition&) const = default;
};

// "A..B" with both bounds included, "A..", "..B", or "A" for that value alone; decimal numbers from 0 up.
// InvalidArgument without a place: the caller knows the line.
absl::StatusOr<Condition> ParseCondition(SampleFact fact, const std::string& text);

struct SplitSpec {
  std::string name;
  double share = 0;  // of all samples
};

// Samples whose hash is from `begin` to below `end`.
struct HashRange {
  uint64_t begin = 0;
  uint64_t end = uint64_t{1} << 32;

  bool is_all() const { return begin == 0 && end == uint64_t{1} << 32; }
  bool contains(uint32_t hash) const { return hash >= begin && hash < end; }
};

// For the names of what depends on a selection; nothing where all samples are selected.
void AddConditions(const std::vector<Condition>& where, CanonicalText* text);
void AddSplit(const HashRange& range, uint64_t split_seed, CanonicalText* text);

// The range of the split at `position`: from the sum of the shares before it on, as long as its share.
HashRange RangeOfSplit(const std::vector<SplitSpec>& splits, size_t position);

// Of a sample's name "shard-file-name/key". Neither its dataset nor its folder matters, so that a copy, or a shard that
// two datasets have, falls into the same split.
uint32_t SplitHash(uint64_t split_seed, std::string_view shard_file, std::string_view key);

}  // namespace evenkeel
