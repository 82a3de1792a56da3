#include "tests/transport/peers.h"

#include <grpcpp/grpcpp.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "transport/credentials.h"

namespace evenkeel::transport {

std::string BackendName(Backend backend) {
  switch (backend) {
    case Backend::kUcx:
      return "ucx";
    case Backend::kGrpc:
      return "grpc";
    case Backend::kMemory:
      return "memory";
  }
  return "";
}

Backend BackendFromName(const std::string& name) {
  for (Backend backend : {Backend::kUcx, Backend::kGrpc}) {
    if (BackendName(backend) == name) return backend;
  }
  return Backend::kMemory;
}

Options OptionsFor(Backend backend) {
  Options options;
  options.name = BackendName(backend);
  options.loopback_only = true;
  options.trusted_network = backend == Backend::kUcx;
  options.connect_timeout = absl::Seconds(30);
  return options;
}

absl::StatusOr<std::unique_ptr<WorkerSide>> WorkerSide::Start(Backend backend, const Options& options,
                                                              const std::string& host) {
  auto side = std::make_unique<WorkerSide>();
  if (backend != Backend::kGrpc) {
    EVENKEEL_ASSIGN_OR_RETURN(side->source_,
                              backend == Backend::kUcx ? MakeUcxSource(options) : MakeMemorySource(options));
    return side;
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<GrpcSource> source, MakeGrpcSource(options));
  grpc::ServerBuilder builder;
  ConfigureServer(builder);
  int port = 0;
  builder.AddListeningPort(host + ":0", MakeServerCredentials(nullptr), &port);
  builder.RegisterService(source->service());
  side->server_ = builder.BuildAndStart();
  if (side->server_ == nullptr) return absl::UnavailableError("cannot listen on " + host);
  side->endpoint_ = absl::StrCat(host, ":", port);
  side->source_ = std::move(source);
  return side;
}

WorkerSide::~WorkerSide() { Reset(); }

void WorkerSide::Reset() {
  if (server_ != nullptr) {
    static_cast<GrpcSource*>(source_.get())->Stop();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_.reset();
  }
  source_.reset();
}

absl::StatusOr<std::unique_ptr<Sink>> MakeSink(Backend backend, const Options& options) {
  if (backend == Backend::kUcx) return MakeUcxSink(options);
  if (backend == Backend::kMemory) return MakeMemorySink(options);
  return MakeGrpcSink(options, MakeChannelCredentials(nullptr));
}

Done Outcome::callback() {
  return [state = state_](absl::Status status) {
    MutexLock lock(state->mutex);
    ++state->calls;
    state->status = std::move(status);
    state->changed.NotifyAll();
  };
}

absl::Status Outcome::Wait(absl::Duration timeout) {
  absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(state_->mutex);
  while (state_->calls == 0) {
    if (!state_->changed.WaitUntil(state_->mutex, deadline))
      return absl::DeadlineExceededError("the test waited in vain");
  }
  return state_->status;
}

int Outcome::calls() {
  MutexLock lock(state_->mutex);
  return state_->calls;
}

std::vector<std::byte> Payload(size_t bytes, uint64_t seed) {
  std::vector<std::byte> payload(bytes);
  uint64_t value = seed * 0x9e3779b97f4a7c15ull + 1;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    value = value * 6364136223846793005ull + 1442695040888963407ull;
    std::memcpy(payload.data() + i, &value, 8);
  }
  for (; i < bytes; ++i) payload[i] = static_cast<std::byte>(value >> (8 * (i % 8)));
  return payload;
}

Secret SecretOf(uint8_t value) {
  Secret secret;
  secret.fill(value);
  return secret;
}

}  // namespace evenkeel::transport
