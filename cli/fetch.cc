// `evenkeel fetch`: consumes a stream without Python, with one consumer for each rank, and prints digests of
// the data.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/python.h"
#include "client/consumer.h"
#include "core/address.h"
#include "core/annotated_mutex.h"
#include "core/file_limit.h"
#include "core/job.h"
#include "core/job_syntax.h"
#include "core/job_where.h"
#include "core/no_index.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "preprocess/job_words.h"
#include "stream/stream.h"

namespace evenkeel::cli {
namespace {

constexpr size_t kMaxRanks = 4096;

struct Options {
  client::ConsumerOptions consumer;
  std::string job;
  std::string ranks = "0";
  uint64_t steps = 0;
  double progress_timeout = 10;
  double step_timeout = 300;
  double connect_timeout = 30;
  bool digest = false;
  bool json = false;
  bool progress = false;
  std::string chain;
  PythonArguments python;
};

// between checks for an interrupt or another rank's error
constexpr absl::Duration kLook = absl::Milliseconds(100);

// The ranks of --ranks; each gets a consumer in this process.
absl::StatusOr<std::vector<uint32_t>> RanksOf(const std::string& text) {
  absl::StatusOr<std::vector<uint32_t>> ranks = ParseRanks(text);
  if (!ranks.ok()) return AddContext(ranks.status(), "--ranks");
  if (ranks->size() > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks: ", ranks->size(), " ranks, at most ", kMaxRanks, " in one process"));
  }
  return ranks;
}

// Digests of the steps, passed from the ranks' threads to the printing thread.
class Arrivals {
 public:
  explicit Arrivals(size_t num_ranks) : next_(num_ranks) {}

