// Messages of DataPlane.Deliver as bytes: pb::Chunk, written and read without a copy of its data.
//
// A chunk is a valid pb::Chunk whose last field is `data`, so that the data follow all other bytes of the
// message.
//
// Example:
//     std::string bytes = EncodeChunkHead(head);  // the worker sends these bytes, then the data
//     ChunkReader reader(&message);               // the consumer reads both
//     if (!reader.ReadHead(&head)) return absl::DataLossError("not a chunk");
//     for (std::span<const std::byte> data; reader.Next(&data);) Append(data);
//
// Thread safety: none, one thread per object.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/digest.h"
#include "transport/transport.h"

namespace evenkeel::transport {

inline constexpr char kDeliver[] = "/evenkeel.pb.DataPlane/Deliver";

// A chunk without its data.
struct ChunkHead {
  RequestId request = 0;
  uint64_t offset = 0;      // of the data in the payload
  uint64_t length = 0;      // of the whole payload
  uint64_t data_bytes = 0;  // in this chunk
  bool first = false;       // the first chunk of a payload has hash and secret
  Digest hash;              // of the whole payload
  Secret secret{};
};

// The bytes of the message before its data.
std::string EncodeChunkHead(const ChunkHead& head);

// Reads one message, which must stay alive and is consumed.
class ChunkReader {
 public:
  explicit ChunkReader(grpc::ByteBuffer* message);

  // False if the message is not a chunk, or its data are not its last field or have another size than the
  // field states.
  bool ReadHead(ChunkHead* head);
  // The next piece of the data, valid until the next call. False at the end.
  bool Next(std::span<const std::byte>* data);

 private:
  const size_t message_bytes_;
  grpc::ProtoBufferReader slices_;
};

}  // namespace evenkeel::transport
