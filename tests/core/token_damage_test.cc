// The reader against damaged and hostile token words: an error, or fields that can be computed.
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/part.pb.h"
#include "tests/core/token_parts.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

TokenPart GoodTokens() {
  return {.rows = 1,
          .tokens_per_row = 6,
          .words = {1, 2, 3, 4, 5, 6},
          .cu_seqlens = {0, 4, 6},
          .spans = {0, 1, 4, 2},
          .positions = {1, 2, 3, 4, 5, 6, 7, 8, 9}};
}

void ExpectDataLoss(const std::vector<std::byte>& part, const std::string& message) {
  const absl::StatusOr<PartView> view = ReadPart(part);
  EXPECT_EQ(view.status().code(), absl::StatusCode::kDataLoss) << message;
  EXPECT_THAT(std::string(view.status().message()), HasSubstr(message));
}

TEST(TokenReader, RefusesTokensThatTheGrammarDoesNotAllow) {
  ASSERT_TRUE(ReadPart(GoodTokens().Bytes()).ok()) << ReadPart(GoodTokens().Bytes()).status();
  struct Case {
    std::function<void(TokenPart&)> damage;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& p) { p.rows = 2, p.tokens_per_row = 3; }, "2 rows; packed tokens are one row"},
      {[](auto& p) { p.cu_seqlens = {}; }, "cu_seqlens must begin at 0 and end at 6"},
      {[](auto& p) {
         p.cu_seqlens = {1, 6};
       },
       "cu_seqlens must begin at 0"},
      {[](auto& p) {
         p.cu_seqlens = {0, 7};
       },
       "cu_seqlens must begin at 0 and end at 6"},
      {[](auto& p) {
         p.cu_seqlens = {0, 5};
       },
       "cu_seqlens must begin at 0 and end at 6"},
      {[](auto& p) {
         p.cu_seqlens = {0, 5, 4, 6};
       },
       "cu_seqlens must not descend"},
      {[](auto& p) {
         p.cu_seqlens = {0, -1, 6};
       },
       "cu_seqlens must not descend"},
      {[](auto& p) {
         p.cu_seqlens = {0, INT32_MAX, 6};
       },
       "cu_seqlens must not descend"},
      {[](auto& p) {
         p.spans = {-1, 1, 4, 2};
       },
       "position span 0 has 1 tokens from -1"},
      {[](auto& p) {
         p.spans = {0, -1, 4, 2};
       },
       "position span 0 has -1 tokens from 0"},
      {[](auto& p) {
         p.spans = {0, 1, 4, 3};
       },
       "position span 1 has 3 tokens from 4; expected between 1 and 6"},
      {[](auto& p) {
         p.spans = {0, 1, INT32_MAX, INT32_MAX};
       },
       "position span 1"},
      {[](auto& p) {
         p.spans = {0, 2, 1, 1};
       },
       "position span 1 has 1 tokens from 1; expected between 2 and 6"},
      {[](auto& p) {
         p.spans = {4, 2, 0, 1};
       },
       "position span 1 has 1 tokens from 0"},
      {[](auto& p) {
         p.spans = {0, 1};
       },
       "the spans need 3 positions, there are 9"},
      {[](auto& p) { p.positions.resize(6); }, "the spans need 9 positions, there are 6"},
  };
  for (const Case& c : cases) {
    TokenPart part = GoodTokens();
    c.damage(part);
    ExpectDataLoss(part.Bytes(), c.message);
  }
}

// The good part with another header; the payload stays as it is.
std::vector<std::byte> WithHeader(const std::function<void(pb::PartHeader&)>& damage, uint32_t version = 2) {
  const TokenPart good = GoodTokens();
  const std::vector<std::byte> bytes = good.Bytes();
  const uint64_t payload = good.Layout().payload_begin();
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 8, 4);
  pb::PartHeader header;
  EXPECT_TRUE(header.ParseFromArray(bytes.data() + 16, static_cast<int>(header_bytes)));
  damage(header);
  const std::string text = header.SerializeAsString();
  std::vector<std::byte> out((16 + text.size() + 63) / 64 * 64);
  const uint32_t prefix[4] = {0x504b5645, version, static_cast<uint32_t>(text.size()), 0};
  std::memcpy(out.data(), prefix, sizeof(prefix));
  std::memcpy(out.data() + 16, text.data(), text.size());
  out.insert(out.end(), bytes.begin() + static_cast<ptrdiff_t>(payload), bytes.end());
  return out;
}

