// Bytes per second into the consumer's memory, beside what ucx_perftest reaches over the same device in the
// same run.
//
//   bench_transport [--rounds 5] [--parts 40] [--part-mib 64] [--device lo] [--check]
//
// Two processes. Parts are ready-made, from rings of buffers on both sides that are larger than any
// last-level cache; their hashes were computed when they were made, and the receiver verifies them. Each
// round measures ucx, grpc and ucx_perftest (package ucx-utils) one after the other, the latter as it comes
// and with the settings that transport/ uses; the better of the two is the yardstick. --check: exit status 1
// where the median ratio is below 0.7.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/annotated_mutex.h"
#include "transport/credentials.h"
#include "transport/factory.h"

namespace evenkeel::transport {
namespace {

constexpr size_t kRing = 8;
constexpr int kWindow = 4;  // requests under way
constexpr SessionId kSession = 1;

struct Settings {
  int rounds = 5;
  int parts = 40;
  size_t part_bytes = 64 << 20;
  std::string device = "lo";
  bool check = false;
};

Options OptionsFor(const Settings& settings, bool grpc) {
  Options options;
  options.name = grpc ? "grpc" : "ucx";
  options.devices = settings.device;
  return options;
}

using Ring = std::vector<std::vector<std::byte>>;

Ring MakeRing(size_t bytes, bool filled) {
  Ring ring(kRing, std::vector<std::byte>(bytes));
  uint64_t value = 1;
  for (auto& buffer : ring) {
    // Also where not filled: touches every page before anything is measured.
    for (size_t i = 0; i + 8 <= bytes; i += filled ? 8 : 4096) {
      value = value * 6364136223846793005ull + 1442695040888963407ull;
      std::memcpy(buffer.data() + i, &value, 8);
    }
  }
  return ring;
}

// Two pipes to the other process; strings with their length in front.
class Wire {
 public:
  Wire(int in, int out) : in_(in), out_(out) {}
  void Put(const std::string& text) {
    uint64_t size = text.size();
    (void)!write(out_, &size, sizeof(size));
    (void)!write(out_, text.data(), size);
  }
  std::string Get() {
    uint64_t size = 0;
    if (!Fill(&size, sizeof(size))) exit(0);
    std::string text(size, '\0');
    if (!Fill(text.data(), size)) exit(0);
    return text;
  }

 private:
  bool Fill(void* to, size_t size) {
    for (size_t have = 0; have < size;) {
      ssize_t got = read(in_, static_cast<char*>(to) + have, size - have);
      if (got <= 0) return false;
      have += got;
    }
    return true;
  }
  int in_, out_;
};

// The worker's process: serves "ucx" or "grpc", then requests until "end".
void Serve(const Settings& settings, Wire wire) {
  Ring ring = MakeRing(settings.part_bytes, true);
  std::vector<Digest> hashes;
  for (const auto& part : ring) hashes.push_back(DigestOf(part));
  for (;;) {
    bool grpc = wire.Get() == "grpc";
    std::unique_ptr<Source> source;
    std::unique_ptr<grpc::Server> server;
    std::string endpoint = "none";
    if (grpc) {
      std::unique_ptr<GrpcSource> made = *MakeGrpcSource(OptionsFor(settings, true));
      grpc::ServerBuilder builder;
      ConfigureServer(builder);
      int port = 0;
      builder.AddListeningPort("127.0.0.1:0", *MakeServerCredentials({}), &port);
      builder.RegisterService(made->service());
      server = builder.BuildAndStart();
      endpoint = absl::StrCat("127.0.0.1:", port);
      source = std::move(made);
    } else {
      source = *MakeUcxSource(OptionsFor(settings, false));
    }
    if (!source->Connect(kSession, wire.Get(), Secret{}).ok()) abort();
    wire.Put(source->address());
    wire.Put(endpoint);
    for (std::string request = wire.Get(); request != "end"; request = wire.Get()) {
      RequestId id = std::stoull(request);
      source->Send(kSession, id, ring[id % kRing], hashes[id % kRing], absl::Minutes(2),
                   [](absl::Status status) {
                     if (!status.ok() && !absl::IsCancelled(status))
                       std::fprintf(stderr, "send: %s\n", status.ToString().c_str());
                   });
    }
    if (grpc) static_cast<GrpcSource*>(source.get())->Stop();
    if (server != nullptr) server->Shutdown();
    server.reset();
    source.reset();
    wire.Put("ended");
  }
}

class Receiver {
 public:
  Receiver(const Settings& settings, Wire wire)
      : settings_(settings), wire_(wire), ring_(MakeRing(settings.part_bytes, false)) {}

  // GB/s (10^9 bytes per second), of all but the first `kWindow` parts, which warm up.
  double Measure(bool grpc) {
    Options options = OptionsFor(settings_, grpc);
    std::unique_ptr<Sink> sink =
        grpc ? *MakeGrpcSink(options, *MakeChannelCredentials({})) : *MakeUcxSink(options);
    wire_.Put(grpc ? "grpc" : "ucx");
    wire_.Put(sink->address());
    std::string address = wire_.Get(), endpoint = wire_.Get();
    if (!sink->Connect(kSession, endpoint, address, Secret{}).ok()) abort();
    for (auto& buffer : ring_) {
      if (!sink->RegisterMemory(buffer).ok()) abort();
    }
    Receive(*sink, kWindow);
    absl::Time begin = absl::Now();
    Receive(*sink, settings_.parts);
    double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    sink.reset();
    wire_.Put("end");
    wire_.Get();
    return static_cast<double>(settings_.parts) * settings_.part_bytes / seconds / 1e9;
  }

