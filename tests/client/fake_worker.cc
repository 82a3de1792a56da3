#include "tests/client/fake_worker.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "core/digest.h"
#include "proto/service.grpc.pb.h"
#include "tests/usual_phases.h"
#include "transport/credentials.h"
#include "transport/factory.h"

namespace evenkeel::client {
namespace {

using Kind = Behaviour::Kind;

constexpr absl::Duration kHeartbeat = absl::Milliseconds(20);

PartLayout LayoutOf(const PartName& name, uint64_t part_bytes) {
  uint64_t elements =
      part_bytes / 8 + (name.step * 7 + uint64_t{name.phase.number()} * 3 + name.microbatch) % 16;
  return PartLayout(name, 1, {{.name = "values", .dtype = DType::kI64, .shape = {elements}}}, {});
}

uint64_t FakePartBytes(const PartName& name, uint64_t part_bytes) {
  return LayoutOf(name, part_bytes).total_bytes();
}

void Raise(std::atomic<int>& value, int to) {
  int old = value.load();
  while (old < to && !value.compare_exchange_weak(old, to)) {
  }
}

}  // namespace

std::vector<PartName> FakeParts(uint64_t step, uint32_t rank) {
  return {{Phase::kLlm, step, rank, 0, 0}, {Phase::kLlm, step, rank, 1, 0}, {kVisionPhase, step, rank, 0, 0}};
}

std::vector<std::byte> FakePart(const PartName& name, uint64_t part_bytes) {
  PartLayout layout = LayoutOf(name, part_bytes);
  std::vector<std::byte> part(layout.total_bytes());
  layout.WriteHeader(part);
  std::minstd_rand random(static_cast<uint32_t>(name.step * 1000 + name.rank * 100 + name.microbatch * 10) +
                          name.phase.number());
  std::span<std::byte> values = layout.tensor(part, 0);
  for (std::byte& value : values) value = static_cast<std::byte>(random());
  return part;
}

class FakeWorker::Service : public pb::Worker::Service {
 public:
  explicit Service(FakeWorkerOptions options) : options_(std::move(options)) {
    transport::Options made{.name = options_.transport, .trusted_network = true, .loopback_only = true};
    grpc::ServerBuilder builder;
    transport::ConfigureServer(builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", transport::MakeServerCredentials(nullptr), &port);
    builder.RegisterService(this);
    if (options_.transport == "grpc") {
      auto source = *transport::MakeGrpcSource(made);
      grpc_source_ = source.get();
      builder.RegisterService(source->service());
      source_ = std::move(source);
    } else if (options_.transport == "memory") {
      source_ = *transport::MakeMemorySource(made);
    } else {
      source_ = *transport::MakeUcxSource(made);
    }
    server_ = builder.BuildAndStart();
    endpoint_ = "127.0.0.1:" + std::to_string(port);
  }
  ~Service() override {
    Die();
    if (reaper_.joinable()) reaper_.join();
    server_.reset();
    source_.reset();
  }

  void Die() {
    std::lock_guard<std::mutex> lock(dying_);
    if (dead_.exchange(true)) return;
    if (grpc_source_ != nullptr) grpc_source_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    std::vector<uint64_t> sessions;
    {
      std::lock_guard<std::mutex> inner(mutex_);
      sessions = sessions_;
    }
    for (uint64_t session : sessions) source_->Disconnect(session);
  }

  grpc::Status Describe(grpc::ServerContext*, const pb::DescribeRequest*, pb::DescribeReply* reply) override {
    Fill(*reply);
    return grpc::Status::OK;
  }

  grpc::Status OpenSession(grpc::ServerContext*, const pb::OpenSessionRequest* request,
                           pb::OpenSessionReply* reply) override {
    uint64_t session = NewSession();
    transport::Secret secret = {};
    std::copy_n(request->secret().begin(), std::min(secret.size(), request->secret().size()), secret.begin());
    absl::Status connected = source_->Connect(session, request->address(), secret);
    if (!connected.ok()) return {grpc::StatusCode::INTERNAL, std::string(connected.message())};
    reply->set_session_id(session);
    reply->set_address(source_->address());
    reply->set_session_idle_seconds(60);
    Fill(*reply->mutable_worker());
    return grpc::Status::OK;
  }

  grpc::Status CloseSession(grpc::ServerContext*, const pb::CloseSessionRequest* request,
                            pb::CloseSessionReply*) override {
    source_->Disconnect(request->session_id());
    return grpc::Status::OK;
  }

  grpc::Status DescribeStep(grpc::ServerContext*, const pb::DescribeStepRequest* request,
                            pb::DescribeStepReply* reply) override {
    if (options_.before_describing != nullptr) options_.before_describing(request->step());
    if (options_.describe_failure != nullptr) {
      if (const absl::Status failed = options_.describe_failure(request->step()); !failed.ok()) {
        pb::FailureDetail detail;
        detail.set_kind(static_cast<pb::FailureKind>(KindOf(failed)));
        return {static_cast<grpc::StatusCode>(failed.code()), std::string(failed.message()),
                detail.SerializeAsString()};
      }
    }
    reply->set_step(request->step());
    reply->set_num_microbatches(2);
    reply->set_loss_tokens(100 + request->step());
    reply->set_num_samples(8);
    for (const PartName& name : FakeParts(request->step(), request->rank())) {
      pb::PartDescription* part = reply->add_parts();
      part->set_phase(std::string(PhaseName(name.phase)));
      part->set_phase_rank(name.rank);
      part->set_microbatch(name.microbatch);
      part->set_piece(name.piece);
      part->set_bytes(FakePartBytes(name, options_.part_bytes));
    }
    for (const Phase& phase : kUsualPhases) reply->add_loads()->set_phase(std::string(PhaseName(phase)));
    return grpc::Status::OK;
  }

  grpc::Status RequestPart(grpc::ServerContext* context, const pb::RequestPartRequest* request,
                           grpc::ServerWriter<pb::PartEvent>* writer) override {
    ++requests_;
    Raise(max_attempt_, static_cast<int>(request->attempt()));
    TakeWait(request->session_id(), request->consumer_wait_seconds());
    PartName name{*UsualPhase(request->phase()), request->step(), request->phase_rank(),
                  request->microbatch(), request->piece()};
    Behaviour behaviour =
        options_.behave == nullptr ? Behaviour() : options_.behave(name, request->attempt());
    if (behaviour.kind == Kind::kForgetSession) return {grpc::StatusCode::NOT_FOUND, "no such session"};
    if (behaviour.kind == Kind::kRefuse) {
      Refuse(*writer, behaviour);
      return grpc::Status::OK;
    }
    if (behaviour.kind == Kind::kDeaf) {
      Wait(*context, absl::Minutes(5), [](uint64_t) {});
      return grpc::Status::CANCELLED;
    }
    pb::PartEvent accepted;
    accepted.mutable_accepted()->set_queue(3);
    writer->Write(accepted);
    return Act(behaviour, name, *request, *context, *writer);
  }

  grpc::Status ReportWait(grpc::ServerContext*, const pb::ReportWaitRequest* request,
                          pb::ReportWaitReply*) override {
    TakeWait(request->session_id(), request->consumer_wait_seconds());
    ++wait_reports_;
    return grpc::Status::OK;
  }

  double told_wait_seconds() {
    std::lock_guard<std::mutex> lock(mutex_);
    double sum = 0;
    for (const auto& [session, seconds] : waits_) sum += seconds;
    return sum;
  }
  int wait_reports() const { return wait_reports_; }
  const std::string& endpoint() const { return endpoint_; }
  int requests() const { return requests_; }
  int sessions() const { return num_sessions_; }
  int cancelled() const { return cancelled_; }
  int max_attempt() const { return max_attempt_; }

 private:
  using Writer = grpc::ServerWriter<pb::PartEvent>;

  void Fill(pb::DescribeReply& reply) const {
    reply.set_job_name("fake");
    reply.set_stream_version(options_.stream_version);
    reply.set_part_format(options_.part_format);
    reply.set_stream_digest(options_.stream_digest);
    reply.set_layout_digest(options_.layout_digest);
    reply.add_transports(options_.transport);
    reply.set_release("test");
    reply.set_draining(options_.draining);
    for (const char* name : {"llm", "vision"}) {
      pb::PhaseRanks* ranks = reply.add_phases();
      ranks->set_phase(name);
      ranks->add_ranks(0);
      ranks->set_once_per_microbatch(std::string(name) == "llm");
    }
  }

  uint64_t NewSession() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::random_device random;
    sessions_.push_back(uint64_t{random()} << 32 | random());
    ++num_sessions_;
    return sessions_.back();
  }

