#include "client/step_description.h"

#include <gtest/gtest.h>

#include "proto/service.pb.h"
#include "tests/usual_phases.h"

namespace evenkeel::client {
namespace {

pb::DescribeStepReply Good() {
  pb::DescribeStepReply reply;
  reply.set_step(4);
  reply.set_num_microbatches(2);
  for (auto [phase, microbatch, piece] :
       {std::tuple{"llm", 0, 0}, {"llm", 1, 0}, {"vision", 0, 0}, {"vision", 0, 1}}) {
    pb::PartDescription* part = reply.add_parts();
    part->set_phase(phase);
    part->set_microbatch(microbatch);
    part->set_piece(piece);
    part->set_bytes(128);
  }
  pb::RouteSlice* route = reply.add_routes();
  route->set_from("vision");
  route->set_to("llm");
  route->set_num_ranks(2);
  route->set_rows_in(5);
  route->set_rows_out(3);
  for (auto [peer, row, rows] : {std::tuple{0, 1, 2}, {1, 3, 2}}) {
    pb::RouteSegment* segment = route->add_send();
    segment->set_peer(peer);
    segment->set_row(row);
    segment->set_rows(rows);
  }
  route->add_receive()->set_rows(3);
  for (uint64_t offset : {0, 1, 3}) route->add_microbatch_offsets(offset);
  for (const char* phase : {"llm", "vision"}) reply.add_loads()->set_phase(phase);
  return reply;
}

TEST(StepDescription, TakesWhatTheContractAllows) {
  auto out = CheckDescription(Good(), 4);
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_EQ(out->parts.size(), 4);
  EXPECT_EQ(out->parts[3].name, (PartName{kVisionPhase, 4, 0, 0, 1}));
  EXPECT_EQ(out->parts[3].name.phase.number(), 1) << "as in the list of loads";
  ASSERT_EQ(out->routes.size(), 1);
  EXPECT_EQ(out->routes[0].route.send[1], (RouteSegment{1, 3, 2}));
}

TEST(StepDescription, GroupsAreOneForEachMicrobatch) {
  pb::DescribeStepReply reply = Good();
  const auto add = [](pb::ContextGroup* group, uint32_t first, uint32_t size) {
    group->set_first(first);
    group->set_size(size);
  };
  add(reply.add_groups(), 2, 2);
  EXPECT_FALSE(CheckDescription(reply, 4).ok()) << "there are two microbatches";
  add(reply.add_groups(), 2, 1);
  add(reply.add_ahead()->add_groups(), 0, 4);
  reply.add_ahead();
  const auto out = CheckDescription(reply, 4);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->groups.of_microbatch, (std::vector<RankGroup>{{2, 2}, {2, 1}}));
  EXPECT_EQ(out->groups.ahead, (std::vector<std::vector<RankGroup>>{{{0, 4}}, {}}));
  for (const auto& [first, size] : {std::pair(0u, 0u), std::pair(1u, 2u), std::pair(0u, 1u << 31)}) {
    pb::DescribeStepReply bad = reply;
    add(bad.mutable_groups(1), first, size);
    EXPECT_FALSE(CheckDescription(bad, 4).ok()) << first << "+" << size;
    bad = reply;
    add(bad.mutable_ahead(0)->mutable_groups(0), first, size);
    EXPECT_FALSE(CheckDescription(bad, 4).ok()) << first << "+" << size;
  }
}

TEST(StepDescription, TakesTheSpreadOfLoadsWithAndWithoutThoseOfAllRanks) {
  pb::DescribeStepReply reply = Good();
  pb::PhaseLoads* loads = reply.mutable_loads(1);
  loads->set_num_ranks(2);
  loads->mutable_before_spread()->set_max(7);
  loads->mutable_before_spread()->set_mean(4);
  loads->mutable_tokens_after_spread()->set_own(9);
  auto out = CheckDescription(reply, 4);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->loads[1].num_ranks, 2);
  EXPECT_EQ(out->loads[1].before.max, 7);
  EXPECT_EQ(out->loads[1].before.mean, 4);
  EXPECT_FALSE(out->loads[1].before.own.has_value()) << "the phase may not run on this rank";
  EXPECT_EQ(out->loads[1].tokens_after.own, 9);
  EXPECT_TRUE(out->loads[1].before.all.empty());
  for (double load : {1, 7}) loads->add_before(load);
  out = CheckDescription(reply, 4);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->loads[1].before.all, (std::vector<double>{1, 7}));
}

TEST(StepDescription, RefusesEverythingElse) {
  std::vector<std::function<void(pb::DescribeStepReply&)>> damages = {
      [](auto& r) { r.set_step(5); },
      [](auto& r) { r.mutable_parts(0)->set_phase("smell"); },
      [](auto& r) { r.mutable_parts()->SwapElements(0, 2); },
      [](auto& r) { r.mutable_parts(3)->set_piece(0); },
      [](auto& r) { r.mutable_parts(1)->set_bytes(0); },
      [](auto& r) { r.mutable_routes(0)->set_from(""); },
      [](auto& r) { r.mutable_routes(0)->mutable_send(1)->set_peer(2); },
      [](auto& r) { r.mutable_routes(0)->mutable_send(1)->set_row(4); },
      [](auto& r) { r.mutable_routes(0)->mutable_send(0)->set_rows(UINT64_MAX); },
      [](auto& r) { r.mutable_routes(0)->mutable_send()->SwapElements(0, 1); },
      [](auto& r) { r.mutable_routes(0)->mutable_receive(0)->set_rows(4); },
      [](auto& r) { r.mutable_routes(0)->set_microbatch_offsets(1, 4); },
      [](auto& r) { r.mutable_routes(0)->set_microbatch_offsets(2, 0); },
      [](auto& r) { r.mutable_routes(0)->set_num_ranks(1); },
      [](auto& r) { r.add_loads()->set_phase("Taste"); },
      [](auto& r) { r.add_loads()->set_phase("llm"); },
      [](auto& r) { r.mutable_loads()->SwapElements(0, 1); },
      [](auto& r) { r.mutable_loads(1)->set_phase("audio"); },
      [](auto& r) {
        pb::PhaseLoads* loads = r.mutable_loads(0);
        loads->set_num_ranks(3);
        loads->add_before(1.5);
      },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    pb::DescribeStepReply reply = Good();
    damages[i](reply);
    EXPECT_EQ(CheckDescription(reply, 4).status().code(), absl::StatusCode::kInvalidArgument)
        << "damage " << i;
  }
}

}  // namespace
}  // namespace evenkeel::client
