#include "client/step_description.h"

#include <gtest/gtest.h>

#include "proto/service.pb.h"

namespace evenkeel {
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
  route->add_ranks(0);
  route->add_ranks(1);
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
  return reply;
}

TEST(StepDescription, TakesWhatTheContractAllows) {
  auto out = CheckDescription(Good(), 4);
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_EQ(out->parts.size(), 4);
  EXPECT_EQ(out->parts[3].name, (PartName{Phase::kVision, 4, 0, 0, 1}));
  ASSERT_EQ(out->routes.size(), 1);
  EXPECT_EQ(out->routes[0].route.send[1], (RouteSegment{1, 3, 2}));
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
      [](auto& r) { r.add_loads()->set_phase("taste"); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    pb::DescribeStepReply reply = Good();
    damages[i](reply);
    EXPECT_EQ(CheckDescription(reply, 4).status().code(), absl::StatusCode::kInvalidArgument)
        << "damage " << i;
  }
}

}  // namespace
}  // namespace evenkeel