  void TakeWait(uint64_t session, double seconds) {
    std::lock_guard<std::mutex> lock(mutex_);
    waits_[session] = std::max(waits_[session], seconds);
  }

  static void Refuse(Writer& writer, const Behaviour& behaviour) {
    pb::PartEvent event;
    event.mutable_refused()->set_retry_after_seconds(absl::ToDoubleSeconds(behaviour.duration));
    event.mutable_refused()->set_reason("full");
    writer.Write(event);
  }

  static void Progress(Writer& writer, uint64_t done) {
    pb::PartEvent event;
    event.mutable_progress()->set_stage("decode");
    event.mutable_progress()->set_done(done);
    event.mutable_progress()->set_total(1000);
    writer.Write(event);
  }

  // False where the consumer gave up.
  bool Wait(grpc::ServerContext& context, absl::Duration duration,
            const std::function<void(uint64_t)>& beat) {
    absl::Time end = absl::Now() + duration;
    for (uint64_t i = 1; absl::Now() < end; ++i) {
      if (context.IsCancelled() || dead_) {
        ++cancelled_;
        return false;
      }
      beat(i);
      absl::SleepFor(std::min(kHeartbeat, duration));
    }
    return true;
  }

  grpc::Status Act(const Behaviour& behaviour, const PartName& name, const pb::RequestPartRequest& request,
                   grpc::ServerContext& context, Writer& writer) {
    auto nothing = [](uint64_t) {};
    switch (behaviour.kind) {
      case Kind::kDropLater:
        Refuse(writer, behaviour);
        return grpc::Status::OK;
      case Kind::kSilent:
        Wait(context, absl::Minutes(5), nothing);
        return grpc::Status::CANCELLED;
      case Kind::kStuck:
        Wait(context, absl::Minutes(5), [&](uint64_t) { Progress(writer, 1); });
        return grpc::Status::CANCELLED;
      case Kind::kSlow:
        if (!Wait(context, behaviour.duration, [&](uint64_t i) { Progress(writer, i); })) {
          return grpc::Status::CANCELLED;
        }
        return Deliver(behaviour, name, request, context, writer);
      case Kind::kQuiet:
        if (!Wait(context, behaviour.duration, nothing)) return grpc::Status::CANCELLED;
        return Deliver(behaviour, name, request, context, writer);
      case Kind::kFail: {
        pb::PartEvent event;
        event.mutable_failed()->set_code(behaviour.code);
        event.mutable_failed()->set_message(behaviour.message);
        event.mutable_failed()->set_exclude(behaviour.exclude);
        event.mutable_failed()->set_kind(static_cast<pb::FailureKind>(behaviour.failure));
        writer.Write(event);
        return grpc::Status::OK;
      }
      case Kind::kDieMidPart: {
        Progress(writer, 1);
        std::lock_guard<std::mutex> lock(mutex_);
        if (!reaper_.joinable())
          reaper_ = std::thread([this] { Die(); });  // it waits for this call, so not here
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "died");
      }
      default:
        return Deliver(behaviour, name, request, context, writer);
    }
  }

