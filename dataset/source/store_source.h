// Objects of stores (s3://, gs://, az://) and of HTTP servers, read by ranges through the library in rust/.
//
// The first look at an object keeps its size and ETag. Every later read is made on condition of that ETag, so that an
// object which changed is an error that names both, and never a mixture of two contents.
//
// Example:
//     std::unique_ptr<ByteSource> source = MakeStoreSource({}, MakeFileSource());
//     absl::StatusOr<uint64_t> size = source->Size("s3://photos/train-000.tar");
//
// Thread safety: as ByteSource. The library's threads start with the first address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/job.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// How addresses that begin with `url` are reached. What is empty or false is left to the environment.
struct StoreSpec {
  std::string url;       // "s3://", "s3://bucket/"; the longest that matches counts
  std::string endpoint;  // http(s)://host[:port]
  std::string region;
  bool virtual_host = false;  // of S3: the bucket is part of the host's name
  bool anonymous = false;
  bool allow_http = false;      // credentials may be sent without TLS
  std::string ca_file;          // PEM
  double timeout_seconds = 15;  // without a byte
  uint32_t retries = 8;
};

// Addresses are read as `stores` has it; every other path from `files`.
std::unique_ptr<ByteSource> MakeStoreSource(std::vector<StoreSpec> stores, std::unique_ptr<ByteSource> files);

// Replaces every address with * or ? among the job's shards by the objects that it stands for, and lets the source see
// many shards of one folder at once. NotFound: a pattern stands for nothing. InvalidArgument: the same shard twice;
// otherwise as ByteSource::List.
absl::Status ListShards(ByteSource& source, Job& job);

}  // namespace evenkeel::dataset
