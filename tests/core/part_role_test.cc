// What each role receives of a part, and that nothing else is in it.
#include "core/part_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/core/token_parts.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;

constexpr PartRole kRoles[] = {PartRole::kWhole, PartRole::kFirst, PartRole::kMiddle, PartRole::kLast};

// The role's part of `whole`, checked against the layout that is known without the bytes.
std::vector<std::byte> Cut(const PartLayout& layout, std::span<const std::byte> whole, PartRole role) {
  std::vector<std::byte> out(RoleLayout(layout, role).total_bytes(), std::byte{0xAB});
  const absl::Status status = WriteRolePart(whole, role, out);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

PartView Read(const std::vector<std::byte>& part) {
  absl::StatusOr<PartView> view = ReadPart(part);
  EXPECT_TRUE(view.ok()) << view.status();
  return view.ok() ? *std::move(view) : PartView();
}

std::vector<std::string> Names(const PartView& view) {
  std::vector<std::string> names;
  for (const TensorView& tensor : view.tensors) names.push_back(tensor.spec.name);
  return names;
}

std::vector<std::byte> Content(const PartView& view, std::string_view name) {
  const TensorView* const tensor = view.tensor(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << name << " is missing";
    return {};
  }
  return {tensor->bytes().begin(), tensor->bytes().end()};
}

TEST(PartRole, DeliveredFieldsEqualThoseOfTheWholePart) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const TokenPart tokens = RandomTokenPart(random, /*padded=*/round % 2 == 0);
    const std::vector<std::byte> whole = tokens.Bytes();
    const PartView all = Read(whole);
    for (PartRole role : kRoles) {
      const std::vector<std::byte> part = Cut(tokens.Layout(), whole, role);
      const PartView view = Read(part);
      EXPECT_EQ(view.name, all.name);
      EXPECT_EQ(view.keys, all.keys);
      for (const TensorView& tensor : view.tensors) {
        if (all.tensor(tensor.spec.name) == nullptr) continue;  // positions on the wire
        EXPECT_EQ(Content(view, tensor.spec.name), Content(all, tensor.spec.name)) << tensor.spec.name;
      }
    }
  }
}

TEST(PartRole, EachRoleHasItsFieldsAndNoOthers) {
  std::mt19937 random(5);
  const TokenPart packed = RandomTokenPart(random, false), padded = RandomTokenPart(random, true);
  const auto names = [](const TokenPart& tokens, PartRole role) {
    const std::vector<std::byte> part = Cut(tokens.Layout(), tokens.Bytes(), role);
    return Names(Read(part));
  };
  EXPECT_THAT(names(packed, PartRole::kFirst),
              ElementsAre("input_ids", "position_ids", "mm_token_type_ids", "cu_seqlens", "loss_tokens"));
  EXPECT_THAT(names(packed, PartRole::kMiddle),
              ElementsAre("token_position_spans", "token_positions", "cu_seqlens", "loss_tokens"));
  EXPECT_THAT(names(packed, PartRole::kLast),
              ElementsAre("labels", "position_ids", "mm_token_type_ids", "cu_seqlens", "loss_tokens"));
  EXPECT_THAT(names(padded, PartRole::kMiddle), ElementsAre("attention_mask", "position_ids", "loss_tokens"));
}

// A last stage does not receive tokens that are not trained, nor a first stage which ones are.
TEST(PartRole, WordsHaveNothingThatTheRoleDoesNotNeed) {
  TokenPart tokens{.tokens_per_row = 2,
                   .words = {TokenWord::Make(7, 1, false, false), TokenWord::Make(9, 0, true, false)}};
  tokens.cu_seqlens = {0, 2};
  const auto words = [&](PartRole role) {
    const std::vector<std::byte> part = Cut(tokens.Layout(), tokens.Bytes(), role);
    const PartLayout layout = *ReadPartLayout(part);
    std::vector<uint32_t> out(2);
    std::memcpy(out.data(), layout.const_tensor(part, 0).data(), 8);
    return out;
  };
  EXPECT_THAT(words(PartRole::kFirst),
              ElementsAre(TokenWord::Make(7, 1, false, false), TokenWord::Make(9, 0, false, false)));
  EXPECT_THAT(words(PartRole::kLast),
              ElementsAre(TokenWord::Make(0, 1, false, false), TokenWord::Make(9, 0, true, false)));
}

// The first stage must not take placeholders of targets for those of an encoder, and the last one gathers their rows.
TEST(PartRole, PlaceholdersOfTargetsKeepTheirType) {
  TokenPart tokens{.tokens_per_row = 1, .words = {TokenWord::Make(7, 1, true, false)}};
  tokens.cu_seqlens = {0, 1};
  for (const PartRole role : {PartRole::kFirst, PartRole::kLast}) {
    const std::vector<std::byte> bytes = Cut(tokens.Layout(), tokens.Bytes(), role);
    const PartView part = Read(bytes);
    const TensorView* types = part.tensor("mm_token_type_ids");
    ASSERT_NE(types, nullptr);
    EXPECT_EQ(static_cast<int>(types->bytes()[0]), 1 + kTargetType);
    const TensorView* labels = part.tensor("labels");
    EXPECT_EQ(labels == nullptr, role == PartRole::kFirst);
    if (labels == nullptr) continue;
    EXPECT_EQ(static_cast<int8_t>(labels->bytes()[0]), -100);
  }
}

TEST(PartRole, LastStagesGetNoPixels) {
  const PartLayout layout({.phase = Phase("vision", 1, {Medium::kImage}), .step = 2}, 1,
                          {{.name = "pixel_values", .dtype = DType::kU8, .shape = {4, 1176}},
                           {.name = "image_grid_thw", .dtype = DType::kI64, .shape = {1, 3}},
                           {.name = "item_valid", .dtype = DType::kU8, .shape = {1}},
                           {.name = "item_rows", .dtype = DType::kI64, .shape = {1}}},
                          {"a"});
  std::vector<std::byte> whole(layout.total_bytes(), std::byte{1});
  layout.WriteHeader(whole);
  EXPECT_EQ(Cut(layout, whole, PartRole::kFirst), whole);
  const std::vector<std::byte> last = Cut(layout, whole, PartRole::kLast);
  EXPECT_THAT(Names(Read(last)), ElementsAre("image_grid_thw", "item_valid", "item_rows"));
  EXPECT_FALSE(RoleReceives(PartRole::kMiddle, layout.name().phase));
  EXPECT_TRUE(RoleReceives(PartRole::kMiddle, Phase::kLlm));
}

TEST(PartRole, RefusesBuffersOfAnotherSizeAndOtherBytes) {
  std::mt19937 random(2);
  const TokenPart tokens = RandomTokenPart(random, false);
  std::vector<std::byte> out(64);
  EXPECT_EQ(WriteRolePart(tokens.Bytes(), PartRole::kLast, out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteRolePart(out, PartRole::kLast, out).code(), absl::StatusCode::kDataLoss);
}

TEST(PartRole, ReadersRefuseFieldsThatAreNone) {
  TokenPart tokens{.tokens_per_row = 0};
  tokens.cu_seqlens = {0};
  for (uint32_t fields : {1u << 5, 1u << 31}) {
    std::vector<TensorSpec> specs = tokens.Layout().tensors();
    specs[0].tokens->fields = fields;
    const PartLayout layout = tokens.Layout().WithTensors(specs);
    std::vector<std::byte> part(layout.total_bytes());
    layout.WriteHeader(part);
    EXPECT_EQ(ReadPart(part).status().code(), absl::StatusCode::kDataLoss) << fields;
  }
}

}  // namespace
}  // namespace evenkeel
