// The small notations of job files and command lines: sizes, rank lists, brace ranges; how large a job may
// be; and spelling help. All errors are InvalidArgument without a place: the caller knows the line. Thread
// safety: pure functions; needs none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace evenkeel {

inline constexpr uint64_t kMaxShards = 1000000;  // of a job
inline constexpr uint64_t kMaxShardPathBytes = 256ull << 20;
inline constexpr uint32_t kMaxRank = (1u << 20) - 1;
// The lengths of sixteen windows are held at once (dataset/order/token_windows.h).
inline constexpr uint64_t kMaxWindowSamples = 1 << 20;

// "0", "12": decimal, no sign, no leading zero. With `suffixes` also KiB, MiB, GiB (1024^n), k, m (1000^n).
absl::StatusOr<uint64_t> ParseWholeNumber(const std::string& text, bool suffixes);

// "0-3,8" -> {0, 1, 2, 3, 8}, in the order written. A rank given twice is an error.
absl::StatusOr<std::vector<uint32_t>> ParseRanks(const std::string& text);

// "a-{000..002}.tar" -> a-000.tar, a-001.tar, a-002.tar. Several ranges multiply, the first is the slowest.
// Numbers are padded to the width of the longer bound where a bound has a leading zero.
absl::StatusOr<std::vector<std::string>> ExpandRanges(const std::string& pattern);

// Of `known`, the one with the fewest edits from `word`; the first of equals. `known` is not empty.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

// The first 60 bytes at most, cut between characters, control characters escaped: for messages about
// somebody's text.
std::string ShortText(std::string_view text);

}  // namespace evenkeel
