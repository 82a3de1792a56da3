// The reader against damaged and hostile bytes: an error or a part whose views lie inside, never a crash.
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "core/part.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/part.pb.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

std::vector<std::byte> Assemble(const std::string& header, const std::string& payload) {
  size_t begin = (16 + header.size() + 63) / 64 * 64;
  std::vector<std::byte> part(begin + payload.size());
  uint32_t prefix[4] = {0x504b5645, 1, static_cast<uint32_t>(header.size()), 0};
  std::memcpy(part.data(), prefix, 16);
  std::memcpy(part.data() + 16, header.data(), header.size());
  std::memcpy(part.data() + begin, payload.data(), payload.size());
  return part;
}

pb::PartHeader GoodHeader() {
  pb::PartHeader header;
  header.set_phase("vision");
  header.set_num_pieces(1);
  pb::TensorHeader* pixels = header.add_tensors();
  pixels->set_name("pixel_values");
  pixels->set_dtype(pb::U8);
  pixels->add_shape(5);
  pixels->add_shape(12);
  pb::PixelExpansion* expansion = pixels->mutable_expansion();
  expansion->set_channels(3);
  expansion->set_frames(2);
  expansion->set_frames_on_wire(1);
  expansion->set_patch(2);
  for (int i = 0; i < 768; ++i) expansion->add_table(i);
  pb::TensorHeader* grid = header.add_tensors();
  grid->set_name("image_grid_thw");
  grid->set_dtype(pb::I64);
  grid->add_shape(1);
  grid->add_shape(3);
  grid->set_offset(64);
  header.set_payload_bytes(128);
  header.add_keys("d/s/k");
  return header;
}

const std::string kPayload(128, '\0');

void ExpectDataLoss(const std::vector<std::byte>& part, const std::string& message) {
  absl::StatusOr<PartView> view = ReadPart(part);
  EXPECT_EQ(view.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(view.status().message()), HasSubstr(message));
}

TEST(PartReader, RefusesEverythingTheGrammarDoesNotAllow) {
  ASSERT_TRUE(ReadPart(Assemble(GoodHeader().SerializeAsString(), kPayload)).ok())
      << ReadPart(Assemble(GoodHeader().SerializeAsString(), kPayload)).status();
  struct Case {
    std::function<void(pb::PartHeader&)> damage;
    std::string message;
  };
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  const std::vector<Case> cases = {
      {[](auto& h) { h.set_phase("A tower"); }, "'A tower' is not a phase's name"},
      {[](auto& h) { h.set_num_pieces(0); }, "piece 0 of 0 does not exist"},
      {[](auto& h) { h.set_piece(1); }, "piece 1 of 1 does not exist"},
      {[](auto& h) { h.set_payload_bytes(64); }, "announces a payload of 64 bytes, 128 are there"},
      {[](auto& h) { h.set_payload_bytes(kHuge); }, "announces a payload"},
      {[](auto& h) { h.mutable_tensors(1)->set_name(""); }, "a tensor has no name"},
      {[](auto& h) { h.mutable_tensors(1)->set_name("pixel_values"); },
       "two tensors are named 'pixel_values'"},
      {[](auto& h) { h.mutable_tensors(1)->set_dtype(pb::DTYPE_UNSPECIFIED); }, "unknown dtype 0"},
      {[](auto& h) { h.mutable_tensors(1)->set_dtype(static_cast<pb::DType>(7)); }, "unknown dtype 7"},
      {[](auto& h) { h.mutable_tensors(1)->set_offset(0); }, "lies at 0 of the payload, expected 64"},
      {[](auto& h) { h.mutable_tensors(1)->set_offset(65); }, "lies at 65 of the payload, expected 64"},
      {[](auto& h) { h.mutable_tensors(1)->set_offset(kHuge); }, "expected 64"},
      {[](auto& h) { h.mutable_tensors(1)->set_shape(0, 3); }, "ends beyond the payload of 128 bytes"},
      {[](auto& h) { h.mutable_tensors(1)->set_shape(0, 0); }, "the tensors end at 64, the payload at 128"},
      {[](auto& h) { h.mutable_tensors(1)->set_shape(0, kHuge); }, "the shape overflows"},
      {[](auto& h) {
         h.mutable_tensors(1)->set_shape(0, 1ull << 32);
         h.mutable_tensors(1)->set_shape(1, 1ull << 32);
       },
       "the shape overflows"},
      {[](auto& h) {
         h.mutable_tensors(1)->set_shape(0, 0);
         for (int i = 0; i < 3; ++i) h.mutable_tensors(1)->add_shape(1ull << 40);
       },
       "the shape overflows"},
      {[](auto& h) {
         for (int i = 0; i < 7; ++i) h.mutable_tensors(1)->add_shape(1);
       },
       "has 9 dimensions, at most 8"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->set_channels(0); },
       "impossible pixel expansion"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->set_channels(17); },
       "impossible pixel expansion"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->set_frames(0); },
       "impossible pixel expansion"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->set_frames_on_wire(3); },
       "impossible pixel expansion"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->set_patch(0xffffffff); },
       "impossible pixel expansion"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->add_table(1); },
       "impossible pixel expansion"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->set_patch(3); }, "needs u8 rows of 27 bytes"},
      {[](auto& h) { h.mutable_tensors(0)->mutable_expansion()->set_frames_on_wire(2); },
       "needs u8 rows of 24 bytes"},
      {[](auto& h) {
         h.mutable_tensors(0)->mutable_expansion()->set_table(5, std::numeric_limits<float>::quiet_NaN());
       },
       "the expansion's table is not finite"},
      {[](auto& h) {
         for (int i = 0; i < 1023; ++i) h.add_tensors();
       },
       "more than 1024 tensors"},
      {[](auto& h) { h.mutable_tensors(0)->set_name(std::string(70000, 'n')); }, "more than 65536 bytes"},
      {[](auto& h) {
         for (int i = 0; i < (1 << 20); ++i) h.add_keys("");
       },
       "more than 1048576 keys"},
  };
  for (const Case& c : cases) {
    pb::PartHeader header = GoodHeader();
    c.damage(header);
    ExpectDataLoss(Assemble(header.SerializeAsString(), kPayload), c.message);
  }
}

