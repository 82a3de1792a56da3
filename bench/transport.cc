// Bytes per second into the consumer's memory, beside what ucx_perftest reaches over the same device in the
// same run.
//
//   bench_transport [--rounds 9] [--parts 32] [--part-mib 64] [--device lo] [--check]
//
// Two processes. Parts are ready-made, from rings of buffers on both sides that are larger than the
// last-level cache; their hashes were computed when they were made, and the receiver verifies them. Each
// round measures ucx, grpc and ucx_perftest (package ucx-utils), the latter as it comes and with the settings
// that transport/ uses, in an order that turns from round to round; each moves the same bytes after the same
// warm-up. The better of the two ucx_perftest of a round is that round's yardstick. CPU seconds are of both
// processes together; those of ucx_perftest, which polls all the time, contain its start. --check: exit
// status 1 where the median ratio is below 0.7.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
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
  int rounds = 9;
  int parts = 32;
  size_t part_bytes = 64 << 20;
  std::string device = "lo";
  bool check = false;
};

struct Speed {
  double gigabytes_per_second = 0;
  double cpu_seconds_per_gigabyte = 0;  // of both sides
};

double CpuSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  auto seconds = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Gigabytes(const Settings& settings, int parts) {
  return static_cast<double>(parts) * settings.part_bytes / 1e9;
}

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

// The worker's process: serves "ucx" or "grpc", then requests until "end". "cpu": how much it has used.
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
      if (request == "cpu") {
        wire.Put(absl::StrCat(CpuSeconds(RUSAGE_SELF)));
        continue;
      }
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

  // Of all but the first `kWindow` parts, which warm up.
  Speed Measure(bool grpc) {
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
    double cpu = CpuOfBoth();
    absl::Time begin = absl::Now();
    Receive(*sink, settings_.parts);
    double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    cpu = CpuOfBoth() - cpu;
    sink.reset();
    wire_.Put("end");
    wire_.Get();
    double gigabytes = Gigabytes(settings_, settings_.parts);
    return {gigabytes / seconds, cpu / gigabytes};
  }

 private:
  double CpuOfBoth() {
    wire_.Put("cpu");
    return CpuSeconds(RUSAGE_SELF) + std::stod(wire_.Get());
  }
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

// ucx_perftest between two processes; zeros where it is not installed or fails.
Speed Perftest(const Settings& settings, bool our_settings) {
  static int port = 20000 + getpid() % 20000;
  ++port;
  std::string environment = absl::StrCat(
      "UCX_TLS=tcp UCX_NET_DEVICES=", settings.device, " ",
      our_settings ? "UCX_TCP_PUT_ENABLE=n UCX_TCP_TX_SEG_SIZE=516k UCX_TCP_RX_SEG_SIZE=516k " : "");
  std::string test = absl::StrCat("ucx_perftest -e -t ucp_am_bw -s ", settings.part_bytes, " -n ",
                                  settings.parts, " -w ", kWindow, " -p ", port, " -f -v");
  std::string command = absl::StrCat(environment, test, " >/dev/null 2>&1 & sleep 0.4; ", environment,
                                     "timeout 120 ", test, " 127.0.0.1 2>/dev/null | tail -n 1; wait");
  double cpu = CpuSeconds(RUSAGE_CHILDREN);
  FILE* pipe = popen(command.c_str(), "r");
  char line[512] = "";
  if (pipe == nullptr || fgets(line, sizeof(line), pipe) == nullptr) line[0] = '\0';
  if (pipe != nullptr) pclose(pipe);
  std::vector<std::string> fields = absl::StrSplit(line, ',');
  double mebibytes = 0;  // "overall_bw", the sixth
  if (fields.size() < 6 || !absl::SimpleAtod(fields[5], &mebibytes)) return {};
  cpu = CpuSeconds(RUSAGE_CHILDREN) - cpu;
  return {mebibytes * (1 << 20) / 1e9, cpu / Gigabytes(settings, settings.parts + kWindow)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double MedianOf(const std::vector<Speed>& speeds, double Speed::*value) {
  std::vector<double> values;
  for (const Speed& speed : speeds) values.push_back(speed.*value);
  return Median(values);
}

// 0 where the system does not tell. (sysconf guesses wrong in virtual machines.)
size_t LastLevelCacheBytes() {
  size_t kibibytes = 0;
  for (int level = 0; level < 8; ++level) {
    std::ifstream file(absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", level, "/size"));
    size_t one = 0;
    if (file >> one) kibibytes = std::max(kibibytes, one);
  }
  return kibibytes << 10;
}

void PrintHead(const Settings& settings) {
  size_t last_level_bytes = LastLevelCacheBytes();
  std::printf("UCX %s, gRPC %s, %ld cores, last-level cache %zu MiB\n", ucp_get_version_string(),
              grpc::Version().c_str(), sysconf(_SC_NPROCESSORS_ONLN), last_level_bytes >> 20);
  std::printf("%zu MiB parts, %d a round, from and into rings of %zu MiB, device %s, GB/s (10^9)\n",
              settings.part_bytes >> 20, settings.parts, kRing * settings.part_bytes >> 20,
              settings.device.c_str());
  if (kRing * settings.part_bytes <= last_level_bytes) {
    std::printf("the rings fit into the cache: this measures something else; raise --part-mib\n");
  }
}

enum Candidate { kUcx, kGrpc, kPlain, kSame, kCandidates };

void PrintRow(const std::string& title, const std::array<double, kCandidates>& values) {
  std::printf("%-8s %8.2f %8.2f %12.2f %12.2f", title.c_str(), values[kUcx], values[kGrpc], values[kPlain],
              values[kSame]);
}

int Compare(const Settings& settings, Wire wire) {
  PrintHead(settings);
  Receiver receiver(settings, wire);
  std::array<std::vector<Speed>, kCandidates> speeds;
  std::vector<double> ratios;
  std::printf("%-8s %8s %8s %12s %12s %8s\n", "round", "ucx", "grpc", "perftest", "same config", "ratio");
  for (int round = 0; round < settings.rounds; ++round) {
    std::array<double, kCandidates> now;
    for (int i = 0; i < kCandidates; ++i) {
      int candidate = (round + i) % kCandidates;
      Speed speed = candidate == kUcx || candidate == kGrpc ? receiver.Measure(candidate == kGrpc)
                                                            : Perftest(settings, candidate == kSame);
      now[candidate] = speed.gigabytes_per_second;
      speeds[candidate].push_back(speed);
    }
    double yardstick = std::max(now[kPlain], now[kSame]);
    ratios.push_back(yardstick > 0 ? now[kUcx] / yardstick : 0);
    PrintRow(absl::StrCat(round + 1), now);
    std::printf(" %8.2f\n", ratios.back());
    std::fflush(stdout);
  }
  std::array<double, kCandidates> speed, cpu;
  for (int i = 0; i < kCandidates; ++i) {
    speed[i] = MedianOf(speeds[i], &Speed::gigabytes_per_second);
    cpu[i] = MedianOf(speeds[i], &Speed::cpu_seconds_per_gigabyte);
  }
  PrintRow("median", speed);
  std::printf(" %8.2f  (at least 0.70 of the better ucx_perftest is asked)\n", Median(ratios));
  PrintRow("cpu s/GB", cpu);
  std::printf("\n");
  if (Median(ratios) == 0) std::printf("ucx_perftest gave nothing: install ucx-utils\n");
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
