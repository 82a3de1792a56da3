// The pool's threads, which take units of parts in step order, and the accounting of their memory.
#include "server/part_pool.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/attempt.h"
#include "core/part_role.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "isolation/remote_work.h"
#include "telemetry/event_log.h"

namespace evenkeel::server {
namespace {

// A thread counts as active if it used this much CPU time since the last report.
constexpr uint64_t kBusyNanoseconds = 5'000'000;

// The CPU time of a thread and of the processes that work for it. Finished units alone are too coarse a
// measure of progress: a ten-minute video is one unit.
struct WorkClock {
  clockid_t clock = CLOCK_REALTIME;
  const std::atomic<uint64_t>* remote =
      nullptr;        // nanoseconds of its decoder processes; lives as long as the thread
  uint64_t seen = 0;  // nanoseconds

  static WorkClock OfThisThread() {
    WorkClock out{.remote = &isolation::RemoteWork()};
    pthread_getcpuclockid(pthread_self(), &out.clock);
    out.seen = out.Now();
    return out;
  }
  uint64_t Now() const {
    timespec time{};
    if (clock_gettime(clock, &time) != 0) return 0;
    return uint64_t{1000000000} * static_cast<uint64_t>(time.tv_sec) + static_cast<uint64_t>(time.tv_nsec) +
           *remote;
  }
  // True if the thread has worked since the last call that returned true.
  bool HasMoved() {
    const uint64_t now = Now();
    if (now < seen + kBusyNanoseconds) return false;
    seen = now;
    return true;
  }
};

}  // namespace

// One part in production. The pool's mutex guards it, except `task` and `part` while units run: these read
// them without the lock.
struct PartPool::Production {
  struct Waiter {
    Ticket ticket = 0;
    std::shared_ptr<PartListener> listener;
  };

  PartName name;
  uint64_t arrival = 0;
  absl::Time accepted;
  std::shared_ptr<stream::PartTask> task;
  std::optional<Reservation> memory;  // until the part owns it
  std::shared_ptr<ReadyPart> part;    // from Begin on
  std::vector<Waiter> waiters;
  bool begun = false;
  bool abandoned = false;  // no request is left; ends with its last running unit
  bool finishing = false;  // its last unit has ended; Finish runs
  bool whole = false;  // finishing: all units succeeded and a request waits; read by Finish without the lock
  absl::Status error;
  size_t next_unit = 0;
  size_t running = 0;
  size_t units_done = 0;
  // Progress: `done` = credit + own units + units of the whole worker since `mark` while none of its own ran.
  uint64_t credit = 0;
  uint64_t mark = 0;
  std::map<size_t, WorkClock> busy;  // clocks of the pool threads that work on it

