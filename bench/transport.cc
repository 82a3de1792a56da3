// Bytes per second into the consumer's memory and CPU seconds per gigabyte of either side, next to what
// ucx_perftest reaches over the same device and what a plain TLS 1.3 stream costs, all in one run.
//
//   bench_transport [--rounds 9] [--parts 32] [--part-mib 64] [--device lo] [--only grpc+tls,tls+hash]
//   [--check]
//
// Two processes. Parts are ready-made, from rings of buffers on both sides that are larger than the
// last-level cache; their hashes were computed when they were made, and the receiver verifies them. Each
// round measures every candidate in an order that turns from round to round; each moves the same bytes after
// the same warm-up:
//   memory     the transport over sealed memory
//   ucx        the transport over UCX
//   grpc+tls   the transport over gRPC with certificates
//   grpc       the transport over gRPC without
//   tls+hash   OpenSSL's TLS 1.3 with the same cipher suite over TCP, each record hashed as it comes
//   tls        the same without hashing
//   perftest   ucx_perftest (package ucx-utils) as it comes, and `same`: with the settings of transport/
// The better ucx_perftest of a round is the yardstick of ucx's bytes per second. The yardstick of grpc+tls
// are the CPU seconds per gigabyte of the plain streams in the same round, sender and receiver together. CPU
// seconds of ucx_perftest, which polls all the time, contain its start. --check: exit status 1 where the
// median ratio of ucx is below 0.7.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/tls_stream.h"
#include "core/annotated_mutex.h"
#include "core/steady_time.h"
#include "transport/credentials.h"
#include "transport/factory.h"

namespace evenkeel::transport {
namespace {

constexpr size_t kRing = 8;
constexpr int kWindow = 4;  // requests under way
constexpr transport::SessionId kSession = 1;

struct Settings {
  int rounds = 9;
  int parts = 32;
  size_t part_bytes = 64 << 20;
  std::string device = "lo";
  std::string only;  // names of candidates, comma-separated; empty: all
  bool check = false;
  transport::TlsFiles tls;
};

enum Candidate { kMemory, kUcx, kGrpcTls, kGrpc, kTlsHash, kTls, kPlain, kSame, kCandidates };
constexpr std::array<const char*, kCandidates> kNames = {"memory",   "ucx", "grpc+tls", "grpc",
                                                         "tls+hash", "tls", "perftest", "same"};

struct Speed {
  double gigabytes_per_second = 0;
  double sender = 0;  // CPU seconds per gigabyte; of both sides where they cannot be told apart
  double receiver = 0;

