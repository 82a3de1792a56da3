// Translates a processor's calls into messages to decoder processes, and moves their output into the part.
#include "isolation/isolated_processor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/job_where.h"
#include "core/status.h"
#include "preprocess/image/image.h"

namespace evenkeel::isolation {

bool IsIsolated(Isolation isolation, Medium medium) {
  switch (isolation) {
    case Isolation::kOff:
      return false;
    case Isolation::kFfmpeg:
      return medium == Medium::kAudio || medium == Medium::kVideo;
    case Isolation::kAll:
      return medium != Medium::kText;
  }
  return false;
}

bool IsIsolated(Isolation isolation, Medium medium, std::string_view suffix) {
  return IsIsolated(isolation, medium) ||
         (isolation != Isolation::kOff && medium == Medium::kImage && preprocess::IsDecodedByFfmpeg(suffix));
}

// The item's bytes in a file that a decoder can map, and the copy if one had to be made.
struct IsolatedProcessor::Input {
  SharedMemory::Place place;
  SharedMemory::Block copy;
};

IsolatedProcessor::IsolatedProcessor(std::unique_ptr<preprocess::Processor> processor,
                                     std::unique_ptr<DecoderPool> decoders, Isolation isolation,
                                     const CpuBudget& budget)
    : processor_(std::move(processor)),
      decoders_(std::move(decoders)),
      isolation_(isolation),
      budget_(budget) {}

absl::StatusOr<preprocess::StoredBytes> IsolatedProcessor::AllocateStored(Medium medium,
                                                                          uint64_t num_bytes) const {
  if (!is_isolated(medium)) return processor_->AllocateStored(medium, num_bytes);
  EVENKEEL_ASSIGN_OR_RETURN(SharedMemory::Block block,
                            memory().Allocate(SharedMemory::Use::kInput, num_bytes));
  auto owner = std::make_shared<SharedMemory::Block>(std::move(block));
  const std::span<std::byte> bytes = owner->bytes();
  return preprocess::StoredBytes{.owner = std::move(owner), .bytes = bytes};
}

absl::StatusOr<IsolatedProcessor::Input> IsolatedProcessor::Share(std::span<const std::byte> bytes) const {
  if (const auto place = memory().Find(bytes); place.has_value()) return Input{*place, {}};
  Input input;
  EVENKEEL_ASSIGN_OR_RETURN(input.copy, memory().Allocate(SharedMemory::Use::kInput, bytes.size()));
  if (!bytes.empty()) std::memcpy(input.copy.bytes().data(), bytes.data(), bytes.size());
  input.place = *memory().Find(input.copy.bytes());
  return input;
}

absl::StatusOr<MediaFacts> IsolatedProcessor::Probe(Medium medium, std::string_view suffix,
                                                    std::span<const std::byte> bytes) const {
  if (!IsIsolated(isolation_, medium, suffix)) return processor_->Probe(medium, suffix, bytes);
  EVENKEEL_ASSIGN_OR_RETURN(const Input input, Share(bytes));
  DecoderCall call{
      .work = DecoderWork::kProbe, .medium = medium, .input = {input.place.offset, bytes.size()}};
  CopyText(suffix, call.suffix);
  DecoderReply reply;
  EVENKEEL_RETURN_IF_ERROR(
      decoders_->Run(call, input.place.fd, 0, budget_.ToProbe(medium, bytes.size()), &reply, nullptr));
  EVENKEEL_RETURN_IF_ERROR(CheckFacts(reply.facts, medium));
  return reply.facts;
}

absl::Status IsolatedProcessor::Produce(const preprocess::ItemRequest& request,
                                        std::span<const std::span<std::byte>> field_bytes) const {
  if (!IsIsolated(isolation_, request.medium, request.suffix) || is_made_by_python(request.medium))
    return processor_->Produce(request, field_bytes);
  if (field_bytes.empty() || field_bytes.size() > DecoderCall::kMaxFields) {
    return absl::InternalError(
        absl::StrCat("an item has ", field_bytes.size(), " fields; decoder processes accept 1 to 16"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const Input input, Share(request.bytes));
  DecoderCall call{.work = DecoderWork::kProduce,
                   .medium = request.medium,
                   .tower = request.tower,
                   .facts = request.facts,
                   .planned = request.planned,
                   .input = {input.place.offset, request.bytes.size()},
                   .num_fields = static_cast<uint32_t>(field_bytes.size())};
  CopyText(request.suffix, call.suffix);
  // The output file has a range for each field, which begins as far into its first page as the field does in
  // the part, so that whole pages can be moved.
  uint64_t field_total = 0, file_size = 0;
  for (size_t i = 0; i < field_bytes.size(); ++i) {
    const uint64_t skipped = reinterpret_cast<uintptr_t>(field_bytes[i].data()) % kPageBytes;
    call.fields[i] = {file_size + skipped, field_bytes[i].size()};
    file_size += RoundUpToPage(skipped + field_bytes[i].size());
    field_total += field_bytes[i].size();
  }
  DecoderReply reply;
  SharedMemory::Block output;
  const absl::Duration budget =
      budget_.ToProduce(request.facts, request.bytes.size(), field_total, ScansOf(request.bytes));
  EVENKEEL_RETURN_IF_ERROR(
      decoders_->Run(call, input.place.fd, std::max<uint64_t>(file_size, 1), budget, &reply, &output));
  if (request.notes != nullptr) *request.notes = reply.notes;
  for (size_t i = 0; i < field_bytes.size(); ++i) {
    EVENKEEL_RETURN_IF_ERROR(memory().Move(output, call.fields[i].offset, field_bytes[i]));
  }
  return absl::OkStatus();
}

std::unique_ptr<IsolatedProcessor> MakeIsolated(std::unique_ptr<preprocess::Processor> processor,
                                                std::unique_ptr<DecoderPool> decoders, const Job& job) {
  return std::make_unique<IsolatedProcessor>(
      std::move(processor), std::move(decoders), job.isolation,
      CpuBudget{.opened_pixels = job.limits.max_video_pixels, .most_scans = job.limits.max_jpeg_scans});
}

const IsolatedProcessor* Isolate(std::unique_ptr<preprocess::Processor>& processor,
                                 std::unique_ptr<DecoderPool> decoders, const Job& job) {
  if (decoders == nullptr) return nullptr;
  auto isolated = MakeIsolated(std::move(processor), std::move(decoders), job);
  const IsolatedProcessor* const made = isolated.get();
  processor = std::move(isolated);
  return made;
}

std::unique_ptr<preprocess::Processor> WithDecoders(std::unique_ptr<preprocess::Processor> processor,
                                                    std::unique_ptr<DecoderPool> decoders, const Job& job) {
  if (decoders == nullptr) return processor;
  return MakeIsolated(std::move(processor), std::move(decoders), job);
}

absl::StatusOr<std::unique_ptr<DecoderPool>> StartDecoders(const Job& job,
                                                           const DecoderPool::Options& options) {
  const bool has_media = !job.processor.Encoders().empty();
  if (job.isolation == Isolation::kOff || !has_media) return std::unique_ptr<DecoderPool>();
  const absl::StatusOr<std::unique_ptr<preprocess::Processor>> processor =
      preprocess::Processor::LoadMedia(job.processor, job.limits);
  if (!processor.ok()) return NameInJob(job, processor.status());
  absl::StatusOr<std::unique_ptr<DecoderPool>> decoders = DecoderPool::Start(**processor, options);
  if (decoders.ok() || absl::IsInvalidArgument(decoders.status())) return decoders;
  return AddContext(
      decoders.status(),
      "decoder processes cannot be started (--isolation off decodes in this process, without protection)");
}

}  // namespace evenkeel::isolation
