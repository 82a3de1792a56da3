// Problems made from a trace of lengths, for `evenkeel solve --trace`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/words.h"
#include "proto/problem.pb.h"

namespace evenkeel::cli {

struct PackTraceOptions {
  std::string algorithm;  // empty: the default
  double samples_per_bin =
      9;  // capacities that hold so many mean samples, at least the longest; 0: from the data
  uint32_t devices = 64;
  uint64_t seed = 0;
};
// A sample's items of a phase count together.
pb::Problem PackFromTrace(const std::vector<SampleLengths>& samples, const PackTraceOptions& options);

struct ContextParallelTraceOptions {
  std::string algorithm;  // empty: the default
  uint32_t ranks = 64;
  double tokens_per_rank = 0;  // memory; 0: any
  pb::ContextParallelCost cost;
};
pb::Problem ContextParallelFromTrace(const std::vector<SampleLengths>& samples,
                                     const ContextParallelTraceOptions& options);

}  // namespace evenkeel::cli