  double both() const { return sender + receiver; }
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

transport::Options OptionsFor(const Settings& settings, const std::string& name) {
  transport::Options options;
  options.name = name;
  options.devices = settings.device;
  options.trusted_network = true;
  return options;
}

// Pages that live as long as the process.
using Ring = std::vector<std::span<std::byte>>;

Ring MakeRing(size_t bytes, bool filled) {
  Ring ring;
  for (size_t i = 0; i < kRing; ++i) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) abort();
    ring.push_back({static_cast<std::byte*>(data), bytes});
  }
  uint64_t value = 1;
  for (const auto& buffer : ring) {
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

// Answers "cpu" (how much this process has used) and calls `send` with every number, until "end".
void Answer(Wire& wire, const std::function<void(transport::RequestId)>& send) {
  for (std::string request = wire.Get(); request != "end"; request = wire.Get()) {
    if (request == "cpu") {
      wire.Put(absl::StrCat(CpuSeconds(RUSAGE_SELF)));
    } else {
      send(std::stoull(request));
    }
  }
}

void ServeTls(const Settings& settings, const Ring& ring, Wire& wire) {
  TlsListener listener(settings.tls);
  wire.Put(absl::StrCat(listener.port()));
  TlsStream stream = listener.Accept();
  Answer(wire, [&](transport::RequestId id) { stream.Send(ring[id % kRing]); });
}

std::unique_ptr<transport::Sink> MakeSink(const Settings& settings, Candidate candidate,
                                          const std::shared_ptr<transport::Certificates>& certificates) {
  if (candidate == kMemory) {
    return *transport::MakeMemorySink(OptionsFor(settings, "memory"));
  }
  if (candidate == kUcx) return *transport::MakeUcxSink(OptionsFor(settings, "ucx"));
  return *transport::MakeGrpcSink(OptionsFor(settings, "grpc"),
                                  transport::MakeChannelCredentials(certificates));
}

// The worker's process: serves a candidate by name, then requests until "end".
void Serve(const Settings& settings, Wire wire) {
  Ring ring = MakeRing(settings.part_bytes, true);
  std::vector<Digest> hashes;
  for (const auto& part : ring) hashes.push_back(DigestOf(part));
  for (;;) {
    const std::string name = wire.Get();
    if (name == "tls") {
      ServeTls(settings, ring, wire);
      wire.Put("ended");
      continue;
    }
    const bool memory = name == kNames[kMemory];
    const bool grpc = !memory && name != "ucx";
    std::unique_ptr<transport::Source> source;
    std::shared_ptr<transport::Certificates> certificates;
    std::unique_ptr<grpc::Server> server;
    std::string endpoint = "none";
    if (grpc) {
      if (name == "grpc+tls") certificates = *transport::OpenCertificates(settings.tls, nullptr);
      std::unique_ptr<transport::GrpcSource> made = *transport::MakeGrpcSource(OptionsFor(settings, "grpc"));
      grpc::ServerBuilder builder;
      transport::ConfigureServer(builder);
      int port = 0;
      builder.AddListeningPort("127.0.0.1:0", transport::MakeServerCredentials(certificates), &port);
      builder.RegisterService(made->service());
      server = builder.BuildAndStart();
      endpoint = absl::StrCat("127.0.0.1:", port);
      source = std::move(made);
    } else {
      source = memory ? *transport::MakeMemorySource(OptionsFor(settings, "memory"))
                      : *transport::MakeUcxSource(OptionsFor(settings, "ucx"));
    }
    if (!source->Connect(kSession, wire.Get(), transport::Secret{}).ok()) abort();
    wire.Put(source->address());
    wire.Put(endpoint);
    const auto done = [](const absl::Status& status) {
      if (!status.ok() && !absl::IsCancelled(status))
        std::fprintf(stderr, "send: %s\n", status.ToString().c_str());
    };
    Answer(wire, [&](transport::RequestId id) {
      source->Send(kSession, id, ring[id % kRing], hashes[id % kRing], absl::Minutes(2), done);
    });
    if (grpc) static_cast<transport::GrpcSource*>(source.get())->Stop();
    if (server != nullptr) server->Shutdown();
    server.reset();
    source.reset();
    wire.Put("ended");
  }
}

class Receiver {
 public:
  Receiver(const Settings& settings, Wire wire)
      : settings_(settings),
        wire_(wire),
        ring_(MakeRing(settings.part_bytes, false)),
        replaced_ring_(MakeRing(settings.part_bytes, false)) {}

  // Of all but the first `kWindow` parts, which warm up.
  Speed Measure(Candidate candidate) {
    return candidate == kTls || candidate == kTlsHash ? MeasureTls(candidate == kTlsHash)
                                                      : MeasureTransport(candidate);
  }

 private:
  Speed MeasureTransport(Candidate candidate) {
    std::shared_ptr<transport::Certificates> certificates;
    if (candidate == kGrpcTls) certificates = *transport::OpenCertificates(settings_.tls, nullptr);
    std::unique_ptr<transport::Sink> sink = MakeSink(settings_, candidate, certificates);
    // The pages of this ring are replaced by the worker's.
    const bool memory = candidate == kMemory;
    Ring& ring = memory ? replaced_ring_ : ring_;
    wire_.Put(kNames[candidate]);
    wire_.Put(sink->address());
    std::string address = wire_.Get(), endpoint = wire_.Get();
    if (!sink->Connect(kSession, endpoint, address, transport::Secret{}).ok()) abort();
    for (const auto& buffer : ring) {
      if (!sink->RegisterMemory(buffer).ok()) abort();
    }
    Receive(*sink, ring, kWindow);
    const Speed speed = Timed([&] { Receive(*sink, ring, settings_.parts); });
    sink.reset();
    wire_.Put("end");
    wire_.Get();
    return speed;
  }

  Speed MeasureTls(bool hash) {
    wire_.Put("tls");
    TlsStream stream = TlsStream::Dial(std::stoi(wire_.Get()), settings_.tls);
    ReceiveTls(stream, kWindow, hash);
    const Speed speed = Timed([&] { ReceiveTls(stream, settings_.parts, hash); });
    wire_.Put("end");
    wire_.Get();
    return speed;
  }

  void ReceiveTls(TlsStream& stream, int parts, bool hash) {
    for (int i = 0; i < std::min(kWindow, parts); ++i) wire_.Put(absl::StrCat(next_ + i));
    for (int i = 0; i < parts; ++i) {
      Digester digester;
      stream.Receive(ring_[next_ % kRing], hash ? &digester : nullptr);
      if (hash) digest_ = digester.Finish();
      if (i + kWindow < parts) wire_.Put(absl::StrCat(next_ + kWindow));
      ++next_;
    }
  }

  Speed Timed(const std::function<void()>& receive) {
    const double sender = SenderCpu(), receiver = CpuSeconds(RUSAGE_SELF);
    const absl::Time begin = SteadyNow();
    receive();
    const double seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
    const double gigabytes = Gigabytes(settings_, settings_.parts);
    return {gigabytes / seconds, (SenderCpu() - sender) / gigabytes,
            (CpuSeconds(RUSAGE_SELF) - receiver) / gigabytes};
  }
  double SenderCpu() {
    wire_.Put("cpu");
    return std::stod(wire_.Get());
  }
  void Receive(transport::Sink& sink, const Ring& ring, int parts) {
    for (int i = 0; i < parts; ++i) {
      {
        MutexLock lock(mutex_);
        while (under_way_ >= kWindow) changed_.Wait(mutex_);
        ++under_way_;
      }
      transport::RequestId id = next_++;
      sink.Expect(kSession, id, ring[id % kRing], [this](absl::Status status) {
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
  Ring ring_, replaced_ring_;
  transport::RequestId next_ = 0;
  Digest digest_;  // so that hashing is not left out
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
  return {mebibytes * (1 << 20) / 1e9, cpu / Gigabytes(settings, settings.parts + kWindow), 0};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

template <typename Value>
double MedianOf(const std::vector<Speed>& speeds, Value value) {
  std::vector<double> values;
  for (const Speed& speed : speeds) values.push_back(std::invoke(value, speed));
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

using Rounds = std::array<std::vector<Speed>, kCandidates>;

bool Wanted(const Settings& settings, int candidate) {
  const std::vector<std::string> names = absl::StrSplit(settings.only, ',');
  return settings.only.empty() || std::find(names.begin(), names.end(), kNames[candidate]) != names.end();
}

template <typename Value>
void PrintRow(const std::string& title, const Value& value) {
  std::printf("%-10s", title.c_str());
  for (int i = 0; i < kCandidates; ++i) std::printf(" %9.2f", value(i));
  std::printf("\n");
  std::fflush(stdout);
}

// Medians over the rounds of numerator / denominator, 0 where one was not measured.
template <typename Value>
double Ratio(const std::vector<Speed>& numerators, const std::vector<Speed>& denominators, Value value) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i) {
    const double denominator = std::invoke(value, denominators[i]);
    if (denominator > 0) ratios.push_back(std::invoke(value, numerators[i]) / denominator);
  }
  return Median(ratios);
}

// ucx over the better ucx_perftest of each round.
double UcxRatio(const Rounds& speeds) {
  std::vector<Speed> yardstick = speeds[kPlain];
  for (size_t i = 0; i < yardstick.size() && i < speeds[kSame].size(); ++i) {
    if (speeds[kSame][i].gigabytes_per_second > yardstick[i].gigabytes_per_second)
      yardstick[i] = speeds[kSame][i];
  }
  return Ratio(speeds[kUcx], yardstick, &Speed::gigabytes_per_second);
}

void PrintSummary(const Rounds& speeds) {
  const auto median = [&](auto value) { return [&, value](int i) { return MedianOf(speeds[i], value); }; };
  PrintRow("median", median(&Speed::gigabytes_per_second));
  std::printf("CPU seconds per gigabyte, medians:\n");
  PrintRow("sender", median(&Speed::sender));
  PrintRow("receiver", median(&Speed::receiver));
  PrintRow("both", median(&Speed::both));
  if (!speeds[kMemory].empty() && !speeds[kGrpc].empty()) {
    std::printf("memory: %.2f of the bytes per second and %.2f of the CPU seconds per gigabyte of grpc\n",
                Ratio(speeds[kMemory], speeds[kGrpc], &Speed::gigabytes_per_second),
                Ratio(speeds[kMemory], speeds[kGrpc], &Speed::both));
  }
  if (!speeds[kUcx].empty() && !speeds[kPlain].empty()) {
    std::printf("ucx: %.2f of the bytes per second of the better ucx_perftest (at least 0.70 is asked)\n",
                UcxRatio(speeds));
  }
  if (!speeds[kPlain].empty() && MedianOf(speeds[kPlain], &Speed::gigabytes_per_second) == 0)
    std::printf("ucx_perftest gave nothing: install ucx-utils\n");
  if (speeds[kGrpcTls].empty() || speeds[kTlsHash].empty() || speeds[kTls].empty()) return;
  // Bytes per CPU second are the inverse of what is measured.
  std::printf(
      "grpc+tls: %.2f of the bytes per CPU second of a TLS stream that hashes, %.2f of one that does not\n",
      Ratio(speeds[kTlsHash], speeds[kGrpcTls], &Speed::both),
      Ratio(speeds[kTls], speeds[kGrpcTls], &Speed::both));
  std::printf("grpc+tls: %.2f of the bytes per second of a TLS stream that hashes\n",
              Ratio(speeds[kGrpcTls], speeds[kTlsHash], &Speed::gigabytes_per_second));
}

int Compare(const Settings& settings, Wire wire) {
  PrintHead(settings);
  Receiver receiver(settings, wire);
  Rounds speeds;
  std::printf("%-10s", "GB/s");
  for (const char* name : kNames) std::printf(" %9s", name);
  std::printf("\n");
  for (int round = 0; round < settings.rounds; ++round) {
    for (int i = 0; i < kCandidates; ++i) {
      const auto candidate = static_cast<Candidate>((round + i) % kCandidates);
      if (!Wanted(settings, candidate)) continue;
      speeds[candidate].push_back(candidate == kPlain || candidate == kSame
                                      ? Perftest(settings, candidate == kSame)
                                      : receiver.Measure(candidate));
    }
    PrintRow(absl::StrCat(round + 1),
             [&](int i) { return speeds[i].empty() ? 0 : speeds[i].back().gigabytes_per_second; });
  }
  PrintSummary(speeds);
  return settings.check && UcxRatio(speeds) < 0.7;
}

}  // namespace

// False: an option that there is not, or one without its value.
bool TakeArgument(const std::string& name, const char* value, Settings& settings) {
  if (value == nullptr) return false;
  if (name == "--rounds") return absl::SimpleAtoi(value, &settings.rounds);
  if (name == "--parts") return absl::SimpleAtoi(value, &settings.parts);
  if (name == "--device") return settings.device = value, true;
  if (name == "--only") return settings.only = value, true;
  size_t mib = 0;
  if (name != "--part-mib" || !absl::SimpleAtoi(value, &mib)) return false;
  settings.part_bytes = mib << 20;
  return true;
}

int Main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--check") {
      settings.check = true;
    } else if (!TakeArgument(name, ++i < argc ? argv[i] : nullptr, settings)) {
      std::fprintf(stderr,
                   "%s: unknown, or without its value\nusage: bench_transport [--rounds N] [--parts N] "
                   "[--part-mib N] [--device NAME] [--only NAMES] [--check]\n",
                   name.c_str());
      return 2;
    }
  }
  std::string folder = "/tmp/bench_transport_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 2;
  settings.tls = MakeCertificateFiles(folder);
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
  std::filesystem::remove_all(folder);
  return status;
}

}  // namespace evenkeel::transport

int main(int argc, char** argv) { return evenkeel::transport::Main(argc, argv); }
