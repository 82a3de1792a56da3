// Token words become the fields that they stand for, token by token, whoever reads them first.
#include "core/token_fields.h"

#include <map>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/token_parts.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;

std::vector<int64_t> Values(const TensorView& tensor) {
  const auto* begin = reinterpret_cast<const int64_t*>(tensor.bytes().data());
  return std::vector<int64_t>(begin, begin + tensor.bytes().size() / sizeof(int64_t));
}

// The position of a token as docs/part-format.md has it, looked up again for every token.
int64_t SlowPosition(const TokenPart& part, uint64_t axis, uint64_t token) {
  size_t before = 0;
  for (size_t i = 0; i < part.spans.size(); i += 2) {
    const uint64_t begin = part.spans[i], length = part.spans[i + 1];
    if (token >= begin && token < begin + length) {
      return part.positions[axis * (part.positions.size() / 3) + before + token - begin];
    }
    before += length;
  }
  if (part.words[token] >> 31 != 0) return 1;
  if (part.padded) return static_cast<int64_t>(token % part.tokens_per_row);
  int64_t begin = 0;
  for (int32_t bound : part.cu_seqlens) begin = static_cast<uint64_t>(bound) <= token ? bound : begin;
  return static_cast<int64_t>(token) - begin;
}

std::map<std::string, std::vector<int64_t>> SlowFields(const TokenPart& part) {
  std::map<std::string, std::vector<int64_t>> out = {
      {"input_ids", {}}, {"labels", {}}, {"position_ids", {}}, {"mm_token_type_ids", {}}};
  if (part.padded) out["attention_mask"] = {};
  for (uint32_t word : part.words) {
    out["input_ids"].push_back(word % (1u << 28));
    const uint32_t type = (word >> 28) % 4;
    const bool marked = (word >> 30) % 2 == 1;
    out["labels"].push_back(marked && type == 0 ? out["input_ids"].back() : -100);
    out["mm_token_type_ids"].push_back(marked && type != 0 ? type + 4 : type);
    if (part.padded) out["attention_mask"].push_back(1 - (word >> 31));
  }
  for (uint64_t axis = 0; axis < 3; ++axis) {
    for (uint64_t i = 0; i < part.words.size(); ++i)
      out["position_ids"].push_back(SlowPosition(part, axis, i));
  }
  return out;
}

TEST(TokenFields, AreWhatTheWordsStandForWhateverTheShapes) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const TokenPart made = RandomTokenPart(random, round % 2 == 0);
    const std::vector<std::byte> bytes = made.Bytes();
    const absl::StatusOr<PartView> view = ReadPart(bytes);
    ASSERT_TRUE(view.ok()) << view.status();
    const auto expected = SlowFields(made);
    for (const auto& [name, values] : expected) {
      const TensorView* tensor = view->tensor(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->spec.dtype, DType::kI64);
      EXPECT_EQ(Values(*tensor), values) << name << " round " << round;
    }
    EXPECT_EQ(view->tensors.size(), expected.size() + (made.padded ? 1 : 2));
  }
}

TEST(TokenFields, StandInThePlaceOfTheWordsInTheirOrder) {
  TokenPart made{.rows = 1, .tokens_per_row = 2, .words = {7, 8}, .cu_seqlens = {0, 2}};
  const std::vector<std::byte> bytes = made.Bytes();
  const absl::StatusOr<PartView> view = ReadPart(bytes);
  ASSERT_TRUE(view.ok()) << view.status();
  std::vector<std::string> names;
  for (const TensorView& tensor : view->tensors) names.push_back(tensor.spec.name);
  EXPECT_THAT(names, ElementsAre("input_ids", "labels", "position_ids", "mm_token_type_ids", "cu_seqlens",
                                 "loss_tokens"));
  EXPECT_THAT(view->tensor("position_ids")->spec.shape, ElementsAre(3, 1, 2));
  EXPECT_THAT(view->tensor("labels")->spec.shape, ElementsAre(1, 2));
}

