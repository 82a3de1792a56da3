#include "preprocess/processor.h"

#include <utility>

#include "core/status.h"
#include "preprocess/family.h"

namespace evenkeel {

uint64_t FieldSpec::num_bytes(const ItemLengths& lengths) const {
  uint64_t bytes = extent(lengths) * DTypeBytes(dtype);
  for (uint64_t dim : trailing) bytes *= dim;
  return bytes;
}

namespace {

// The families of the checkpoint's folders, and its text.
class FolderProcessor final : public Processor {
 public:
  FolderProcessor(std::unique_ptr<MediaFamily> vision, std::unique_ptr<MediaFamily> audio, Digest digest)
      : vision_(std::move(vision)), audio_(std::move(audio)), digest_(digest) {}

  absl::StatusOr<MediaFacts> Probe(Medium, std::string_view, std::span<const std::byte>) const override {
    return absl::UnimplementedError("Probe");
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(facts.medium));
    return family->Measure(facts);
  }
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation&,
                                                  std::span<const SampleItem>) const override {
    return absl::UnimplementedError("MeasureSequence");
  }
  Digest digest() const override { return digest_; }

  const std::vector<FieldSpec>& fields(Medium medium) const override {
    static const std::vector<FieldSpec>* const kNone = new std::vector<FieldSpec>();
    absl::StatusOr<const MediaFamily*> family = FamilyOf(medium);
    return family.ok() ? (*family)->fields(medium) : *kNone;
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(request.medium));
    return family->Produce(request, field_bytes);
  }
  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(request.medium));
    return family->FillInvalid(request, field_bytes);
  }
  MediaFacts DummyFacts(Phase phase) const override {
    if (phase == Phase::kVision && vision_ != nullptr) return vision_->DummyFacts();
    if (phase == Phase::kAudio && audio_ != nullptr) return audio_->DummyFacts();
    return MediaFacts{};
  }
  absl::StatusOr<Sequence> BuildSequence(const Conversation&, std::span<const SampleItem>,
                                         std::span<const MediaFacts>) const override {
    return absl::UnimplementedError("BuildSequence");
  }
  int64_t pad_token() const override { return 0; }

 private:
  absl::StatusOr<const MediaFamily*> FamilyOf(Medium medium) const {
    const MediaFamily* family = medium == Medium::kAudio ? audio_.get() : vision_.get();
    if (family == nullptr || medium == Medium::kText) {
      return absl::InvalidArgumentError(absl::StrCat("the job's processor has no ",
                                                     std::string(MediumName(medium)), " items; set processor.",
                                                     std::string(PhaseName(PhaseOf(medium)))));
    }
    return family;
  }

  std::unique_ptr<MediaFamily> vision_;
  std::unique_ptr<MediaFamily> audio_;
  Digest digest_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Processor>> Processor::LoadMedia(const ProcessorSpec& spec, const Limits& limits) {
  std::unique_ptr<MediaFamily> vision;
  std::unique_ptr<MediaFamily> audio;
  CanonicalText text("evenkeel processor 1");
  if (!spec.vision.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(vision, LoadVisionFamily(spec.vision, spec, limits));
    vision->AddTo(text);
  }
  if (!spec.audio.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(audio, LoadAudioFamily(spec.audio, spec, limits));
    audio->AddTo(text);
  }
  return std::make_unique<FolderProcessor>(std::move(vision), std::move(audio), text.digest());
}

absl::StatusOr<std::unique_ptr<Processor>> Processor::Load(const ProcessorSpec& spec, const Limits& limits) {
  return LoadMedia(spec, limits);
}

}  // namespace evenkeel
