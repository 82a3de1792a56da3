// Encodes and parses chunks with protobuf's own primitives; only the position of `data` is fixed by us, so
// that gRPC can send the data from where they lie.
#include "transport/chunk.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>

#include "proto/service.pb.h"

namespace evenkeel::transport {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr uint32_t kDataTag =
    WireFormatLite::MakeTag(pb::Chunk::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

template <typename Bytes>
// Reads a bytes field of exactly the size of `out`, which has a fixed size.
bool ReadBytes(CodedInputStream& in, Bytes* out) {
  uint32_t size = 0;
  return in.ReadVarint32(&size) && size == out->size() && in.ReadRaw(out->data(), static_cast<int>(size));
}

}  // namespace

std::string EncodeChunkHead(const ChunkHead& head) {
  pb::Chunk chunk;
  chunk.set_request_id(head.request);
  chunk.set_offset(head.offset);
  chunk.set_length(head.length);
  if (head.first) {
    chunk.set_hash(head.hash.bytes.data(), head.hash.bytes.size());
    chunk.set_secret(head.secret.data(), head.secret.size());
  }
  std::string bytes = chunk.SerializeAsString();
  if (head.data_bytes == 0) return bytes;  // like protobuf, which omits an empty field
  std::array<uint8_t, 16> data{};
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(kDataTag, data.data());
  end = CodedOutputStream::WriteVarint64ToArray(head.data_bytes, end);
  bytes.append(reinterpret_cast<const char*>(data.data()), static_cast<size_t>(end - data.data()));
  return bytes;
}

ChunkReader::ChunkReader(grpc::ByteBuffer* message) : message_bytes_(message->Length()), slices_(message) {}

bool ChunkReader::ReadHead(ChunkHead* head) {
  *head = {};
  if (!slices_.status().ok()) return false;
  CodedInputStream in(&slices_);  // its destructor returns the bytes that it has buffered but not parsed
  bool hash = false, secret = false;
  for (uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    bool good = false;
    switch (WireFormatLite::GetTagFieldNumber(tag)) {
      case pb::Chunk::kRequestIdFieldNumber:
        good = in.ReadVarint64(&head->request);
        break;
      case pb::Chunk::kOffsetFieldNumber:
        good = in.ReadVarint64(&head->offset);
        break;
      case pb::Chunk::kLengthFieldNumber:
        good = in.ReadVarint64(&head->length);
        break;
      case pb::Chunk::kHashFieldNumber:
        good = hash = ReadBytes(in, &head->hash.bytes);
        break;
      case pb::Chunk::kSecretFieldNumber:
        good = secret = ReadBytes(in, &head->secret);
        break;
      case pb::Chunk::kDataFieldNumber:
        head->first = hash && secret;
        return tag == kDataTag && in.ReadVarint64(&head->data_bytes) &&
               head->data_bytes == message_bytes_ - static_cast<size_t>(in.CurrentPosition());
      default:
        break;
    }
    if (!good) return false;
  }
  head->first = hash && secret;
  return in.ConsumedEntireMessage() && static_cast<size_t>(in.CurrentPosition()) == message_bytes_;
}

bool ChunkReader::Next(std::span<const std::byte>* data) {
  const void* begin = nullptr;
  int size = 0;
  while (slices_.Next(&begin, &size)) {
    if (size == 0) continue;
    *data = {static_cast<const std::byte*>(begin), static_cast<size_t>(size)};
    return true;
  }
  return false;
}

}  // namespace evenkeel::transport
