// Any bytes as a message of DataPlane.Deliver, cut into slices at any place.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "transport/chunk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel::transport;
  if (size == 0) return 0;
  const size_t cut = data[0] % size;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, cut)), grpc::Slice(bytes.substr(cut))};
  grpc::ByteBuffer message(slices, 2);
  ChunkReader reader(&message);
  ChunkHead head;
  if (!reader.ReadHead(&head)) return 0;
  size_t read = 0;
  for (std::span<const std::byte> piece; reader.Next(&piece);) read += piece.size();
  if (read != head.data_bytes) std::abort();
  return 0;
}