 private:
  void Receive(Sink& sink, int parts) {
    for (int i = 0; i < parts; ++i) {
      {
        MutexLock lock(mutex_);
        while (under_way_ >= kWindow) changed_.Wait(mutex_);
        ++under_way_;
      }
      RequestId id = next_++;
      sink.Expect(kSession, id, ring_[id % kRing], [this](absl::Status status) {
        if (!status.ok()) std::fprintf(stderr, "receive: %s\n", status.ToString().c_str());
        MutexLock lock(mutex_);
        --under_way_;
        changed_.NotifyAll();
      });
      wire_.Put(absl::StrCat(id));
    }
    MutexLock lock(mutex_);
    while (under_way_ > 0) changed_.Wait(mutex_);
  }

  const Settings& settings_;
  Wire wire_;
  Ring ring_;
  RequestId next_ = 0;
  Mutex mutex_;
  CondVar changed_;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
};

// GB/s of ucx_perftest between two processes; 0 where it is not installed or fails.
double Perftest(const Settings& settings, bool our_settings) {
  static int port = 20000 + getpid() % 20000;
  ++port;
  std::string environment = absl::StrCat(
      "UCX_TLS=tcp UCX_NET_DEVICES=", settings.device, " ",
      our_settings ? "UCX_TCP_PUT_ENABLE=n UCX_TCP_TX_SEG_SIZE=256k UCX_TCP_RX_SEG_SIZE=256k " : "");
  std::string test = absl::StrCat("ucx_perftest -e -t ucp_am_bw -s ", settings.part_bytes, " -n ",
                                  settings.parts, " -w ", kWindow, " -p ", port, " -f -v");
  std::string command = absl::StrCat(environment, test, " >/dev/null 2>&1 & sleep 0.4; ", environment,
                                     "timeout 120 ", test, " 127.0.0.1 2>/dev/null | tail -n 1; wait");
  FILE* pipe = popen(command.c_str(), "r");
  char line[512] = "";
  if (pipe == nullptr || fgets(line, sizeof(line), pipe) == nullptr) line[0] = '\0';
  if (pipe != nullptr) pclose(pipe);
  std::vector<std::string> fields = absl::StrSplit(line, ',');
  double mebibytes = 0;  // "overall_bw", the sixth
  if (fields.size() < 6 || !absl::SimpleAtod(fields[5], &mebibytes)) return 0;
  return mebibytes * (1 << 20) / 1e9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Compare(const Settings& settings, Wire wire) {
  Receiver receiver(settings, wire);
  std::printf("%zu MiB parts, %d a round, device %s, GB/s (10^9)\n", settings.part_bytes >> 20,
              settings.parts, settings.device.c_str());
  std::printf("%-6s %8s %8s %12s %12s %8s\n", "round", "ucx", "grpc", "perftest", "same config", "ratio");
  std::vector<double> ratios, ucx, grpc;
  for (int round = 0; round < settings.rounds; ++round) {
    ucx.push_back(receiver.Measure(false));
    double plain = Perftest(settings, false);
    grpc.push_back(receiver.Measure(true));
    double same = Perftest(settings, true);
    double yardstick = std::max(plain, same);
    if (yardstick > 0) ratios.push_back(ucx.back() / yardstick);
    std::printf("%-6d %8.2f %8.2f %12.2f %12.2f %8.2f\n", round + 1, ucx.back(), grpc.back(), plain, same,
                yardstick > 0 ? ratios.back() : 0.0);
    std::fflush(stdout);
  }
  if (ratios.empty()) {
    std::printf("ucx_perftest gave nothing: install ucx-utils\n");
    return settings.check;
  }
  std::printf(
      "median: ucx %.2f GB/s, grpc %.2f GB/s, ucx / the better perftest %.2f (at least 0.70 is asked)\n",
      Median(ucx), Median(grpc), Median(ratios));
  return settings.check && Median(ratios) < 0.7;
}

}  // namespace

int Main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--check") {
      settings.check = true;
    } else if (i + 1 < argc) {
      std::string value = argv[++i];
      if (name == "--rounds") settings.rounds = std::atoi(value.c_str());
      if (name == "--parts") settings.parts = std::atoi(value.c_str());
      if (name == "--part-mib") settings.part_bytes = std::strtoull(value.c_str(), nullptr, 10) << 20;
      if (name == "--device") settings.device = value;
    }
  }
  int to_worker[2], to_consumer[2];
  if (pipe2(to_worker, O_CLOEXEC) != 0 || pipe2(to_consumer, O_CLOEXEC) != 0) return 2;
  pid_t worker = fork();  // before either side made a thread
  if (worker == 0) {
    close(to_worker[1]);
    Serve(settings, Wire(to_worker[0], to_consumer[1]));
  }
  close(to_worker[0]);
  int status = Compare(settings, Wire(to_consumer[0], to_worker[1]));
  close(to_worker[1]);
  waitpid(worker, nullptr, 0);
  return status;
}

}  // namespace evenkeel::transport

int main(int argc, char** argv) { return evenkeel::transport::Main(argc, argv); }
