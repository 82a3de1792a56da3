// Sends calls to Python processes, with the bytes of items, and takes what they made into the fields.
#include "isolation/python_pool.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"

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
  EVENKEEL_RETURN_IF_ERROR(pool->children_.MakeFirst());
  return pool;
}

absl::StatusOr<PythonReply> PythonPool::Run(PythonCall call, int input, uint64_t output_bytes,
                                            SharedMemory::Block* output) {
  call.number = ++last_call_;
  const std::string text = WritePythonCall(call);
  PythonReply reply;
  const auto send = [&](int socket, const std::vector<int>& files) { return SendText(socket, text, files); };
  const auto receive = [&](int socket) -> std::optional<std::string> {
    const absl::StatusOr<std::string> received = ReceiveText(socket);
    if (!received.ok()) return "";
    absl::StatusOr<PythonReply> read = ReadPythonReply(*received);
    // A process that sends anything else is not trusted any more.
    if (!read.ok() || read->number != call.number) return "crash";
    reply = *std::move(read);
    return std::nullopt;
  };
  std::vector<int> files;
  if (input >= 0) files.push_back(input);
  EVENKEEL_RETURN_IF_ERROR(children_.Call(files, output_bytes, cpu_, send, receive, output));
  EVENKEEL_RETURN_IF_ERROR(reply.status);
  return reply;
}

absl::StatusOr<SharedMemory::Block> PythonPool::ShareInput(std::span<const std::byte> bytes, PythonCall& call,
                                                           int* file) {
  SharedMemory::Block copy;
  std::optional<SharedMemory::Place> place = children_.memory()->Find(bytes);
  if (!place.has_value()) {
    EVENKEEL_ASSIGN_OR_RETURN(copy, children_.memory()->Allocate(SharedMemory::Use::kInput, bytes.size()));
    if (!bytes.empty()) std::memcpy(copy.bytes().data(), bytes.data(), bytes.size());
    place = *children_.memory()->Find(copy.bytes());
  }
  call.has_input = true;
  call.input = {place->offset, bytes.size()};
  *file = place->fd;
  return copy;
}

absl::StatusOr<preprocess::PythonLengths> PythonPool::Measure(const MediaFacts& facts,
                                                              std::string_view suffix,
                                                              std::span<const std::byte> bytes) {
  PythonCall call{.work = PythonWork::kMeasure, .facts = facts, .suffix = suffix};
  SharedMemory::Block copy;
  int input = -1;
  if (!bytes.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(copy, ShareInput(bytes, call, &input));
  }
  EVENKEEL_ASSIGN_OR_RETURN(PythonReply reply, Run(call, input, 0, nullptr));
  return std::move(reply.lengths);
}

absl::StatusOr<preprocess::PythonText> PythonPool::Render(std::string_view sample) {
  PythonCall call{.work = PythonWork::kRender};
  int input = -1;
  EVENKEEL_ASSIGN_OR_RETURN(const SharedMemory::Block copy,
                            ShareInput(std::as_bytes(std::span(sample.data(), sample.size())), call, &input));
  EVENKEEL_ASSIGN_OR_RETURN(PythonReply reply, Run(call, input, 0, nullptr));
  return std::move(reply.text);
}

absl::Status PythonPool::Fill(PythonWork work, const preprocess::ItemRequest& request,
                              std::span<const std::span<std::byte>> field_bytes) {
  PythonCall call{.work = work, .facts = request.facts, .suffix = request.suffix, .planned = request.planned};
  call.facts.medium = request.medium;
  // Each field begins as far into its first page as in the part, so that whole pages can be moved.
  uint64_t file_size = 0;
  for (const std::span<std::byte> field : field_bytes) {
    const uint64_t skipped = reinterpret_cast<uintptr_t>(field.data()) % kPageBytes;
    call.fields.push_back({file_size + skipped, field.size()});
    file_size += RoundUpToPage(skipped + field.size());
  }
  SharedMemory::Block copy, output;
  int input = -1;
  if (work == PythonWork::kProcess) {
    EVENKEEL_ASSIGN_OR_RETURN(copy, ShareInput(request.bytes, call, &input));
  }
  EVENKEEL_RETURN_IF_ERROR(Run(call, input, std::max<uint64_t>(file_size, 1), &output).status());
  for (size_t i = 0; i < field_bytes.size(); ++i) {
    EVENKEEL_RETURN_IF_ERROR(children_.memory()->Move(output, call.fields[i].offset, field_bytes[i]));
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