  bool HasUnits() const { return begun && !abandoned && error.ok() && next_unit < task->num_units(); }
};

bool PartPool::Earlier::operator()(const ProductionPtr& a, const ProductionPtr& b) const {
  return std::pair(a->name.step, a->arrival) < std::pair(b->name.step, b->arrival);
}

PartPool::PartPool(const Options& options, telemetry::Metrics* metrics)
    : options_(options),
      metrics_(metrics),
      memory_(std::make_shared<MemoryAccount>(options.budget_bytes)),
      kept_(options.kept_bytes) {
  for (size_t i = 0; i < std::max(1u, options_.num_threads); ++i)
    threads_.emplace_back([this, i] { Run(i); });
  progress_ = std::thread([this] { RunProgress(); });
}

PartPool::~PartPool() { Stop(); }

// ---- Requests

bool PartPool::IsShared(const stream::PartTask& task) const {
  return options_.shared_memory != nullptr && task.is_shared();
}

uint64_t PartPool::CommittedBytes(const stream::PartTask& task) const {
  const uint64_t at_once = std::min<uint64_t>(std::max(1u, options_.num_threads), task.num_units());
  return ReadyPart::HeldBytes(task.num_bytes(), IsShared(task)) + at_once * task.scratch_bytes();
}

uint64_t CutBytes(const stream::PartTask& task, PartRole role) {
  return RoleIsWhole(role, task.name().phase) ? 0 : RoleLayout(*task.layout(), role).total_bytes();
}

absl::Status PartPool::CheckFits(const stream::PartTask& task, uint64_t cut_bytes) const {
  const uint64_t needed =
      CommittedBytes(task) + (cut_bytes == 0 ? 0 : ReadyPart::HeldBytes(cut_bytes, /*is_shared=*/false));
  if (needed <= options_.budget_bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(DescribePart(task.name()), " has ", task.num_bytes(), " bytes and takes ",
                   needed - task.num_bytes(), " more to make; the worker's budget is ", options_.budget_bytes,
                   " bytes: raise serve --memory, or lower the job's microbatch.capacity_tokens, limits or "
                   "pixels per item"));
}

absl::StatusOr<std::shared_ptr<const ReadyPart>> PartPool::Cut(const ReadyPart& whole, PartRole role,
                                                               uint64_t num_bytes) {
  Calls calls;
  std::optional<Reservation> memory;
  {
    MutexLock lock(mutex_);
    memory = MakeRoom(ReadyPart::HeldBytes(num_bytes, /*is_shared=*/false), whole.name().step, calls);
  }
  Make(calls);
  if (!memory.has_value()) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for what the ",
                                                     std::string(PartRoleName(role)), " stage receives of ",
                                                     DescribePart(whole.name())));
  }
  auto part = std::make_shared<ReadyPart>(whole.name(), num_bytes, *std::move(memory),
                                          isolation::SharedMemory::Block());
  EVENKEEL_RETURN_IF_ERROR(WriteRolePart(whole.bytes(), role, part->writable()));
  part->hash_ = DigestOf(part->bytes());
  return part;
}

PartPool::Answer PartPool::Request(std::unique_ptr<stream::PartTask> task,
                                   std::shared_ptr<PartListener> listener) {
  Calls calls;
  Answer answer;
  std::shared_ptr<stream::PartTask> added;  // which another thread may have finished meanwhile
  {
    MutexLock lock(mutex_);
    const PartName name = task->name();
    KeptParts::PartPtr kept = kept_.Find(name);
    const auto found = productions_.find(name);
    if (draining_ || stopping_) {
      answer = Refuse("the worker is draining");
    } else if (kept != nullptr) {
      answer.ready = std::move(kept);
      if (metrics_ != nullptr) metrics_->CountShared();
    } else if (tickets_.size() >= options_.max_requests) {
      answer = Refuse("too many requests wait");
    } else if (found != productions_.end()) {
      answer = Join(found->second, std::move(listener));
      if (metrics_ != nullptr) metrics_->CountShared();
    } else if (std::optional<Reservation> memory = MakeRoom(CommittedBytes(*task), name.step, calls)) {
      auto production = std::make_shared<Production>();
      production->name = name;
      production->arrival = next_ticket_;
      production->accepted = SteadyNow();
      production->task = std::move(task);
      production->memory = std::move(memory);
      production->mark = units_done_;
      productions_.emplace(name, production);
      runnable_.insert(production);
      queued_.insert(production);
      answer = Join(production, std::move(listener));
      work_.NotifyOne();
      added = production->task;
    } else {
      answer = Refuse("no memory for another part");
    }
  }
  // Units that ran before this read by themselves.
  if (added != nullptr) added->Expect();
  Make(calls);
  return answer;
}

PartPool::Answer PartPool::Join(const ProductionPtr& production, std::shared_ptr<PartListener> listener) {
  Answer answer{.accepted = true, .ticket = next_ticket_++};
  tickets_.emplace(answer.ticket, production);
  production->waiters.push_back({answer.ticket, std::move(listener)});
  for (const ProductionPtr& other : runnable_) {
    if (answer.queue == kMaxQueueCounted || !Earlier()(other, production)) break;
    ++answer.queue;
  }
  return answer;
}

PartPool::Answer PartPool::Refuse(std::string why) const {
  // The estimated time to produce a quarter of the bytes in use.
  const double seconds = static_cast<double>(memory_->used_bytes()) / 4 / std::max(1e6, bytes_per_second_);
  Answer answer;
  answer.retry_after = absl::Seconds(std::clamp(seconds, 0.05, 2.0));
  answer.why = std::move(why);
  return answer;
}

