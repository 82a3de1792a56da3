#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <exception>

#include "absl/strings/str_cat.h"
#include "core/job.h"
#include "proto/job.pb.h"
#include "server/bad_data.h"

namespace evenkeel {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

const Histogram::BucketBoundaries kSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                              0.25,   0.5,   1,      2.5,   5,    10,    30,   60};

std::string Str(std::string_view text) { return std::string(text); }

Family<Counter>& Counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
Family<Gauge>& Gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

std::string_view StageName(Stage stage) {
  constexpr std::array<std::string_view, kNumStages> kNames = {"plan", "queue", "read", "media",
                                                               "text", "hash",  "part", "send"};
  return kNames[static_cast<size_t>(stage)];
}

std::string_view OutcomeName(Outcome outcome) {
  constexpr std::array<std::string_view, kNumOutcomes> kNames = {"sent", "refused", "dropped", "cancelled",
                                                                 "failed"};
  return kNames[static_cast<size_t>(outcome)];
}

// Families first, then the metrics that are touched often.
struct Metrics::State {
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<prometheus::Exposer> exposer;

  Family<Histogram>& stages = prometheus::BuildHistogram()
                                  .Name("evenkeel_stage_duration_seconds")
                                  .Help("Time of one unit of work in a stage")
                                  .Register(*registry);
  Family<Counter>& samples = Counters(*registry, "evenkeel_samples_total", "Samples whose sequence was made");
  Family<Counter>& items = Counters(*registry, "evenkeel_items_total", "Media items made");
  Family<Counter>& errors =
      Counters(*registry, "evenkeel_errors_total", "Items, samples and attempts that failed");
  Family<Counter>& adjusted = Counters(*registry, "evenkeel_adjusted_total",
                                       "Audio samples and video frames cut or filled to their plan");
  Family<Counter>& limits =
      Counters(*registry, "evenkeel_limits_exceeded_total", "Items refused by a limit of the job");
  Family<Counter>& decoder_restarts = Counters(*registry, "evenkeel_decoder_restarts_total",
                                               "Decoder processes that were replaced, by reason");
  Family<Counter>& tokens =
      Counters(*registry, "evenkeel_tokens_total", "Tokens (llm) and input rows (encoders) made");
  Family<Counter>& sent_bytes =
      Counters(*registry, "evenkeel_sent_bytes_total", "Bytes of parts handed over");
  Family<Counter>& abandoned =
      Counters(*registry, "evenkeel_buffers_abandoned_total",
               "Parts that a network card did not give back when their session ended");
  Family<Counter>& requests =
      Counters(*registry, "evenkeel_part_requests_total", "Requests for parts by outcome");
  Family<Counter>& duplicates = Counters(*registry, "evenkeel_duplicate_requests_total",
                                         "Requests that were a second or later attempt");
  Family<Counter>& shared = Counters(*registry, "evenkeel_shared_requests_total",
                                     "Requests served by a part made for another request");
  Family<Counter>& waits =
      Counters(*registry, "evenkeel_consumer_wait_seconds_total", "Time that consumers waited for data");
  Family<Gauge>& imbalance = Gauges(*registry, "evenkeel_load_imbalance_ratio",
                                    "Largest over mean load of a phase's ranks, of the step planned last");
  Family<Gauge>& bytes = Gauges(*registry, "evenkeel_part_bytes", "Memory of parts by state");
  Family<Gauge>& budget = Gauges(*registry, "evenkeel_part_budget_bytes", "Memory that parts may take");
  Family<Gauge>& parts = Gauges(*registry, "evenkeel_parts", "Parts by state");
  Family<Gauge>& sessions = Gauges(*registry, "evenkeel_sessions", "Open sessions");
  Family<Gauge>& draining = Gauges(*registry, "evenkeel_draining", "1 while the worker drains");
  Family<Gauge>& transport =
      Gauges(*registry, "evenkeel_transport_info", "Transports on offer, as really chosen");
  Family<Gauge>& build = Gauges(*registry, "evenkeel_build_info", "Release and stream version");
  Family<Gauge>& stream = Gauges(*registry, "evenkeel_stream_info", "Job and digests that are served");

  std::array<Histogram*, kNumStages> stage{};
  std::array<Counter*, kNumOutcomes> outcome{};
  std::array<Counter*, kNumPhases> phase_tokens{};
};

// A rate over a counter that appears with its first event misses that event; so what can be counted is there
// at zero from the start.
void Metrics::BeginAtZero() {
  State& state = *state_;
  for (const char* valid : {"true", "false"}) {
    state.samples.Add({{"valid", valid}});
    for (Phase phase : {Phase::kVision, Phase::kAudio}) {
      state.items.Add({{"phase", Str(PhaseName(phase))}, {"valid", valid}});
    }
  }
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "");
    const std::string name = absl::StatusCodeToString(status.code());
    if (BadData::IsVerdict(status)) state.errors.Add({{"reason", name}});
    state.errors.Add({{"reason", absl::StrCat("attempt_", name)}});
  }
  for (const char* kind : {"samples_filled", "samples_trimmed", "frames_repeated"}) {
    state.adjusted.Add({{"kind", kind}});
  }
  for (const char* reason : {"crash", "forbidden_call", "memory", "cpu", "still", "killed"}) {
    state.decoder_restarts.Add({{"reason", reason}});
  }
  const google::protobuf::Descriptor& limits = *pb::Limits::descriptor();
  for (int i = 0; i < limits.field_count(); ++i) state.limits.Add({{"limit", limits.field(i)->name()}});
  state.abandoned.Add({});
  state.duplicates.Add({});
  state.shared.Add({});
  state.waits.Add({});
}