  grpc::Status Deliver(const Behaviour& behaviour, const PartName& name,
                       const pb::RequestPartRequest& request, grpc::ServerContext& context, Writer& writer) {
    PartName sent = name;
    if (behaviour.kind == Kind::kWrongPart) sent.rank += 1;
    std::vector<std::byte> part = FakePart(sent, options_.part_bytes);
    Digest hash = DigestOf(part);
    if (behaviour.kind == Kind::kWrongHash) hash.bytes[3] ^= 1;
    pb::PartEvent event;
    event.mutable_sent()->set_length(part.size() + (behaviour.kind == Kind::kWrongLength ? 64 : 0));
    event.mutable_sent()->set_hash(hash.bytes.data(), hash.bytes.size());
    if (behaviour.kind == Kind::kWrongLength || behaviour.kind == Kind::kNeverDeliver) {
      writer.Write(event);
      Wait(context, absl::Minutes(5), [](uint64_t) {});
      return grpc::Status::CANCELLED;
    }
    std::promise<absl::Status> done;
    source_->Send(request.session_id(), request.request_id(), part, hash, absl::Seconds(10),
                  [&](absl::Status status) { done.set_value(std::move(status)); });
    done.get_future().wait();
    writer.Write(event);
    return grpc::Status::OK;
  }

  const FakeWorkerOptions options_;
  std::string endpoint_;
  std::unique_ptr<transport::Source> source_;
  transport::GrpcSource* grpc_source_ = nullptr;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> dead_ = false;
  std::atomic<int> requests_ = 0, num_sessions_ = 0, cancelled_ = 0, max_attempt_ = 0, wait_reports_ = 0;
  std::mutex dying_;
  std::mutex mutex_;
  std::vector<uint64_t> sessions_;
  std::map<uint64_t, double> waits_;  // of sessions
  std::thread reaper_;
};

FakeWorker::FakeWorker(FakeWorkerOptions options) : service_(std::make_unique<Service>(std::move(options))) {}
FakeWorker::~FakeWorker() = default;
const std::string& FakeWorker::endpoint() const { return service_->endpoint(); }
void FakeWorker::Die() { service_->Die(); }
int FakeWorker::requests() const { return service_->requests(); }
int FakeWorker::sessions() const { return service_->sessions(); }
int FakeWorker::cancelled() const { return service_->cancelled(); }
int FakeWorker::max_attempt() const { return service_->max_attempt(); }
double FakeWorker::told_wait_seconds() const { return service_->told_wait_seconds(); }
int FakeWorker::wait_reports() const { return service_->wait_reports(); }

}  // namespace evenkeel::client
