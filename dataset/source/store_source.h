// Objects of stores (s3://, gs://, az://), of the Hugging Face hub (hf://) and of HTTP servers, read by ranges through the library in rust/.
//
// The first look at an object keeps its size and ETag. Every later read is made on condition of that ETag, so that an
// object which changed is an error that names both, and never a mixture of two contents.
//
// Example:
//     std::unique_ptr<ByteSource> source = MakeStoreSource(job.stores, MakeFileSource());
//     absl::StatusOr<uint64_t> size = source->Size("s3://photos/train-000.tar");
//
// Thread safety: as ByteSource. The library's threads start with the first address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/job.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// Addresses are read as `stores` has it; every other path from `files`.
std::unique_ptr<ByteSource> MakeStoreSource(std::vector<StoreSpec> stores, std::unique_ptr<ByteSource> files);

// Writes objects of s3://, gs:// and az://. Thread safety: may be used from many threads.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  // Makes or replaces the object; a failure leaves what was there. PermissionDenied: no right to write.
  // InvalidArgument: hf:// and HTTP servers. Otherwise as ByteSource::Size.
  virtual absl::Status Write(const std::string& address, std::string_view bytes) = 0;
};
std::unique_ptr<ObjectWriter> MakeObjectWriter(std::vector<StoreSpec> stores);

// Lets the source see the sizes and ETags of many objects of a folder in few requests. Of few, and in a store that cannot be
// listed, each is asked for when it is needed.
void LookAtFolders(ByteSource& source, const std::vector<std::string>& paths);

// Of all stores of this process since it started.
struct StoreCounts {
  uint64_t requests = 0;         // sent, including those made again and those for credentials
  uint64_t failed_requests = 0;  // without an answer, or with one of 400 and above
  uint64_t bytes = 0;            // of bodies
  uint64_t microseconds = 0;     // from requests to the head of their answers
  uint64_t repeated = 0;         // made a second time because the first was slow
};
StoreCounts CountsOfStores();

}  // namespace evenkeel::dataset