  void Add(size_t rank, const Digest& digest, uint64_t num_samples) {
    MutexLock lock(mutex_);
    next_[rank].push_back(digest);
    if (rank == 0) samples_ += num_samples;
    changed_.NotifyAll();
  }
  // The first error is kept, because later ones are mostly its consequences.
  void Fail(const absl::Status& status) {
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
    changed_.NotifyAll();
  }
  // Waits for the digest of a rank's `step`-th step. It ends, because every rank's thread delivers a digest
  // or an error within its own deadline.
  absl::StatusOr<Digest> Wait(size_t step, size_t rank) {
    MutexLock lock(mutex_);
    while (next_[rank].size() <= step && status_.ok()) changed_.Wait(mutex_);
    if (next_[rank].size() > step) return next_[rank][step];
    return status_;
  }
  // The number of steps that all ranks have.
  uint64_t complete_steps() const {
    MutexLock lock(mutex_);
    size_t steps = SIZE_MAX;
    for (const auto& digests : next_) steps = std::min(steps, digests.size());
    return steps;
  }
  bool failed() const {
    MutexLock lock(mutex_);
    return !status_.ok();
  }
  uint64_t samples() const {
    MutexLock lock(mutex_);
    return samples_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<Digest>> next_ ABSL_GUARDED_BY(mutex_);  // by rank
  uint64_t samples_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

void Consume(client::Consumer& consumer, size_t rank, const Options& options, Arrivals& arrivals) {
  for (uint64_t i = 0; i < options.steps && !arrivals.failed(); ++i) {
    while (!consumer.Wait(kLook)) {
      if (arrivals.failed()) return;
    }
    absl::StatusOr<std::shared_ptr<const client::StepData>> step = consumer.Next();
    if (!step.ok()) {
      return arrivals.Fail(AddContext(step.status(), absl::StrCat("rank ", options.consumer.rank)));
    }
    arrivals.Add(rank, options.digest ? client::DigestStep(**step) : Digest(), (*step)->num_samples);
  }
}

// Sets the expected digests from the job file, so that workers of another job are refused. Without the index
// on this machine only the layout can be compared.
absl::Status ExpectJob(Options& options) {
  if (options.job.empty()) return absl::OkStatus();
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJob(options.job));
  if (const absl::Status words = preprocess::CheckJob(job); !words.ok()) return NameInJob(job, words);
  options.consumer.expect_layout_digest = LayoutDigest(job).Hex();
  std::error_code ignored;
  const std::string index = job.index;
  const auto without_index = [&index] {
    std::cerr << "evenkeel: no index at " << index << ": the stream digest is not compared with the job's\n";
    return absl::OkStatus();
  };
  if (!IsAddress(index) && !std::filesystem::exists(index, ignored)) return without_index();
  EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<isolation::PythonPool> python, StartPython(options.python, job));
  const absl::StatusOr<std::unique_ptr<stream::Stream>> stream =
      stream::OpenStream(std::move(job), std::move(python));
  if (IsAddress(index) && IsNoIndex(stream.status())) return without_index();
  EVENKEEL_RETURN_IF_ERROR(stream.status());
  options.consumer.expect_stream_digest = (*stream)->stream_digest.Hex();
  return absl::OkStatus();
}

// The chained digest: XXH3-128 over the 16 bytes of the previous chain and the 16 bytes of a line's digest.
// The first one is zero.
Digest Chain(const Digest& before, const Digest& line) {
  Digester digester;
  digester.Update(std::as_bytes(std::span(before.bytes)));
  digester.Update(std::as_bytes(std::span(line.bytes)));
  return digester.Finish();
}

struct Summary {
  client::ConsumerStats total;
  uint64_t samples = 0;
  double seconds = 0;
};

Summary Summarise(const std::vector<std::unique_ptr<client::Consumer>>& consumers, const Arrivals& arrivals,
                  double seconds) {
  Summary summary{.samples = arrivals.samples(), .seconds = seconds};
  for (const auto& consumer : consumers) {
    client::ConsumerStats one = consumer->stats();
    summary.total.bytes += one.bytes;
    summary.total.parts += one.parts;
    summary.total.steps += one.steps;
    summary.total.requests += one.requests;
    summary.total.duplicate_requests += one.duplicate_requests;
    summary.total.replaced_workers += one.replaced_workers;
    summary.total.refused += one.refused;
    summary.total.hash_failures += one.hash_failures;
    summary.total.grey_workers = std::max(summary.total.grey_workers, one.grey_workers);
    summary.total.wait_seconds += one.wait_seconds / static_cast<double>(consumers.size());
    summary.total.transport = one.transport;
  }
  return summary;
}

void PrintText(const Summary& summary, size_t num_ranks) {
  const client::ConsumerStats& total = summary.total;
  std::cout << absl::StrFormat(
      "%d bytes in %d parts over %s for %d ranks; wait %.3f s a rank of %.3f s; %.1f samples/s; %d requests, "
      "%d duplicate, %d refused, %d workers replaced, %d damaged\n",
      total.bytes, total.parts, total.transport, num_ranks, total.wait_seconds, summary.seconds,
      static_cast<double>(summary.samples) / std::max(summary.seconds, 1e-9), total.requests,
      total.duplicate_requests, total.refused, total.replaced_workers, total.hash_failures);
}

void PrintJson(const Summary& summary, const std::vector<std::string>& lines, const std::string& chain) {
  const client::ConsumerStats& total = summary.total;
  std::cout << "{\n";
  if (!chain.empty()) {
    std::cout << "  \"digests\": [\n    " << absl::StrJoin(lines, ",\n    ") << "\n  ],\n";
    std::cout << "  \"chain\": \"" << chain << "\",\n";
  }
  std::cout << absl::StrFormat(
      "  \"bytes\": %d,\n  \"parts\": %d,\n  \"transport\": \"%s\",\n  \"wait_seconds\": %.6f,\n"
      "  \"seconds\": %.6f,\n  \"samples\": %d,\n  \"requests\": %d,\n  \"duplicate_requests\": %d,\n"
      "  \"refused\": %d,\n  \"replaced_workers\": %d,\n  \"grey_workers\": %d,\n  \"hash_failures\": "
      "%d\n}\n",
      total.bytes, total.parts, total.transport, total.wait_seconds, summary.seconds, summary.samples,
      total.requests, total.duplicate_requests, total.refused, total.replaced_workers, total.grey_workers,
      total.hash_failures);
}

// Prints the digests of every rank in order of steps, while they arrive.
absl::Status PrintDigests(const Options& options, const std::vector<uint32_t>& ranks, Arrivals& arrivals,
                          std::vector<std::string>& lines, Digest& chain) {
  // A bar and lines on the same terminal would mix.
  bool bar = isatty(STDERR_FILENO) == 1 && !(options.digest && isatty(STDOUT_FILENO) == 1);
  std::ostream nowhere(nullptr);
  Progress progress(options.steps, "steps", bar || options.progress ? std::cerr : nowhere, bar, SteadyNow);
  for (uint64_t i = 0; i < options.steps; ++i) {
    progress.Show(i);
    for (size_t r = 0; r < ranks.size(); ++r) {
      EVENKEEL_ASSIGN_OR_RETURN(Digest digest, arrivals.Wait(i, r));
      if (!options.digest) continue;
      chain = Chain(chain, digest);
      uint64_t step = options.consumer.first_step + i;
      if (options.json) {
        lines.push_back(absl::StrFormat("{\"step\": %d, \"rank\": %d, \"digest\": \"%s\"}", step, ranks[r],
                                        digest.Hex()));
      } else {
        std::cout << step << " " << ranks[r] << " " << digest.Hex() << std::endl;
      }
    }
  }
  progress.Finish(options.steps);
  return absl::OkStatus();
}

// Every rank follows the stream of the worker that answers it first; here they are compared.
absl::Status CheckOneStream(const std::vector<std::unique_ptr<client::Consumer>>& consumers,
                            const std::vector<uint32_t>& ranks) {
  for (const auto& [what, digest] : {std::pair("stream", &client::ConsumerState::stream_digest),
                                     std::pair("layout", &client::ConsumerState::layout_digest)}) {
    std::map<std::string, std::vector<uint32_t>> ranks_of;
    for (size_t i = 0; i < ranks.size(); ++i) ranks_of[consumers[i]->state().*digest].push_back(ranks[i]);
    if (ranks_of.size() <= 1) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the ranks follow different ", what, "s: ",
                     absl::StrJoin(ranks_of, " and ",
                                   [what = what](std::string* out, const auto& one) {
                                     absl::StrAppend(out, what, " digest ", one.first, " on ranks ",
                                                     absl::StrJoin(one.second, ","));
                                   }),
                     ". Workers of two jobs answer: choose one with --job, or give the endpoints "
                     "of one job only"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<client::Consumer>>> ConnectAll(
    const Options& options, const std::vector<uint32_t>& ranks) {
  std::vector<std::unique_ptr<client::Consumer>> consumers;
  for (uint32_t rank : ranks) {
    client::ConsumerOptions one = options.consumer;
    one.rank = rank;
    if (Interrupt::Happened()) return Interrupt::Status("no step was fetched");
    EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<client::Consumer> consumer, client::Consumer::Connect(one));
    consumers.push_back(std::move(consumer));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckOneStream(consumers, ranks));
  return consumers;
}

// Of a stream that ends earlier, fetches what it has.
void EndWithStream(const client::Consumer& consumer, Options& options) {
  const uint64_t end = consumer.num_steps().value_or(UINT64_MAX);
  const uint64_t left = end - std::min(end, options.consumer.first_step);
  if (left >= options.steps) return;
  std::cerr << "evenkeel: the stream has " << end << " steps: " << left << " of the " << options.steps
            << " asked for are fetched\n";
  options.steps = left;
}

absl::Status Fetch(Options options) {
  RaiseFileLimit();  // a rank uses about a dozen handles for each worker
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<uint32_t> ranks, RanksOf(options.ranks));
  Digest chain;
  if (!options.chain.empty() && !Digest::FromHex(options.chain, &chain)) {
    return absl::InvalidArgumentError("--chain must be 32 hex digits");
  }
  options.consumer.progress_timeout = absl::Seconds(options.progress_timeout);
  options.consumer.step_timeout = absl::Seconds(options.step_timeout);
  options.consumer.connect_timeout = absl::Seconds(options.connect_timeout);
  options.consumer.num_steps = options.steps;
  EVENKEEL_RETURN_IF_ERROR(ExpectJob(options));
  auto shared = std::make_shared<Arrivals>(ranks.size());
  Arrivals& arrivals = *shared;
  Interrupt interrupt([shared] { shared->Fail(Interrupt::Status("the sessions are closed")); });
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<client::Consumer>> consumers,
                            ConnectAll(options, ranks));
  EndWithStream(*consumers.front(), options);

