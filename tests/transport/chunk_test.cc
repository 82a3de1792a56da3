// The bytes of a chunk: what EncodeChunkHead writes and ChunkReader takes.
#include "transport/chunk.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/service.pb.h"
#include "tests/transport/peers.h"

namespace evenkeel::transport {
namespace {

ChunkHead FirstHead(size_t data_bytes) {
  return {.request = 17,
          .offset = 0,
          .length = 1'000'000'000'000,
          .data_bytes = data_bytes,
          .first = true,
          .hash = DigestOf("payload"),
          .secret = SecretOf(9)};
}

// `pieces`: into how many slices the message is cut.
grpc::ByteBuffer Cut(const std::string& bytes, size_t pieces) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < pieces; ++i) {
    const size_t begin = bytes.size() * i / pieces, end = bytes.size() * (i + 1) / pieces;
    slices.emplace_back(bytes.substr(begin, end - begin));
  }
  return {slices.data(), slices.size()};
}

bool Read(const std::string& bytes, size_t pieces, ChunkHead* head, std::string* data) {
  grpc::ByteBuffer message = Cut(bytes, pieces);
  ChunkReader reader(&message);
  if (!reader.ReadHead(head)) return false;
  data->clear();
  for (std::span<const std::byte> piece; reader.Next(&piece);)
    data->append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return true;
}

TEST(Chunk, IsReadAsItWasWrittenHoweverItIsCut) {
  for (const std::string& data : {std::string(), std::string("x"), std::string(300'000, 'y')}) {
    for (size_t pieces : {1, 2, 3, 7, 60}) {
      const ChunkHead written = FirstHead(data.size());
      ChunkHead head;
      std::string read;
      ASSERT_TRUE(Read(EncodeChunkHead(written) + data, pieces, &head, &read))
          << data.size() << " " << pieces;
      EXPECT_EQ(head.request, written.request);
      EXPECT_EQ(head.length, written.length);
      EXPECT_EQ(head.data_bytes, data.size());
      EXPECT_TRUE(head.first);
      EXPECT_EQ(head.hash, written.hash);
      EXPECT_EQ(head.secret, written.secret);
      EXPECT_EQ(read, data);
    }
  }
}

TEST(Chunk, IsAMessageOfTheProtocol) {
  pb::Chunk chunk;
  ASSERT_TRUE(chunk.ParseFromString(EncodeChunkHead(FirstHead(5)) + "hello"));
  EXPECT_EQ(chunk.request_id(), 17);
  EXPECT_EQ(chunk.data(), "hello");
  EXPECT_EQ(chunk.secret().size(), 16);
}

TEST(Chunk, IsRefusedWhereItsDataAreNotLastOrOfAnotherLength) {
  ChunkHead head;
  std::string data;
  const std::string good = EncodeChunkHead(FirstHead(5));
  EXPECT_TRUE(Read(good + "hello", 1, &head, &data));
  EXPECT_FALSE(Read(good + "hell", 1, &head, &data));
  EXPECT_FALSE(Read(good + "hello!", 1, &head, &data));
  pb::Chunk chunk;
  chunk.set_request_id(1);
  chunk.set_data("hello");
  EXPECT_TRUE(Read(chunk.SerializeAsString(), 1, &head, &data));
  EXPECT_FALSE(head.first);
  chunk.set_secret("0123456789abcdef");  // protobuf writes it after the data
  EXPECT_FALSE(Read(chunk.SerializeAsString(), 1, &head, &data));
  EXPECT_FALSE(Read("\xff\xff\xff", 1, &head, &data));
  EXPECT_FALSE(Read(std::string("\x3a\x01x"), 1, &head, &data)) << "an unknown field";
}

TEST(Chunk, NeedsHashAndSecretOfTheRightLengthToBeTheFirst) {
  ChunkHead head;
  std::string data;
  pb::Chunk chunk;
  chunk.set_request_id(1);
  chunk.set_hash("short");
  EXPECT_FALSE(Read(chunk.SerializeAsString(), 1, &head, &data));
  chunk.set_hash("0123456789abcdef");
  EXPECT_TRUE(Read(chunk.SerializeAsString(), 1, &head, &data));
  EXPECT_FALSE(head.first);
}

}  // namespace
}  // namespace evenkeel::transport
