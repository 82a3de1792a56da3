// Registers every metric with prometheus-cpp, and keeps pointers to those that are updated often.
#include "telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/job.h"

namespace evenkeel::telemetry {
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

std::string_view RefusalName(Refusal refusal) {
  constexpr std::array<std::string_view, kNumRefusals> kNames = {"handles", "places", "address", "silent",
                                                                 "protocol"};
  return kNames[static_cast<size_t>(refusal)];
}

// The families first, then the counters and gauges that are updated often, so that an update needs no lookup.
struct Metrics::State {
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();

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
                                               "Decoder and Python processes that were replaced, by reason");
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
  Family<Counter>& refused_connections =
      Counters(*registry, "evenkeel_connections_refused_total",
               "Connections of the control plane that were closed instead of served");
  Family<Counter>& log_lines_dropped = Counters(*registry, "evenkeel_log_lines_dropped_total",
                                                "Lines of the log that found no room in memory");
  Family<Counter>& store_requests =
      Counters(*registry, "evenkeel_store_requests_total", "Requests to object stores and HTTP servers");
  Family<Counter>& store_seconds = Counters(*registry, "evenkeel_store_request_seconds_total",
                                            "Time from requests to the head of their answers");
  Family<Counter>& store_bytes = Counters(*registry, "evenkeel_store_read_bytes_total",
                                          "Bytes read from object stores and HTTP servers");
  Family<Counter>& store_repeated = Counters(*registry, "evenkeel_store_repeated_requests_total",
                                             "Requests made a second time because the first was slow");
  Family<Counter>& store_reads =
      Counters(*registry, "evenkeel_store_reads_total", "Samples' texts and media read from objects");
  Family<Gauge>& bytes_ahead = Gauges(*registry, "evenkeel_store_ahead_bytes",
                                      "Bytes requested from stores, or fetched and not yet read");
  Family<Counter>& cache_reads =
      Counters(*registry, "evenkeel_cache_reads_total", "Lookups in the cache on the worker's disk");
  Family<Counter>& cache_unwritten = Counters(*registry, "evenkeel_cache_unwritten_total",
                                              "Texts and media that the cache's disk did not take");
  Family<Counter>& self_test_failures = Counters(*registry, "evenkeel_self_test_failures_total",
                                                 "Times that the worker did not reach its own control plane");
  Family<Gauge>& imbalance = Gauges(*registry, "evenkeel_load_imbalance_ratio",
                                    "Largest over mean load of a phase's ranks, of the step planned last");
  Family<Gauge>& bytes = Gauges(*registry, "evenkeel_part_bytes", "Memory of parts by state");
  Family<Gauge>& budget = Gauges(*registry, "evenkeel_part_budget_bytes", "Memory that parts may take");
  Family<Gauge>& parts = Gauges(*registry, "evenkeel_parts", "Parts by state");
  Family<Gauge>& sessions = Gauges(*registry, "evenkeel_sessions", "Open sessions");
  Family<Gauge>& ranks = Gauges(*registry, "evenkeel_ranks", "Ranks that the job's consumers have");
  Family<Gauge>& connections =
      Gauges(*registry, "evenkeel_connections", "Open connections of the control plane");
  Family<Gauge>& draining = Gauges(*registry, "evenkeel_draining", "1 while the worker drains");
  Family<Gauge>& certificate_left =
      Gauges(*registry, "evenkeel_certificate_expires_in_seconds",
             "Time until this worker's certificate expires; negative afterwards");
  Family<Gauge>& certificate_refused =
      Gauges(*registry, "evenkeel_certificate_files_refused",
             "1 while the certificate files are unusable and the last good ones are in use");
  Family<Counter>& certificate_replacements = Counters(*registry, "evenkeel_certificate_replacements_total",
                                                       "Times that changed certificate files were taken up");
  Family<Gauge>& transport =
      Gauges(*registry, "evenkeel_transport_info", "Transports on offer, as really chosen");
  Family<Gauge>& build = Gauges(*registry, "evenkeel_build_info", "Release and stream version");
  Family<Gauge>& stream = Gauges(*registry, "evenkeel_stream_info", "Job and digests that are served");

  std::array<Histogram*, kNumStages> stage{};
  std::array<Counter*, kNumOutcomes> outcome{};
  std::array<Counter*, 2> sample{};  // by `valid`
};

// Every counter begins at zero. Prometheus computes a rate from two values, so a counter that appears with
// its first event hides that event.
void Metrics::BeginAtZero() {
  State& state = *state_;
  for (const bool valid : {false, true}) {
    const std::string label = valid ? "true" : "false";
    state.sample[valid] = &state.samples.Add({{"valid", label}});
  }
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "");
    const std::string name = absl::StatusCodeToString(status.code());
    if (IsVerdict(status)) state.errors.Add({{"reason", name}});
    state.errors.Add({{"reason", absl::StrCat("attempt_", name)}});
  }
  for (const char* kind : {"samples_filled", "samples_trimmed", "frames_repeated"}) {
    state.adjusted.Add({{"kind", kind}});
  }
  for (const char* reason : {"crash", "forbidden_call", "memory", "cpu", "still", "killed"}) {
    state.decoder_restarts.Add({{"reason", reason}});
  }
  for (const std::string& limit : LimitNames()) state.limits.Add({{"limit", limit}});
  for (int i = 0; i < kNumRefusals; ++i) {
    state.refused_connections.Add({{"reason", Str(RefusalName(static_cast<Refusal>(i)))}});
  }
  state.self_test_failures.Add({});
  state.log_lines_dropped.Add({});
  for (const char* outcome : {"answered", "failed"}) state.store_requests.Add({{"outcome", outcome}});
  state.store_seconds.Add({});
  state.store_bytes.Add({});
  state.store_repeated.Add({});
  for (const char* outcome : {"ready", "late", "direct"}) state.store_reads.Add({{"outcome", outcome}});
  state.bytes_ahead.Add({});
  for (const char* outcome : {"hit", "miss", "damaged"}) state.cache_reads.Add({{"outcome", outcome}});
  state.cache_unwritten.Add({});
  state.abandoned.Add({});
  state.duplicates.Add({});
  state.shared.Add({});
  state.waits.Add({});
  state.certificate_replacements.Add({});
}