std::optional<Reservation> PartPool::MakeRoom(uint64_t bytes, uint64_t step, Calls& calls) {
  std::optional<Reservation> memory = memory_->TryReserve(bytes);
  while (!memory.has_value() && !kept_.empty()) {
    kept_.ForgetLeastRecent();
    memory = memory_->TryReserve(bytes);
  }
  while (!memory.has_value()) {
    // The highest step that has not begun; within a step the latest arrival.
    const auto last = queued_.rbegin();
    if (last == queued_.rend() || (*last)->name.step <= step) return std::nullopt;
    // A copy, because Drop removes the original.
    const ProductionPtr victim = *last;  // NOLINT(performance-unnecessary-copy-initialization)
    Drop(victim, calls);
    memory = memory_->TryReserve(bytes);
  }
  return memory;
}

void PartPool::Drop(const ProductionPtr& production, Calls& calls) {
  const absl::Duration retry_after = Refuse("").retry_after;
  for (const Production::Waiter& waiter : production->waiters) {
    calls.push_back([listener = waiter.listener, retry_after] {
      listener->OnDropped(retry_after, "its memory is needed for a lower step");
    });
    tickets_.erase(waiter.ticket);
  }
  production->waiters.clear();
  runnable_.erase(production);
  queued_.erase(production);
  productions_.erase(production->name);
  production->memory.reset();
  ended_.NotifyAll();
}

void PartPool::Cancel(Ticket ticket) {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  const ProductionPtr production = found->second;
  tickets_.erase(found);
  ended_.NotifyAll();
  std::erase_if(production->waiters, [ticket](const auto& waiter) { return waiter.ticket == ticket; });
  if (!production->waiters.empty()) return;
  production->abandoned = true;
  runnable_.erase(production);
  queued_.erase(production);
  if (const auto same = productions_.find(production->name);
      same != productions_.end() && same->second == production) {
    productions_.erase(same);
  }
  // If units still run, the last one releases the memory.
  if (production->running == 0) production->memory.reset();
}

// ---- Work: a thread takes a turn under the lock and does it without the lock

void PartPool::Run(size_t thread) {
  while (const std::optional<Turn> turn = NextTurn(thread)) {
    const absl::Status status = turn->num_units == 0 ? BeginPart(*turn->production) : RunUnits(*turn);
    if (EndTurn(*turn, thread, status)) Finish(turn->production);
  }
}

std::optional<PartPool::Turn> PartPool::NextTurn(size_t thread) {
  MutexLock lock(mutex_);
  while (!stopping_ && runnable_.empty()) work_.Wait(mutex_);
  if (stopping_) return std::nullopt;
  const ProductionPtr production = *runnable_.begin();
  return production->begun ? TakeUnits(production, thread) : TakeBegin(production);
}

PartPool::Turn PartPool::TakeBegin(const ProductionPtr& production) {
  runnable_.erase(production);
  queued_.erase(production);
  production->begun = true;
  ++production->running;
  production->credit += units_done_ - production->mark;
  return {.production = production};
}

PartPool::Turn PartPool::TakeUnits(const ProductionPtr& production, size_t thread) {
  const Turn turn = {production, production->next_unit, UnitsAtOnce(*production)};
  production->next_unit += turn.num_units;
  if (!production->HasUnits()) runnable_.erase(production);
  if (production->running++ == 0) production->credit += units_done_ - production->mark;
  production->busy[thread] = WorkClock::OfThisThread();
  return turn;
}

absl::Status PartPool::BeginPart(Production& production) const {
  if (metrics_ != nullptr)
    metrics_->ObserveStage(telemetry::Stage::kQueue, SteadyNow() - production.accepted);
  try {
    EVENKEEL_RETURN_IF_ERROR(MakePart(production));
    production.task->Begin(production.part->writable());
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return AddContext(ExceptionStatus(error), DescribePart(production.name));
  }
}

