// Decodes every item of an index like a worker, before training does.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "dataset/index/index_builder.h"
#include "dataset/source/byte_source.h"
#include "preprocess/processor.h"

namespace evenkeel::cli {

struct BadSample {
  std::string name;  // dataset/shard-file-name/key: a line of the job's exclude list
  std::string reason;
};

// The samples with an item that no worker can deliver, or with another number of tokens than in the index, in
// the order of the index; of a part, those in every part.count-th run of samples. Fails if an attempt fails, for
// example because a source cannot be read.
absl::StatusOr<std::vector<BadSample>> VerifyIndex(const Job& job, const preprocess::Processor& processor,
                                                   dataset::ByteSource& source, size_t threads,
                                                   const dataset::IndexPart& part = {});

}  // namespace evenkeel::cli
