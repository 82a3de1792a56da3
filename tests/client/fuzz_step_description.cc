// Any bytes as what a worker says of a step: refused, or parts in order and routes within their rows.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>

#include "client/step_description.h"
#include "proto/service.pb.h"

namespace {

void CheckInside(const std::vector<evenkeel::RouteSegment>& segments, uint64_t rows, size_t num_ranks) {
  for (const evenkeel::RouteSegment& segment : segments) {
    if (segment.peer >= num_ranks || segment.row > rows || segment.rows > rows - segment.row) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // It would tell of every text that is not UTF-8.
  [[maybe_unused]] static const auto before = google::protobuf::SetLogHandler(nullptr);
  evenkeel::pb::DescribeStepReply reply;
  if (!reply.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto step = evenkeel::client::CheckDescription(reply, reply.step());
  if (!step.ok()) {
    if (!absl::IsInvalidArgument(step.status())) std::abort();
    return 0;
  }
  for (const evenkeel::client::LocalRoute& local : step->routes) {
    CheckInside(local.route.send, local.route.rows_in, local.num_ranks);
    CheckInside(local.route.receive, local.route.rows_out, local.num_ranks);
  }
  return 0;
}
