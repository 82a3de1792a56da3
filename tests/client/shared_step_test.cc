// A step that one process receives and another reads is the same step, or what a role receives of it.
#include "client/shared_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/part_role.h"
#include "tests/core/token_parts.h"

namespace evenkeel::client {
namespace {

constexpr Phase kLlm = Phase::kLlm;
const Phase kVision("vision", 1, {Medium::kImage});

// A step of two microbatches and one part of pictures, with its bytes.
struct Received : StepData {
  std::vector<std::vector<std::byte>> memory;

  Received() {
    std::mt19937 random(7);
    step = 3;
    num_microbatches = 2;
    loss_tokens = 19;
    num_samples = 4;
    for (uint32_t microbatch : {0u, 1u}) {
      const TokenPart tokens = RandomTokenPart(random, false);
      memory.push_back(tokens.Bytes());
      Add({.phase = kLlm, .step = 3, .microbatch = microbatch});
    }
    const PartLayout layout({.phase = kVision, .step = 3}, 1,
                            {{.name = "pixel_values", .dtype = DType::kU8, .shape = {4, 300}},
                             {.name = "item_valid", .dtype = DType::kU8, .shape = {1}},
                             {.name = "item_rows", .dtype = DType::kI64, .shape = {1}}},
                            {"k"});
    memory.emplace_back(layout.total_bytes(), std::byte{1});
    layout.WriteHeader(memory.back());
    Add({.phase = kVision, .step = 3});
    routes.push_back({.from = kVision,
                      .to = kLlm,
                      .num_ranks = 2,
                      .route = {.send = {{0, 0, 2}, {1, 2, 3}},
                                .receive = {{0, 0, 2}},
                                .rows_in = 5,
                                .rows_out = 2,
                                .microbatch_offsets = {0, 1, 2}}});
    loads.push_back({.phase = kLlm, .num_ranks = 2, .before = {3, 2, 1.5, {3, 1}}});
    loads.push_back({.phase = kVision, .num_ranks = 2, .tokens_after = {9, 4.5, std::nullopt, {}}});
  }
  void Add(const PartName& name) {
    absl::StatusOr<PartView> view = ReadPart(memory.back());
    EXPECT_TRUE(view.ok()) << view.status();
    parts.push_back({name, *std::move(view), memory.back()});
  }
};

std::shared_ptr<const StepData> Passed(const StepData& step, PartRole role,
                                       std::shared_ptr<std::vector<std::byte>> memory = nullptr) {
  const absl::StatusOr<SharedStep> shared = SharedStep::Of(step, role);
  EXPECT_TRUE(shared.ok()) << shared.status();
  if (memory == nullptr) memory = std::make_shared<std::vector<std::byte>>();
  memory->assign(shared->num_bytes(), std::byte{0xCD});
  EXPECT_TRUE(shared->Write(*memory).ok());
  auto read = ReadSharedStep(*memory, memory, step.step);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *read : nullptr;
}

TEST(SharedStep, IsTheSameStep) {
  const Received step;
  const auto same = Passed(step, PartRole::kWhole);
  ASSERT_NE(same, nullptr);
  EXPECT_EQ(DigestStep(*same), DigestStep(step));
  EXPECT_EQ(same->num_microbatches, 2u);
  EXPECT_EQ(same->loss_tokens, 19u);
  EXPECT_EQ(same->num_samples, 4u);
  ASSERT_EQ(same->routes.size(), 1u);
  EXPECT_EQ(same->routes[0].route.send, step.routes[0].route.send);
  EXPECT_EQ(same->routes[0].route.receive, step.routes[0].route.receive);
  EXPECT_EQ(same->routes[0].route.microbatch_offsets, step.routes[0].route.microbatch_offsets);
  EXPECT_EQ(same->routes[0].num_ranks, 2u);
  ASSERT_EQ(same->loads.size(), 2u);
  EXPECT_EQ(same->loads[0].before.own, 1.5);
  EXPECT_EQ(same->loads[0].before.all, step.loads[0].before.all);
  EXPECT_EQ(same->loads[1].tokens_after.max, 9);
  EXPECT_FALSE(same->loads[1].tokens_after.own.has_value());
}

TEST(SharedStep, RolesReceiveWhatWorkersWouldSendThem) {
  const Received step;
  const auto first = Passed(step, PartRole::kFirst), middle = Passed(step, PartRole::kMiddle),
             last = Passed(step, PartRole::kLast);
  EXPECT_EQ(first->parts.size(), 3u);
  EXPECT_NE(first->parts[2].view.tensor("pixel_values"), nullptr);
  EXPECT_EQ(first->parts[0].view.tensor("labels"), nullptr);
  EXPECT_EQ(middle->parts.size(), 2u);
  EXPECT_TRUE(middle->routes.empty());
  EXPECT_EQ(last->parts[2].view.tensor("pixel_values"), nullptr);
  EXPECT_NE(last->parts[2].view.tensor("item_valid"), nullptr);
  EXPECT_EQ(last->parts[0].role, PartRole::kLast);
  for (size_t i = 0; i < 2; ++i) {
    const TensorView* const labels = last->parts[i].view.tensor("labels");
    ASSERT_NE(labels, nullptr);
    const TensorView* const whole = step.parts[i].view.tensor("labels");
    EXPECT_TRUE(std::equal(labels->bytes().begin(), labels->bytes().end(), whole->bytes().begin(),
                           whole->bytes().end()));
  }
}

TEST(SharedStep, WhatOneRoleReceivedIsPassedOnToThatRoleAlone) {
  const auto last = Passed(Received(), PartRole::kLast);
  EXPECT_EQ(SharedStep::Of(*last, PartRole::kFirst).status().code(), absl::StatusCode::kInvalidArgument);
  const auto again = Passed(*last, PartRole::kWhole);
  EXPECT_EQ(DigestStep(*again), DigestStep(*last));
  EXPECT_EQ(again->parts[0].role, PartRole::kLast);
}

TEST(SharedStep, RefusesDamagedBytesAndOtherSteps) {
  const Received step;
  const auto memory = std::make_shared<std::vector<std::byte>>();
  Passed(step, PartRole::kWhole, memory);
  EXPECT_FALSE(ReadSharedStep(*memory, memory, 4).ok());
  std::vector<std::byte> other = *memory;
  other[0] ^= std::byte{1};
  EXPECT_EQ(ReadSharedStep(other, nullptr, 3).status().code(), absl::StatusCode::kDataLoss);
  for (size_t length = 0; length < memory->size(); length += 61) {
    EXPECT_FALSE(ReadSharedStep(std::span(*memory).first(length), memory, 3).ok()) << length;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    other = *memory;
    other[random() % 600] ^= std::byte{static_cast<uint8_t>(1u << random() % 8)};
    (void)ReadSharedStep(other, nullptr, 3);  // any status, never a crash
  }
}

}  // namespace
}  // namespace evenkeel::client