  absl::Time begin = SteadyNow();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    Options own = options;
    own.consumer.rank = ranks[i];
    threads.emplace_back([&, own, i] { Consume(*consumers[i], i, own, arrivals); });
  }
  std::vector<std::string> lines;
  absl::Status status = PrintDigests(options, ranks, arrivals, lines, chain);
  for (std::thread& thread : threads) thread.join();
  if (absl::IsCancelled(status) && Interrupt::Happened()) {
    uint64_t steps = arrivals.complete_steps();
    return Interrupt::Status(absl::StrCat(steps, " steps were complete on all ranks, the next one is step ",
                                          options.consumer.first_step + steps));
  }
  EVENKEEL_RETURN_IF_ERROR(status);

  Summary summary = Summarise(consumers, arrivals, absl::ToDoubleSeconds(SteadyNow() - begin));
  if (options.json) {
    PrintJson(summary, lines, options.digest ? chain.Hex() : "");
  } else {
    if (options.digest) std::cout << chain.Hex() << "\n";
    PrintText(summary, ranks.size());
  }
  return absl::OkStatus();
}

}  // namespace

void AddFetchCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  client::ConsumerOptions& consumer = options->consumer;
  CLI::App* fetch = app.add_subcommand("fetch", kFetchDescription);
  fetch
      ->add_option("--endpoints", consumer.endpoints,
                   "Workers: \"host:port,host:port\" or \"dns:///name:port\"")
      ->required();
  AddInterpreterOption(*fetch, options->python);
  fetch->add_option("--job", options->job, "Job file: refuse workers of any other job");
  fetch->add_option("--ranks", options->ranks, "Global ranks to consume for, e.g. 0-3,8")
      ->capture_default_str();
  fetch->add_option("--steps", options->steps, "Number of steps")->required();
  fetch->add_option("--from", consumer.first_step, "First step")->capture_default_str();
  fetch->add_flag("--digest", options->digest,
                  "Print `step rank xxh128` for every rank of every step, then the chain");
  fetch->add_option("--chain", options->chain, "Continue the chained digest of an earlier run");
  fetch->add_flag("--json", options->json, "Print one JSON document");
  fetch->add_flag("--progress", options->progress, "Report progress on stderr even if it is not a terminal");
  fetch
      ->add_option(
          "--transport", consumer.transport,
          "auto (sealed memory from workers of this machine and user, UCX over RDMA, else gRPC), memory, ucx "
          "or grpc")
      ->check(CLI::IsMember({"auto", "memory", "ucx", "grpc"}))
      ->capture_default_str();
  fetch->add_flag("--require-rdma", consumer.require_rdma, "Fail if the data plane is not RDMA");
  fetch->add_flag("--trusted-data-network", consumer.trusted_data_network,
                  "Allow UCX over TCP: whoever reaches its ports can write this process's memory");
  fetch->add_option("--devices", consumer.devices, "UCX: network devices, e.g. mlx5_0:1");
  fetch->add_option("--prefetch", consumer.prefetch_bytes, "Receive memory a rank, e.g. 512MiB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  fetch->add_option("--prefetch-steps", consumer.prefetch_steps, "Maximal number of steps in flight")
      ->capture_default_str();
  fetch
      ->add_option("--progress-timeout", options->progress_timeout,
                   "Seconds until a silent worker is replaced")
      ->capture_default_str();
  fetch->add_option("--step-timeout", options->step_timeout, "Seconds to wait for a step")
      ->capture_default_str();
  fetch->add_option("--connect-timeout", options->connect_timeout, "Seconds to wait for the first worker")
      ->capture_default_str();
  fetch->add_option("--tls-cert", consumer.tls.certificate, "PEM: this consumer's certificate");
  fetch->add_option("--tls-key", consumer.tls.key, "PEM: its key");
  fetch->add_option("--tls-ca", consumer.tls.ca, "PEM: the authority that signs the workers' certificates");
  fetch->callback([options, exit_code] { *exit_code = Report(Fetch(*options)); });
}

}  // namespace evenkeel::cli
