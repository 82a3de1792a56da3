// Reads the bounds of conditions, and hashes samples into splits.
#include "core/sample_selection.h"

#include <array>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"

namespace evenkeel {
namespace {

constexpr double kHashes = 4294967296.0;  // 2^32

absl::StatusOr<double> ParseBound(const std::string& text, const std::string& whole) {
  double value = 0;
  const bool is_number = absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value);
  if (is_number && std::isfinite(value) && value >= 0) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("'", ShortText(whole), "' is not A..B, A.., ..B or A with numbers from 0 up"));
}

uint64_t HashesBelow(double share) { return static_cast<uint64_t>(std::floor(share * kHashes + 0.5)); }

}  // namespace

std::string_view SampleFactName(SampleFact fact) {
  constexpr std::array<std::string_view, kNumSampleFacts> kNames = {
      "llm_tokens", "trained_tokens", "images",       "audios",        "videos",
      "short_side", "long_side",      "aspect_ratio", "audio_seconds", "video_seconds"};
  return kNames[static_cast<size_t>(fact)];
}

absl::StatusOr<Condition> ParseCondition(SampleFact fact, const std::string& text) {
  Condition out{.fact = fact};
  const size_t dots = text.find("..");
  const std::string least = text.substr(0, dots);
  const std::string most = dots == std::string::npos ? least : text.substr(dots + 2);
  if (!least.empty() || most.empty()) {
    absl::StatusOr<double> bound = ParseBound(least, text);
    if (!bound.ok()) return bound.status();
    out.least = *bound;
  }
  if (!most.empty()) {
    absl::StatusOr<double> bound = ParseBound(most, text);
    if (!bound.ok()) return bound.status();
    out.most = *bound;
  }
  if (out.least > out.most)
    return absl::InvalidArgumentError(absl::StrCat("'", ShortText(text), "' has no number in it"));
  return out;
}

void AddConditions(const std::vector<Condition>& where, CanonicalText* text) {
  for (const Condition& condition : where) {
    text->Add("where", SampleFactName(condition.fact));
    if (std::isfinite(condition.least)) text->Add("where.least", condition.least);
    if (std::isfinite(condition.most)) text->Add("where.most", condition.most);
  }
}

void AddSplit(const HashRange& range, uint64_t split_seed, CanonicalText* text) {
  if (range.is_all()) return;
  text->Add("split.seed", split_seed);
  text->Add("split.begin", range.begin);
  text->Add("split.end", range.end);
}

HashRange RangeOfSplit(const std::vector<SplitSpec>& splits, size_t position) {
  double before = 0;
  for (size_t i = 0; i < position; ++i) before += splits[i].share;
  // Shares are decimal fractions: the last one ends at all where their sum is 1 within rounding.
  const double until = before + splits[position].share;
  return {HashesBelow(before), HashesBelow(until > 1 - 1e-9 ? 1 : until)};
}

uint32_t SplitHash(uint64_t split_seed, std::string_view shard_file, std::string_view key) {
  Digester digester;
  digester.UpdateU64(split_seed);
  digester.Update(shard_file);
  digester.Update("/");
  digester.Update(key);
  const Digest digest = digester.Finish();
  uint32_t hash = 0;
  for (size_t i = 0; i < 4; ++i) hash = hash << 8 | digest.bytes[i];
  return hash;
}

}  // namespace evenkeel
