// Hands calls to idle Python processes, watches their CPU time, and replaces those that fail.
#include "isolation/python_pool.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "isolation/child_watch.h"

namespace evenkeel::isolation {
namespace {

constexpr uint64_t kMinMemoryBytes = 64 << 20, kMaxMemoryBytes = 1ull << 50;

}  // namespace

absl::StatusOr<std::shared_ptr<PythonPool>> PythonPool::Start(const ProcessorSpec& spec,
                                                              const Options& options) {
  const uint64_t memory = options.spawner.memory_bytes;
  if (memory < kMinMemoryBytes || memory > kMaxMemoryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--python-memory must be from 64 MiB to 1 PiB, got ", memory, " bytes"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(auto spawner, PythonSpawner::Start(spec, options.spawner));
  std::shared_ptr<PythonPool> pool(new PythonPool(options, std::move(spawner)));
  // so that a machine that forbids to confine processes fails at the start
  EVENKEEL_ASSIGN_OR_RETURN(Process first, pool->Take());
  pool->GiveBack(std::move(first));
  return pool;
}

absl::StatusOr<PythonPool::Process> PythonPool::Spawn() {
  Process process;
  EVENKEEL_ASSIGN_OR_RETURN(process.child, spawner_->Spawn());
  MutexLock lock(mutex_);
  process.writer = ++last_writer_;
  return process;
}

absl::StatusOr<PythonPool::Process> PythonPool::Take() {
  std::vector<Process> ended;
  std::optional<Process> found;
  {
    MutexLock lock(mutex_);
    while (!idle_.empty() && !found.has_value()) {
      Process process = std::move(idle_.back());
      idle_.pop_back();
      if (process.child.spawner == spawner_->current()) {
        found = std::move(process);
      } else {
        ended.push_back(std::move(process));  // it ended with its spawner
      }
    }
  }
  for (const Process& process : ended) memory_->Forget(process.writer);
  if (found.has_value()) return *std::move(found);
  return Spawn();
}

void PythonPool::GiveBack(Process process) {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(process));
}

absl::Status PythonPool::Replace(Process process, std::string reason) {
  memory_->Forget(process.writer);
  const bool stopped = reason == "still" && IsStopped(process.child.pid);
  const int ended = spawner_->End(process.child);
  const std::string how = DescribeEnd(ended);
  if (reason.empty()) reason = ReasonOf(ended);
  ++num_replaced_;
  if (options_.spawner.events != nullptr) options_.spawner.events->OnDecoderReplaced(reason, how);
  absl::StatusOr<Process> next = Spawn();  // so that the next item need not wait for a process
  if (next.ok()) GiveBack(*std::move(next));
  return ReplacedError(absl::StrCat("Python process was replaced: ", reason, " (", how, ")"), reason,
                       stopped);
}

absl::StatusOr<PythonPool::Process> PythonPool::Begin(const std::string& call, int input,
                                                      uint64_t output_bytes, SharedMemory::Block* output) {
  EVENKEEL_ASSIGN_OR_RETURN(Process process, Take());
  std::vector<int> files;
  if (input >= 0) files.push_back(input);
  if (output_bytes > 0) {
    absl::StatusOr<SharedMemory::Block> block = memory_->AllocateFor(process.writer, output_bytes);
    if (!block.ok()) {
      GiveBack(std::move(process));
      return block.status();
    }
    *output = *std::move(block);
    files.push_back(memory_->Find(output->bytes())->fd);
  }
  if (SendText(process.child.socket.get(), call, files).ok()) return process;
  if (output != nullptr) *output = SharedMemory::Block();
  return Replace(std::move(process), "");
}

absl::StatusOr<PythonReply> PythonPool::Run(const PythonCall& call, int input, uint64_t output_bytes,
                                            SharedMemory::Block* output) {
  PythonCall numbered = call;
  numbered.number = ++last_call_;
  const std::string text = WritePythonCall(numbered);
  absl::StatusOr<Process> process = Begin(text, input, output_bytes, output);
  // An error here means that the process ended while it was idle, so the item gets a second one.
  if (absl::IsInternal(process.status()) || absl::IsUnavailable(process.status()))
    process = Begin(text, input, output_bytes, output);
  // No process has received the item: the machine has no process or no memory for one.
  EVENKEEL_RETURN_IF_ERROR(WithKind(process.status(), FailureKind::kMachine));
  std::string reason =
      WaitForReply(process->child.pid, process->child.socket.get(), options_.cpu, options_.still);
  if (!reason.empty()) return Replace(*std::move(process), std::move(reason));
  const absl::StatusOr<std::string> received = ReceiveText(process->child.socket.get());
  if (!received.ok()) return Replace(*std::move(process), "");
  absl::StatusOr<PythonReply> reply = ReadPythonReply(*received);
  // A process that sends anything else is not trusted any more.
  if (!reply.ok() || reply->number != numbered.number) return Replace(*std::move(process), "crash");
  GiveBack(*std::move(process));
  EVENKEEL_RETURN_IF_ERROR(reply->status);
  return reply;
}

absl::StatusOr<preprocess::PythonLengths> PythonPool::Measure(const MediaFacts& facts,
                                                              std::string_view suffix,
                                                              std::span<const std::byte> bytes) {
  PythonCall call{.work = PythonWork::kMeasure, .facts = facts, .suffix = suffix};
  SharedMemory::Block copy;
  int input = -1;
  if (!bytes.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(copy, memory_->Allocate(SharedMemory::Use::kInput, bytes.size()));
    std::memcpy(copy.bytes().data(), bytes.data(), bytes.size());
    const SharedMemory::Place place = *memory_->Find(copy.bytes());
    call.has_input = true;
    call.input = {place.offset, bytes.size()};
    input = place.fd;
  }
  EVENKEEL_ASSIGN_OR_RETURN(PythonReply reply, Run(call, input, 0, nullptr));
  return std::move(reply.lengths);
}

absl::Status PythonPool::Fill(PythonWork work, const preprocess::ItemRequest& request,
                              std::span<const std::span<std::byte>> field_bytes) {
  PythonCall call{.work = work, .facts = request.facts, .suffix = request.suffix, .planned = request.planned};
  call.facts.medium = request.medium;
  uint64_t file_size = 0;
  for (const std::span<std::byte> field : field_bytes) {
    call.fields.push_back({file_size, field.size()});
    file_size += RoundUpToPage(field.size());
  }
  SharedMemory::Block copy, output;
  int input = -1;
  if (work == PythonWork::kProcess) {
    EVENKEEL_ASSIGN_OR_RETURN(copy, memory_->Allocate(SharedMemory::Use::kInput, request.bytes.size()));
    if (!request.bytes.empty()) std::memcpy(copy.bytes().data(), request.bytes.data(), request.bytes.size());
    const SharedMemory::Place place = *memory_->Find(copy.bytes());
    call.has_input = true;
    call.input = {place.offset, request.bytes.size()};
    input = place.fd;
  }
  EVENKEEL_RETURN_IF_ERROR(Run(call, input, std::max<uint64_t>(file_size, 1), &output).status());
  for (size_t i = 0; i < field_bytes.size(); ++i) {
    EVENKEEL_RETURN_IF_ERROR(memory_->Move(output, call.fields[i].offset, field_bytes[i]));
  }
  return absl::OkStatus();
}

absl::Status PythonPool::Produce(const preprocess::ItemRequest& request,
                                 std::span<const std::span<std::byte>> field_bytes) {
  return Fill(PythonWork::kProcess, request, field_bytes);
}

absl::Status PythonPool::ProduceBlank(const preprocess::ItemRequest& request,
                                      std::span<const std::span<std::byte>> field_bytes) {
  return Fill(PythonWork::kBlank, request, field_bytes);
}

}  // namespace evenkeel::isolation