TEST(PartReader, RefusesDamagedPrefixesAndPadding) {
  std::string header = GoodHeader().SerializeAsString();
  std::vector<std::byte> good = Assemble(header, kPayload);
  ExpectDataLoss({}, "0 bytes are shorter than the prefix of 16");
  ExpectDataLoss(std::vector<std::byte>(16), "not the magic");
  auto with = [&](size_t at, uint8_t value) {
    std::vector<std::byte> part = good;
    part[at] = std::byte{value};
    return part;
  };
  ExpectDataLoss(with(3, 'p'), "not the magic \"EVKP\"");
  ExpectDataLoss(with(4, 0), "offset 4: format version 0; this release reads 1 to 3");
  ExpectDataLoss(with(4, 2), "format version 2 without a token form");
  ExpectDataLoss(with(4, 3), "format version 3 without a token form");
  ExpectDataLoss(with(4, 4), "offset 4: format version 4; this release reads 1 to 3");
  ExpectDataLoss(with(10, 1), "does not fit into");
  ExpectDataLoss(with(11, 0xff), "at most 67108864 are allowed");
  ExpectDataLoss(with(15, 1), "offset 12: the reserved word is not 0");
  ExpectDataLoss(with(good.size() - 129, 1), "the padding behind the header is not zero");
  ExpectDataLoss(with(good.size() - 1, 1), "the gap behind tensor 'image_grid_thw' is not zero");
  ExpectDataLoss(with(good.size() - 65, 1), "the gap behind tensor 'pixel_values' is not zero");
  ExpectDataLoss(Assemble(std::string("\xd0\x0f\x01", 3), ""), "unknown field 250");
  ExpectDataLoss(Assemble(std::string("\x0a\xff\xff\xff\xff\x0f", 6), ""), "field 1 is damaged");
  ExpectDataLoss(Assemble(std::string("\x3a\x01\xff", 3), ""), "not a PartHeader message");
  ExpectDataLoss(Assemble(std::string("\x0a\x02\xff\xfe", 4), ""), "is not a phase's name");
}

void ReadAnything(const std::vector<std::byte>& part) {
  absl::StatusOr<PartView> view = ReadPart(part);
  if (!view.ok()) {
    ASSERT_EQ(view.status().code(), absl::StatusCode::kDataLoss);
    return;
  }
  for (const TensorView& tensor : view->tensors) {
    ASSERT_EQ(tensor.wire.size(), tensor.spec.num_bytes());
    ASSERT_GE(tensor.wire.data(), part.data());
    ASSERT_LE(tensor.wire.data() + tensor.wire.size(), part.data() + part.size());
  }
}

TEST(PartReader, SurvivesEveryTruncation) {
  std::vector<std::byte> good = Assemble(GoodHeader().SerializeAsString(), kPayload);
  for (size_t size = 0; size < good.size(); ++size) {
    // A copy of its own, so that reading past the end is seen by the sanitizer.
    std::vector<std::byte> part(good.begin(), good.begin() + size);
    ASSERT_FALSE(ReadPart(part).ok()) << size;
  }
}

TEST(PartReader, SurvivesThousandsOfMutations) {
  std::string header = GoodHeader().SerializeAsString();
  std::vector<std::byte> good = Assemble(header, kPayload);
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> part = good;
    for (int changes = 1 + random() % 4; changes > 0; --changes) {
      // Half of the changes hit the prefix and the names and sizes of tensors, the rest anything.
      size_t at = random() % 2 == 0 ? random() % 80 : random() % part.size();
      part[at] = static_cast<std::byte>(random());
    }
    ReadAnything(part);
  }
}

TEST(PartReader, SurvivesThousandsOfMutatedMessages) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    pb::PartHeader header = GoodHeader();
    pb::TensorHeader* tensor = header.mutable_tensors(random() % 2);
    uint64_t value = random() >> (random() % 64);
    switch (random() % 6) {
      case 0:
        tensor->set_offset(value);
        break;
      case 1:
        tensor->set_shape(random() % 2, value);
        break;
      case 2:
        tensor->add_shape(value);
        break;
      case 3:
        tensor->set_dtype(static_cast<pb::DType>(value % 9));
        break;
      case 4:
        header.set_payload_bytes(value);
        break;
      case 5:
        tensor->mutable_expansion()->set_patch(static_cast<uint32_t>(value));
        break;
    }
    std::string payload = kPayload;
    payload.resize(64 * (random() % 4));
    if (random() % 2 == 0) header.set_payload_bytes(payload.size());
    ReadAnything(Assemble(header.SerializeAsString(), payload));
  }
}

}  // namespace
}  // namespace evenkeel