absl::Status PartPool::MakePart(Production& production) const {
  const uint64_t num_bytes = production.task->num_bytes();
  isolation::SharedMemory::Block shared;
  if (IsShared(*production.task)) {
    EVENKEEL_ASSIGN_OR_RETURN(
        shared, options_.shared_memory->Allocate(isolation::SharedMemory::Use::kOutput, num_bytes));
  }
  production.part = std::make_shared<ReadyPart>(production.name, num_bytes, std::move(*production.memory),
                                                std::move(shared));
  return absl::OkStatus();
}

// Several short units in a row, such as texts, because taking the lock for each would cost more than the
// unit.
size_t PartPool::UnitsAtOnce(const Production& production) const {
  const size_t left = production.task->num_units() - production.next_unit;
  if (options_.fault_unit_delay > absl::ZeroDuration()) return 1;
  return std::clamp<size_t>(production.task->units_at_once(production.next_unit), 1, left);
}

absl::Status PartPool::RunUnits(const Turn& turn) {
  for (size_t i = 0; i < turn.num_units; ++i) {
    EVENKEEL_RETURN_IF_ERROR(RunGuarded(turn.production, turn.first_unit + i));
  }
  return absl::OkStatus();
}

absl::Status PartPool::RunGuarded(const ProductionPtr& production, size_t unit) {
  const absl::Time begin = SteadyNow();
  const uint64_t number = ++units_started_;
  if (options_.fault_fail_every != 0 && number % options_.fault_fail_every == 0) {
    return absl::UnavailableError("a fault was requested with --fault-fail-every");
  }
  absl::Status status;
  try {
    status = production->task->RunUnit(unit, production->part->writable());
  } catch (const std::exception& error) {
    // Lack of memory or an exception of a decoder does not show that the data is bad: only the attempt
    // failed.
    status = AddContext(ExceptionStatus(error), DescribePart(production->name));
  }
  const absl::Duration left = options_.fault_unit_delay - (SteadyNow() - begin);
  if (left > absl::ZeroDuration()) absl::SleepFor(left);
  return status;
}

bool PartPool::EndTurn(const Turn& turn, size_t thread, const absl::Status& status) {
  MutexLock lock(mutex_);
  Production& production = *turn.production;
  production.units_done += turn.num_units;
  units_done_ += turn.num_units;
  if (--production.running == 0) production.mark = units_done_;
  if (!status.ok() && production.error.ok()) {
    production.error = status;
    runnable_.erase(turn.production);
  }
  if (turn.num_units > 0) {
    production.busy.erase(thread);
  } else {
    production.memory.reset();
    if (production.HasUnits()) Offer(turn.production);
  }
  if (production.running > 0 || production.finishing || production.HasUnits()) return false;
  production.finishing = true;
  production.whole = !production.abandoned && production.error.ok();
  return true;
}

void PartPool::Offer(const ProductionPtr& production) {
  runnable_.insert(production);
  // If this is the only part and one thread takes all its units, the calling thread does it: no wake-up
  // needed.
  const bool is_all = UnitsAtOnce(*production) == production->task->num_units();
  if (runnable_.size() > 1 || !is_all) work_.NotifyAll();
}

// The hash is computed without the lock: the part is complete and no other thread writes it.
void PartPool::Finish(const ProductionPtr& production) {
  if (production->whole) {
    const absl::Time begin = SteadyNow();
    production->part->hash_ = DigestOf(std::as_bytes(production->part->bytes()));
    if (metrics_ != nullptr) {
      metrics_->ObserveStage(telemetry::Stage::kHash, SteadyNow() - begin);
      metrics_->ObserveStage(telemetry::Stage::kPart, SteadyNow() - production->accepted);
    }
  }
  Calls calls;
  {
    MutexLock lock(mutex_);
    EndProduction(production, calls);
  }
  Make(calls);
}

