// Sends calls to decoder processes and reads their replies.
#include "isolation/decoder_pool.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::isolation {
namespace {

// Limits of --decoder-memory. With less than the lower one no item could be decoded, and every item would
// cost a process.
constexpr uint64_t kMinMemoryBytes = 64 << 20;
constexpr uint64_t kMaxMemoryBytes = 1ull << 50;

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderPool>> DecoderPool::Start(const preprocess::Processor& processor,
                                                                const Options& options) {
  if (options.memory_bytes < kMinMemoryBytes || options.memory_bytes > kMaxMemoryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--decoder-memory must be from 64 MiB to 1 PiB, got ", options.memory_bytes,
                     " bytes; a decoder needs memory for one image or frame of the job's "
                     "limits and for its codec (default: 2 GiB)"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      auto spawner, DecoderSpawner::Start(processor, options.memory_bytes, options.patience, options.events));
  std::unique_ptr<DecoderPool> pool(new DecoderPool(options, std::move(spawner)));
  EVENKEEL_RETURN_IF_ERROR(pool->children_.MakeFirst());
  return pool;
}

absl::Status DecoderPool::Run(const DecoderCall& call, int input, uint64_t output_bytes,
                              absl::Duration cpu_budget, DecoderReply* reply, SharedMemory::Block* output) {
  const auto send = [&](int socket, const std::vector<int>& files) {
    return SendMessage(socket, call, files);
  };
  const auto receive = [&](int socket) -> std::optional<std::string> {
    if (ReceiveMessage(socket, reply).ok()) return std::nullopt;
    return "";
  };
  EVENKEEL_RETURN_IF_ERROR(children_.Call({input}, output_bytes, cpu_budget, send, receive, output));
  return reply->status();
}

}  // namespace evenkeel::isolation
