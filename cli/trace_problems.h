// Builds problems from a trace of lengths, for `evenkeel solve --trace`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/length_trace.h"
#include "core/words.h"
#include "proto/problem.pb.h"

namespace evenkeel::cli {

struct PackTraceOptions {
  std::string algorithm;       // empty: the default
  double samples_per_bin = 9;  // capacity in mean samples, at least the longest; 0: from the data
  uint32_t devices = 64;
  uint64_t seed = 0;
};
// All items of a sample in one phase count as one.
pb::Problem PackFromTrace(const LengthTrace& trace, const PackTraceOptions& options);

struct ContextParallelTraceOptions {
  std::string algorithm;  // empty: the default
  uint32_t ranks = 64;
  double tokens_per_rank = 0;  // memory; 0: no limit
  pb::ContextParallelCost cost;
};
pb::Problem ContextParallelFromTrace(const std::vector<SampleLengths>& samples,
                                     const ContextParallelTraceOptions& options);

}  // namespace evenkeel::cli