// Removes the production, queues the calls to its listeners and keeps the part. The part's memory shrinks to
// what it occupies: the scratch memory of its units is free again.
void PartPool::EndProduction(const ProductionPtr& production, Calls& calls) {
  if (const auto same = productions_.find(production->name);
      same != productions_.end() && same->second == production) {
    productions_.erase(same);
  }
  std::shared_ptr<ReadyPart> part = std::move(production->part);
  if (part != nullptr) part->memory_.ShrinkTo(part->held_bytes());
  for (const Production::Waiter& waiter : production->waiters) {
    tickets_.erase(waiter.ticket);
    if (production->error.ok()) {
      calls.push_back([listener = waiter.listener, part] { listener->OnReady(part); });
    } else {
      calls.push_back([listener = waiter.listener, error = production->error] { listener->OnFailed(error); });
    }
  }
  production->waiters.clear();
  production->task.reset();
  ended_.NotifyAll();
  if (part == nullptr || !production->error.ok() || production->abandoned) return;
  ++parts_made_;
  const absl::Time now = SteadyNow();
  // A moving mean with weight 0.1; the bounds keep a single fast or slow part from dominating it.
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(now - last_made_));
  bytes_per_second_ +=
      0.1 * (std::min(static_cast<double>(part->num_bytes_) / seconds, 20e9) - bytes_per_second_);
  last_made_ = now;
  kept_.Keep(std::move(part));
}

// ---- Progress, draining, statistics

void PartPool::RunProgress() {
  for (;;) {
    Calls calls;
    {
      MutexLock lock(mutex_);
      const absl::Time due = SteadyNow() + options_.progress_interval;
      while (!stopping_ && stopping_now_.WaitUntil(mutex_, due)) continue;
      if (stopping_) return;
      Report(calls);
    }
    Make(calls);
  }
}

void PartPool::Report(Calls& calls) {
  for (auto& [name, production] : productions_) {
    for (auto& [thread, seen] : production->busy) {
      if (seen.HasMoved()) ++production->credit;
    }
    const bool runs = production->running > 0 || production->finishing;
    const uint64_t done =
        production->credit + production->units_done + (runs ? 0 : units_done_ - production->mark);
    const uint64_t total = done + production->task->num_units() - production->units_done;
    const std::string_view stage = production->begun ? "producing" : "queued";
    for (const Production::Waiter& waiter : production->waiters) {
      calls.push_back(
          [listener = waiter.listener, stage, done, total] { listener->OnProgress(stage, done, total); });
    }
  }
}

void PartPool::Make(Calls& calls) {
  for (const auto& call : calls) call();
}

bool PartPool::Drain(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(mutex_);
  draining_ = true;
  while (!tickets_.empty() && ended_.WaitUntil(mutex_, deadline)) continue;
  return tickets_.empty();
}

void PartPool::Stop() {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    work_.NotifyAll();
    ended_.NotifyAll();
    stopping_now_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  progress_.join();
  Calls calls;
  {
    MutexLock lock(mutex_);
    for (auto& [name, production] : productions_) {
      for (const Production::Waiter& waiter : production->waiters) {
        calls.push_back([listener = waiter.listener] {
          listener->OnFailed(absl::CancelledError("the worker is stopping"));
        });
      }
    }
    productions_.clear();
    runnable_.clear();
    tickets_.clear();
    queued_.clear();
    kept_.Clear();
  }
  Make(calls);
}

PartPool::Stats PartPool::stats() const {
  MutexLock lock(mutex_);
  Stats stats;
  for (const auto& [name, production] : productions_) {
    const uint64_t bytes = CommittedBytes(*production->task);
    (production->begun ? stats.producing : stats.queued) += 1;
    (production->begun ? stats.bytes.producing : stats.bytes.queued) += bytes;
  }
  stats.ready = kept_.size();
  stats.bytes.ready = kept_.held_bytes();
  stats.bytes.budget = options_.budget_bytes;
  const uint64_t used = memory_->used_bytes();
  const uint64_t known = stats.bytes.queued + stats.bytes.producing + stats.bytes.ready;
  stats.bytes.in_flight = used > known ? used - known : 0;
  stats.requests = tickets_.size();
  stats.parts_made = parts_made_;
  return stats;
}

}  // namespace evenkeel::server