Metrics::Metrics() : state_(std::make_unique<State>()) {
  for (int i = 0; i < kNumStages; ++i) {
    state_->stage[i] = &state_->stages.Add({{"stage", Str(StageName(static_cast<Stage>(i)))}}, kSeconds);
  }
  for (int i = 0; i < kNumOutcomes; ++i) {
    state_->outcome[i] = &state_->requests.Add({{"outcome", Str(OutcomeName(static_cast<Outcome>(i)))}});
  }
  for (Phase phase : kAllPhases) {
    const size_t i = static_cast<size_t>(phase);
    state_->phase_tokens[i] = &state_->tokens.Add({{"phase", Str(PhaseName(phase))}});
  }
  BeginAtZero();
  state_->build.Add({{"version", EVENKEEL_VERSION}, {"stream_version", absl::StrCat(kStreamVersion)}}).Set(1);
}

Metrics::~Metrics() = default;

absl::Status Metrics::Expose(const std::string& address) {
  try {
    state_->exposer = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/2);
    state_->exposer->RegisterCollectable(state_->registry);
  } catch (const std::exception& error) {
    state_->exposer.reset();
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics ", address, ": cannot listen there: ", error.what()));
  }
  return absl::OkStatus();
}

uint16_t Metrics::port() const {
  if (state_->exposer == nullptr) return 0;
  const std::vector<int> ports = state_->exposer->GetListeningPorts();
  return ports.empty() ? 0 : static_cast<uint16_t>(ports.front());
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(state_->registry->Collect());
}

void Metrics::ObserveStage(Stage stage, absl::Duration duration) {
  state_->stage[static_cast<size_t>(stage)]->Observe(absl::ToDoubleSeconds(duration));
}
void Metrics::CountSample(bool valid) {
  state_->samples.Add({{"valid", valid ? "true" : "false"}}).Increment();
}
void Metrics::CountItem(Phase phase, bool valid) {
  state_->items.Add({{"phase", Str(PhaseName(phase))}, {"valid", valid ? "true" : "false"}}).Increment();
}
void Metrics::CountError(std::string_view reason) {
  state_->errors.Add({{"reason", Str(reason)}}).Increment();
}
void Metrics::CountAdjusted(std::string_view kind, uint64_t count) {
  if (count > 0) state_->adjusted.Add({{"kind", Str(kind)}}).Increment(count);
}
void Metrics::CountLimit(std::string_view limit) { state_->limits.Add({{"limit", Str(limit)}}).Increment(); }
void Metrics::CountDecoderRestart(std::string_view reason) {
  state_->decoder_restarts.Add({{"reason", Str(reason)}}).Increment();
}
void Metrics::CountTokens(Phase phase, uint64_t tokens) {
  state_->phase_tokens[static_cast<size_t>(phase)]->Increment(tokens);
}
void Metrics::CountSent(std::string_view transport, uint64_t bytes) {
  state_->sent_bytes.Add({{"transport", Str(transport)}}).Increment(bytes);
}
void Metrics::CountAbandoned(uint64_t buffers) {
  state_->abandoned.Add({}).Increment(static_cast<double>(buffers));
}
void Metrics::CountRequest(Outcome outcome) { state_->outcome[static_cast<size_t>(outcome)]->Increment(); }
void Metrics::CountDuplicateRequest() { state_->duplicates.Add({}).Increment(); }
void Metrics::CountShared() { state_->shared.Add({}).Increment(); }
void Metrics::AddConsumerWait(double seconds) {
  if (seconds > 0) state_->waits.Add({}).Increment(seconds);
}
void Metrics::SetImbalance(Phase phase, double before, double after) {
  const std::string name = Str(PhaseName(phase));
  state_->imbalance.Add({{"phase", name}, {"when", "before"}}).Set(before);
  state_->imbalance.Add({{"phase", name}, {"when", "after"}}).Set(after);
}
void Metrics::SetTransport(std::string_view transport, std::string_view device, bool is_rdma) {
  state_->transport
      .Add({{"transport", Str(transport)}, {"device", Str(device)}, {"rdma", is_rdma ? "true" : "false"}})
      .Set(1);
  state_->sent_bytes.Add({{"transport", Str(transport)}});
}
void Metrics::SetStream(std::string_view job, std::string_view stream_digest,
                        std::string_view layout_digest) {
  state_->stream
      .Add({{"job", Str(job)}, {"stream_digest", Str(stream_digest)}, {"layout_digest", Str(layout_digest)}})
      .Set(1);
}
void Metrics::SetBytes(const ByteGauges& bytes) {
  state_->bytes.Add({{"state", "queued"}}).Set(bytes.queued);
  state_->bytes.Add({{"state", "producing"}}).Set(bytes.producing);
  state_->bytes.Add({{"state", "ready"}}).Set(bytes.ready);
  state_->bytes.Add({{"state", "in_flight"}}).Set(bytes.in_flight);
  state_->budget.Add({}).Set(bytes.budget);
}
void Metrics::SetQueue(uint64_t queued_parts, uint64_t producing_parts, uint64_t ready_parts) {
  state_->parts.Add({{"state", "queued"}}).Set(queued_parts);
  state_->parts.Add({{"state", "producing"}}).Set(producing_parts);
  state_->parts.Add({{"state", "ready"}}).Set(ready_parts);
}
void Metrics::SetSessions(uint64_t sessions) { state_->sessions.Add({}).Set(sessions); }
void Metrics::SetDraining(bool draining) { state_->draining.Add({}).Set(draining ? 1 : 0); }

}  // namespace evenkeel