TEST(TokenFields, MayBeReadFromManyThreadsAndAreComputedOnce) {
  std::mt19937 random(12);
  TokenPart made{.rows = 1, .tokens_per_row = 50000, .cu_seqlens = {0, 20000, 50000}};
  for (int i = 0; i < 50000; ++i) made.words.push_back(static_cast<uint32_t>(random()));
  const std::vector<std::byte> bytes = made.Bytes();
  const absl::StatusOr<PartView> view = ReadPart(bytes);
  ASSERT_TRUE(view.ok()) << view.status();
  constexpr size_t kThreads = 8;
  std::vector<std::vector<const std::byte*>> where(kThreads);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const PartView copy = *view;
        for (const TensorView& tensor : copy.tensors) where[t].push_back(tensor.bytes().data());
      });
    }
  }
  for (size_t t = 1; t < kThreads; ++t) EXPECT_EQ(where[t], where[0]);
  const auto expected = SlowFields(made);
  for (const auto& [name, values] : expected) EXPECT_EQ(Values(*view->tensor(name)), values) << name;
}

// So that a digest of a stream is the same whichever way its tokens travelled.
TEST(DigestPart, OfTokenWordsIsThatOfTheFieldsTheyStandFor) {
  std::mt19937 random(13);
  for (bool padded : {false, true}) {
    const TokenPart made = RandomTokenPart(random, padded);
    const std::vector<std::byte> bytes = made.Bytes();
    const absl::StatusOr<PartView> view = ReadPart(bytes);
    ASSERT_TRUE(view.ok()) << view.status();
    std::vector<TensorSpec> specs;
    for (const TensorView& tensor : view->tensors) specs.push_back(tensor.spec);
    const PartLayout plain(view->name, 1, specs, {});
    std::vector<std::byte> plain_bytes(plain.total_bytes());
    plain.WriteHeader(plain_bytes);
    auto fields = SlowFields(made);
    for (size_t i = 0; i < specs.size(); ++i) {
      const std::span<std::byte> to = plain.tensor(plain_bytes, i);
      const auto field = fields.find(specs[i].name);
      const void* from = field == fields.end() ? static_cast<const void*>(view->tensors[i].wire.data())
                                               : field->second.data();
      if (!to.empty()) std::memcpy(to.data(), from, to.size());
    }
    Digester by_words, by_fields;
    DigestPart(*view, by_words);
    DigestPart(*ReadPart(plain_bytes), by_fields);
    EXPECT_EQ(by_words.Finish(), by_fields.Finish());
  }
}

// The vector of docs/part-format.md.
TEST(TokenFields, HaveTheDocumentedBytes) {
  TokenPart made{.rows = 1,
                 .tokens_per_row = 5,
                 .words = {11, TokenWord::Make(12, 0, true, false), TokenWord::Make(9, 1, false, false),
                           TokenWord::Make(9, 1, false, false), 13},
                 .cu_seqlens = {0, 2, 5},
                 .spans = {2, 3},
                 .positions = {0, 0, 2, 0, 0, 2, 0, 1, 2}};
  const std::vector<std::byte> bytes = made.Bytes();
  EXPECT_EQ(made.words[1], 0x4000000cu);
  EXPECT_EQ(made.words[2], 0x10000009u);
  const absl::StatusOr<PartView> view = ReadPart(bytes);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_THAT(Values(*view->tensor("input_ids")), ElementsAre(11, 12, 9, 9, 13));
  EXPECT_THAT(Values(*view->tensor("labels")), ElementsAre(-100, 12, -100, -100, -100));
  EXPECT_THAT(Values(*view->tensor("mm_token_type_ids")), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(Values(*view->tensor("position_ids")),
              ElementsAre(0, 1, 0, 0, 2, 0, 1, 0, 0, 2, 0, 1, 0, 1, 2));
}

}  // namespace
}  // namespace evenkeel
