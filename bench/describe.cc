// The cost of describing a step to every rank: CPU time and bytes of all replies.
//
//   bench_describe [ranks] [samples of a step] [--all-loads]        4,096 ranks, 16,384 samples of a photo
//   each
//
// First the replies alone, described and serialised by one thread; then a worker in a process of its own that
// is asked over gRPC, one call after the other, as its consumers do: its CPU time has the calls in it.
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "proto/service.grpc.pb.h"
#include "server/step_reply.h"
#include "server/worker.h"
#include "tests/stream/fake_stream.h"

namespace evenkeel {
namespace {

std::vector<stream::FakeSample> Photos(size_t count) {
  std::mt19937 random(1);
  std::vector<stream::FakeSample> samples(count);
  for (stream::FakeSample& sample : samples) {
    sample.text = std::string(40 + random() % 400, 't');
    sample.items = {{.medium = Medium::kImage, .rows = uint32_t(256 + random() % 3840)}};
  }
  return samples;
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double CpuSecondsOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  uint64_t user = 0, system = 0;
  std::sscanf(text.c_str() + text.rfind(')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
              &user, &system);
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

struct Replies {
  uint64_t bytes = 0, largest = 0;
  void Add(uint64_t one) {
    bytes += one;
    largest = std::max(largest, one);
  }
};

void Print(const char* what, const Replies& replies, uint32_t ranks, double seconds) {
  std::printf("%-28s %8.3f CPU s  %8.1f us a reply  mean %8.0f bytes  largest %8lu  all %8.2f MB\n", what,
              seconds, 1e6 * seconds / ranks, static_cast<double>(replies.bytes) / ranks,
              static_cast<unsigned long>(replies.largest), static_cast<double>(replies.bytes) * 1e-6);
  std::fflush(stdout);
}

pb::DescribeStepRequest RequestOf(uint32_t rank, bool all_loads) {
  pb::DescribeStepRequest request;
  request.set_rank(rank);
  request.set_all_loads(all_loads);
  return request;
}

// In the child: serves until the parent closes its end.
[[noreturn]] void Serve(uint32_t ranks, uint64_t samples, int address_out, int wait_in) {
  auto worker = server::Worker::Start(
      {.transport = "grpc"}, stream::MakeFakeStream(stream::FakeJob(ranks, samples), Photos(samples)));
  const std::string address = worker.ok() ? (*worker)->address() : "";
  if (write(address_out, address.data(), address.size()) < 0) _exit(1);
  close(address_out);
  char end = 0;
  if (read(wait_in, &end, 1) < 0) _exit(1);
  _exit(0);
}

void AskOverGrpc(const std::string& address, pid_t worker, uint32_t ranks, bool all_loads) {
  auto stub = pb::Worker::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  const auto set_deadline = [](grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
  };
  pb::OpenSessionRequest open;
  open.set_stream_version(kStreamVersion);
  open.set_part_format(kPartFormatVersion);
  open.set_transport("grpc");
  open.set_secret(std::string(16, 's'));
  pb::OpenSessionReply session;
  grpc::ClientContext opening;
  set_deadline(opening);
  if (!stub->OpenSession(&opening, open, &session).ok()) return;
  // The first call plans.
  for (const bool counted : {false, true}) {
    Replies replies;
    const double begin = CpuSecondsOf(worker);
    for (uint32_t rank = 0; rank < (counted ? ranks : 1); ++rank) {
      grpc::ClientContext context;
      set_deadline(context);
      pb::DescribeStepRequest request = RequestOf(rank, all_loads);
      request.set_session_id(session.session_id());
      pb::DescribeStepReply reply;
      const grpc::Status status = stub->DescribeStep(&context, request, &reply);
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.error_message().c_str());
      replies.Add(reply.ByteSizeLong());
    }
    if (counted) Print("over gRPC, worker's CPU", replies, ranks, CpuSecondsOf(worker) - begin);
  }
}

void DescribeAlone(uint32_t ranks, uint64_t samples, bool all_loads) {
  const auto stream = stream::MakeFakeStream(stream::FakeJob(ranks, samples), Photos(samples));
  const stream::PartBuilder builder(*stream, nullptr);
  const server::PartPool pool({}, nullptr);
  const double planning = CpuSeconds();
  const auto plan = std::make_shared<const stream::StepPlan>(*stream::PlanStep(*stream, 0));
  const double begin = CpuSeconds();
  Replies replies;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    pb::DescribeStepReply reply;
    const absl::Status status = server::DescribeStep(*stream, builder, pool, 1ull << 30, {&plan, 1},
                                                     RequestOf(rank, all_loads), reply);
    if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    replies.Add(reply.SerializeAsString().size());
  }
  std::printf("%u ranks, %lu samples: planned in %.3f CPU s\n", ranks, static_cast<unsigned long>(samples),
              begin - planning);
  Print("described and serialised", replies, ranks, CpuSeconds() - begin);
}

int Run(uint32_t ranks, uint64_t samples, bool all_loads) {
  int address[2] = {}, wait[2] = {};
  if (pipe(address) != 0 || pipe(wait) != 0) return 1;
  const pid_t worker = fork();  // before this process has any thread
  if (worker == 0) {
    close(address[0]);
    close(wait[1]);
    Serve(ranks, samples, address[1], wait[0]);
  }
  close(address[1]);
  close(wait[0]);
  DescribeAlone(ranks, samples, all_loads);
  char text[256] = {};
  if (read(address[0], text, sizeof(text) - 1) > 0) AskOverGrpc(text, worker, ranks, all_loads);
  close(wait[1]);
  waitpid(worker, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  std::vector<uint64_t> numbers = {4096, 16384};
  bool all_loads = false;
  for (int i = 1, next = 0; i < argc; ++i) {
    if (std::string(argv[i]) == "--all-loads") {
      all_loads = true;
    } else if (next < 2) {
      numbers[next++] = std::strtoull(argv[i], nullptr, 10);
    }
  }
  return evenkeel::Run(static_cast<uint32_t>(numbers[0]), numbers[1], all_loads);
}