void Metrics::BeginPhases(std::span<const Phase> phases) {
  for (const Phase& phase : phases) {
    CountTokens(phase, 0);
    if (phase == Phase::kLlm) continue;
    for (const bool valid : {false, true}) CountItems(phase, valid, 0);
  }
}

Metrics::Metrics() : state_(std::make_unique<State>()) {
  for (int i = 0; i < kNumStages; ++i) {
    state_->stage[i] = &state_->stages.Add({{"stage", Str(StageName(static_cast<Stage>(i)))}}, kSeconds);
  }
  for (int i = 0; i < kNumOutcomes; ++i) {
    state_->outcome[i] = &state_->requests.Add({{"outcome", Str(OutcomeName(static_cast<Outcome>(i)))}});
  }
  BeginAtZero();
  state_->build.Add({{"version", EVENKEEL_VERSION}, {"stream_version", absl::StrCat(kStreamVersion)}}).Set(1);
}

Metrics::~Metrics() = default;

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(state_->registry->Collect());
}

void Metrics::ObserveStage(Stage stage, absl::Duration duration) {
  state_->stage[static_cast<size_t>(stage)]->Observe(absl::ToDoubleSeconds(duration));
}
void Metrics::CountSample(bool valid) { state_->sample[valid]->Increment(); }
void Metrics::CountItem(const Phase& phase, bool valid) { CountItems(phase, valid, 1); }
void Metrics::CountItems(const Phase& phase, bool valid, uint64_t count) {
  state_->items.Add({{"phase", Str(PhaseName(phase))}, {"valid", valid ? "true" : "false"}})
      .Increment(static_cast<double>(count));
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
void Metrics::CountTokens(const Phase& phase, uint64_t tokens) {
  state_->tokens.Add({{"phase", Str(PhaseName(phase))}}).Increment(static_cast<double>(tokens));
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
void Metrics::SetImbalance(const Phase& phase, double before, double after) {
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
      .Add({{"stream_job", Str(job)},
            {"stream_digest", Str(stream_digest)},
            {"layout_digest", Str(layout_digest)}})
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
void Metrics::SetRanks(uint64_t ranks) { state_->ranks.Add({}).Set(ranks); }
void Metrics::SetConnections(uint64_t connections) { state_->connections.Add({}).Set(connections); }
void Metrics::CountRefusedConnections(std::string_view reason, uint64_t count) {
  if (count > 0) state_->refused_connections.Add({{"reason", Str(reason)}}).Increment(count);
}
void Metrics::CountSelfTestFailures(uint64_t count) {
  if (count > 0) state_->self_test_failures.Add({}).Increment(count);
}
void Metrics::CountStoreRequests(uint64_t answered, uint64_t failed, uint64_t repeated, double seconds,
                                 uint64_t bytes) {
  state_->store_repeated.Add({}).Increment(static_cast<double>(repeated));
  state_->store_requests.Add({{"outcome", "answered"}}).Increment(static_cast<double>(answered));
  state_->store_requests.Add({{"outcome", "failed"}}).Increment(static_cast<double>(failed));
  state_->store_seconds.Add({}).Increment(seconds);
  state_->store_bytes.Add({}).Increment(static_cast<double>(bytes));
}
void Metrics::CountStoreReads(uint64_t ready, uint64_t late, uint64_t direct) {
  state_->store_reads.Add({{"outcome", "ready"}}).Increment(static_cast<double>(ready));
  state_->store_reads.Add({{"outcome", "late"}}).Increment(static_cast<double>(late));
  state_->store_reads.Add({{"outcome", "direct"}}).Increment(static_cast<double>(direct));
}
void Metrics::CountCacheReads(uint64_t hits, uint64_t misses, uint64_t damaged, uint64_t unwritten) {
  state_->cache_reads.Add({{"outcome", "hit"}}).Increment(static_cast<double>(hits));
  state_->cache_reads.Add({{"outcome", "miss"}}).Increment(static_cast<double>(misses - damaged));
  state_->cache_reads.Add({{"outcome", "damaged"}}).Increment(static_cast<double>(damaged));
  state_->cache_unwritten.Add({}).Increment(static_cast<double>(unwritten));
}
void Metrics::SetBytesAhead(uint64_t bytes) { state_->bytes_ahead.Add({}).Set(static_cast<double>(bytes)); }
void Metrics::CountLogLinesDropped(uint64_t count) {
  if (count > 0) state_->log_lines_dropped.Add({}).Increment(count);
}
void Metrics::SetDraining(bool draining) { state_->draining.Add({}).Set(draining ? 1 : 0); }
void Metrics::SetCertificate(absl::Duration left, bool files_refused) {
  state_->certificate_left.Add({}).Set(absl::ToDoubleSeconds(left));
  state_->certificate_refused.Add({}).Set(files_refused ? 1 : 0);
}
void Metrics::CountCertificateReplacements(uint64_t replacements) {
  if (replacements > 0) state_->certificate_replacements.Add({}).Increment(static_cast<double>(replacements));
}

}  // namespace evenkeel::telemetry
