// Decodes every item of an index as a worker would, before any training does.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "dataset/source/byte_source.h"
#include "preprocess/processor.h"

namespace evenkeel::cli {

struct BadSample {
  std::string name;  // dataset/shard-file-name/key: a line for the job's exclude list
  std::string reason;
};

// The samples with an item that no worker could deliver, or a sequence that is not as long as the index says,
// in the order of the index. Errors of the attempt (a source that fails) end it.
absl::StatusOr<std::vector<BadSample>> VerifyIndex(const Job& job, const preprocess::Processor& processor,
                                                   dataset::ByteSource& source, size_t threads);

}  // namespace evenkeel::cli