TEST(TokenReader, RefusesHeadersThatTheGrammarDoesNotAllow) {
  ASSERT_TRUE(ReadPart(WithHeader([](auto&) {})).ok()) << ReadPart(WithHeader([](auto&) {})).status();
  ExpectDataLoss(WithHeader([](auto&) {}, 1), "format version 1 has no token form");
  struct Case {
    std::function<void(pb::PartHeader&)> damage;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& h) { h.mutable_tensors(0)->clear_tokens(); }, "format version 2 without a token form"},
      {[](auto& h) { h.mutable_tensors(4)->mutable_tokens(); }, "two tensors have a token form"},
      {[](auto& h) { h.mutable_tensors(0)->set_name("words"); }, "must be named 'tokens'"},
      {[](auto& h) { h.mutable_tensors(0)->clear_shape(), h.mutable_tensors(0)->add_shape(6); },
       "must be named 'tokens' and have two dimensions"},
      {[](auto& h) { h.mutable_tensors(0)->set_dtype(pb::F32); }, "tensor 'tokens' is f32, expected i32"},
      {[](auto& h) { h.mutable_tensors(1)->set_name("spans"); }, "tensor 1 must be 'token_position_spans'"},
      {[](auto& h) { h.mutable_tensors(1)->set_dtype(pb::F32); }, "'token_position_spans' is f32"},
      {[](auto& h) { h.mutable_tensors(1)->set_shape(0, 1), h.mutable_tensors(1)->set_shape(1, 4); },
       "'token_position_spans' must have two dimensions, and 2 elements along axis 1"},
      {[](auto& h) { h.mutable_tensors(2)->set_name("positions"); }, "tensor 2 must be 'token_positions'"},
      {[](auto& h) { h.mutable_tensors(2)->clear_shape(), h.mutable_tensors(2)->add_shape(9); },
       "'token_positions' must have two dimensions, and 3 elements along axis 0"},
      {[](auto& h) { h.mutable_tensors(2)->set_shape(0, 9), h.mutable_tensors(2)->set_shape(1, 1); },
       "3 elements along axis 0"},
      {[](auto& h) { h.mutable_tensors(3)->set_name("documents"); }, "packed tokens without 'cu_seqlens'"},
      {[](auto& h) { h.mutable_tensors(3)->set_dtype(pb::F32); }, "tensor 'cu_seqlens' is f32, expected i32"},
      {[](auto& h) { h.mutable_tensors(4)->set_name("labels"); }, "two tensors are named 'labels'"},
      {[](auto& h) { h.mutable_tensors()->DeleteSubrange(1, 4), h.set_payload_bytes(64); }, ""},
  };
  for (const Case& c : cases) ExpectDataLoss(WithHeader(c.damage), c.message);
}

TEST(TokenReader, SurvivesThousandsOfMutations) {
  std::mt19937 random(6);
  size_t read = 0;
  for (int round = 0; round < 20000; ++round) {
    const TokenPart made = round % 4 == 0 ? RandomTokenPart(random, random() % 2 == 0) : GoodTokens();
    std::vector<std::byte> part = made.Bytes();
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      part[random() % part.size()] = static_cast<std::byte>(random());
    }
    const absl::StatusOr<PartView> view = ReadPart(part);
    if (!view.ok()) {
      ASSERT_EQ(view.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    for (const TensorView& tensor : view->tensors) {
      ASSERT_EQ(tensor.bytes().size(), tensor.spec.num_bytes());
      ++read;
    }
  }
  EXPECT_GT(read, 1000);
}

TEST(TokenReader, RefusesMemoryThatIsNotAligned) {
  const std::vector<std::byte> good = GoodTokens().Bytes();
  std::vector<std::byte> shifted(good.size() + 1);
  std::copy(good.begin(), good.end(), shifted.begin() + 1);
  const absl::StatusOr<PartView> view = ReadPart(std::span(shifted).subspan(1));
  EXPECT_EQ(view.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(view.status().message()), HasSubstr("not aligned to 4 bytes"));
}

}  // namespace
}  // namespace evenkeel
