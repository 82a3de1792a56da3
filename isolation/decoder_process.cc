// The loop of a decoder process: confine, then receive a call, map its files, decode, reply.
#include "isolation/decoder_process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "core/attempt.h"
#include "core/status.h"
#include "isolation/decoder_message.h"
#include "isolation/decoder_sandbox.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {
namespace {

// A range of a file, mapped in whole pages.
class Mapping {
 public:
  static absl::StatusOr<Mapping> Map(int fd, const SharedRange& range, int protection) {
    Mapping mapping;
    if (range.size == 0) return mapping;
    const uint64_t skipped = range.offset % kPageBytes;
    mapping.num_bytes_ = skipped + range.size;
    // Fields are written from end to end, so their pages are made by one call instead of one fault each.
    const int flags = MAP_SHARED | ((protection & PROT_WRITE) != 0 ? MAP_POPULATE : 0);
    void* begin =
        mmap(nullptr, mapping.num_bytes_, protection, flags, fd, static_cast<off_t>(range.offset - skipped));
    if (begin == MAP_FAILED) return absl::InternalError("decoder process cannot map shared memory");
    mapping.begin_ = static_cast<std::byte*>(begin);
    mapping.bytes_ = {mapping.begin_ + skipped, range.size};
    return mapping;
  }
  Mapping(Mapping&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), num_bytes_(other.num_bytes_), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (begin_ != nullptr) munmap(begin_, num_bytes_);
  }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  Mapping() = default;
  std::byte* begin_ = nullptr;
  uint64_t num_bytes_ = 0;
  std::span<std::byte> bytes_;
};

absl::Status Probe(const preprocess::Processor& processor, const DecoderCall& call,
                   std::span<const std::byte> bytes, DecoderReply* reply) {
  EVENKEEL_ASSIGN_OR_RETURN(reply->facts, processor.Probe(call.medium, TextOf(call.suffix), bytes));
  return absl::OkStatus();
}

absl::Status Produce(const preprocess::Processor& processor, const DecoderCall& call,
                     std::span<const std::byte> bytes, std::span<const Mapping> mappings,
                     DecoderReply* reply) {
  std::vector<std::span<std::byte>> fields;
  for (const Mapping& mapping : mappings) fields.push_back(mapping.bytes());
  return processor.Produce({.medium = call.medium,
                            .suffix = TextOf(call.suffix),
                            .bytes = bytes,
                            .facts = call.facts,
                            .planned = call.planned,
                            .notes = &reply->notes,
                            .tower = call.tower},
                           fields);
}

absl::Status Work(const preprocess::Processor& processor, const DecoderCall& call, std::vector<Handle> files,
                  DecoderReply* reply) {
  if (files.size() != (call.num_fields == 0 ? 1 : 2) || call.num_fields > DecoderCall::kMaxFields)
    return absl::InternalError("a call came without its files");
  EVENKEEL_ASSIGN_OR_RETURN(const Mapping input, Mapping::Map(files[0].get(), call.input, PROT_READ));
  std::vector<Mapping> fields;
  for (uint32_t i = 0; i < call.num_fields; ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(Mapping mapping,
                              Mapping::Map(files[1].get(), call.fields[i], PROT_READ | PROT_WRITE));
    fields.push_back(std::move(mapping));
  }
  // The medium is read from here on. Even if it takes over the process, it finds only its own pages and no
  // file to map others from.
  files.clear();
  if (call.work == DecoderWork::kProbe) return Probe(processor, call, input.bytes(), reply);
  return Produce(processor, call, input.bytes(), fields, reply);
}

DecoderReply Answer(const preprocess::Processor& processor, const DecoderCall& call,
                    std::vector<Handle> files) {
  DecoderReply made;
  const absl::Status status = Attempt([&] { return Work(processor, call, std::move(files), &made); });
  DecoderReply reply = DecoderReply::Of(status);
  reply.facts = made.facts;
  reply.notes = made.notes;
  return reply;
}

}  // namespace

void RunDecoder(int socket, const preprocess::Processor& processor, uint64_t memory_bytes) {
  const absl::Status confined = Confine(memory_bytes);
  if (!SendMessage(socket, DecoderReply::Of(confined)).ok() || !confined.ok()) _exit(EXIT_FAILURE);
  for (;;) {
    DecoderCall call;
    std::vector<Handle> files;
    if (!ReceiveMessage(socket, &call, &files).ok()) _exit(EXIT_SUCCESS);
    const DecoderReply reply = Answer(processor, call, std::move(files));
    if (!SendMessage(socket, reply).ok()) _exit(EXIT_SUCCESS);
  }
}

}  // namespace evenkeel::isolation
