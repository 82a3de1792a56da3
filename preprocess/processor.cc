#include "preprocess/processor.h"

#include <new>
#include <utility>

#include "core/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/families/family.h"
#include "preprocess/image/picture.h"
#include "preprocess/text/sequence_builder.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {

uint64_t FieldSpec::num_bytes(const ItemLengths& lengths) const {
  uint64_t bytes = extent(lengths) * DTypeBytes(dtype);
  for (uint64_t dim : trailing) bytes *= dim;
  return bytes;
}

namespace {

absl::StatusOr<MediaFacts> ProbeImage(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits, const ColourOptions& colour) {
  EVENKEEL_ASSIGN_OR_RETURN(ImageHeader header, ReadImageHeader(suffix, bytes, limits, colour));
  MediaFacts facts;
  facts.medium = Medium::kImage;
  facts.width = header.width;
  facts.height = header.height;
  facts.rotation = header.rotation();
  return facts;
}

// The families of the checkpoint's folders, and its text.
class FolderProcessor final : public Processor {
 public:
  FolderProcessor(std::unique_ptr<MediaFamily> vision, std::unique_ptr<MediaFamily> audio,
                  std::unique_ptr<SequenceBuilder> text, const Limits& limits, const ColourOptions& colour)
      : vision_(std::move(vision)),
        audio_(std::move(audio)),
        text_(std::move(text)),
        limits_(limits),
        colour_(colour) {
    CanonicalText canonical("evenkeel processor 1");
    if (vision_ != nullptr) vision_->AddTo(canonical);
    if (audio_ != nullptr) audio_->AddTo(canonical);
    if (text_ != nullptr) text_->AddTo(canonical);
    digest_ = canonical.digest();
  }

  absl::StatusOr<MediaFacts> Probe(Medium medium, std::string_view suffix,
                                   std::span<const std::byte> bytes) const override {
    switch (medium) {
      case Medium::kImage:
        return ProbeImage(suffix, bytes, limits_, colour_);
      case Medium::kVideo:
        return ProbeVideo(suffix, bytes, limits_);
      case Medium::kAudio:
        return ProbeAudio(suffix, bytes, limits_);
      case Medium::kText:
        break;
    }
    return absl::InvalidArgumentError("text is not an item");
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(facts.medium));
    return family->Measure(facts);
  }
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const MediaFacts> facts) const override {
    EVENKEEL_RETURN_IF_ERROR(NeedsText());
    EVENKEEL_ASSIGN_OR_RETURN(std::span<const ItemPlaceholders> placeholders, PlaceholdersOf(items, facts));
    return text_->Measure(conversation, items, placeholders);
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
    try {
      return family->Produce(request, field_bytes);
    } catch (const std::bad_alloc&) {
      return absl::InternalError("no memory for the item");  // of this machine, not of the item
    }
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
  absl::Status BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                             std::span<const MediaFacts> facts, Sequence& out) const override {
    EVENKEEL_RETURN_IF_ERROR(NeedsText());
    EVENKEEL_ASSIGN_OR_RETURN(std::span<const ItemPlaceholders> placeholders, PlaceholdersOf(items, facts));
    return text_->Build(conversation, items, placeholders, out);
  }
  int64_t pad_token() const override { return text_ == nullptr ? 0 : text_->pad_token(); }
  bool has_grid_positions(Medium medium) const override {
    return text_ == nullptr || text_->has_grid_positions(medium);
  }

 private:
  absl::Status NeedsText() const {
    if (text_ != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError("this processor was loaded without a tokenizer");
  }
  // Of memory that the thread keeps: valid until its next call.
  absl::StatusOr<std::span<const ItemPlaceholders>> PlaceholdersOf(std::span<const SampleItem> items,
                                                                   std::span<const MediaFacts> facts) const {
    if (facts.size() != items.size()) return absl::InternalError("facts and items differ in number");
    thread_local std::vector<ItemPlaceholders> placeholders;  // never fewer, so that each keeps its memory
    if (placeholders.size() < items.size()) placeholders.resize(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(items[i].medium));
      EVENKEEL_RETURN_IF_ERROR(family->Placeholders(facts[i], placeholders[i]));
    }
    return std::span<const ItemPlaceholders>(placeholders).first(items.size());
  }
  absl::StatusOr<const MediaFamily*> FamilyOf(Medium medium) const {
    const MediaFamily* family = medium == Medium::kAudio ? audio_.get() : vision_.get();
    if (family == nullptr || medium == Medium::kText) {
      return absl::InvalidArgumentError(
          absl::StrCat("no phase of the job takes ", std::string(MediumName(medium)), " items; add a phase '",
                       std::string(PhaseName(PhaseOf(medium))), "' to the job's phases"));
    }
    return family;
  }

  std::unique_ptr<MediaFamily> vision_;    // null where the job has no such phase
  std::unique_ptr<MediaFamily> audio_;     // likewise
  std::unique_ptr<SequenceBuilder> text_;  // null: loaded without a tokenizer
  Limits limits_;
  ColourOptions colour_;
  Digest digest_;
};

SequenceStyle StyleOf(const MediaFamily* vision, const MediaFamily* audio) {
  SequenceStyle style;
  for (const MediaFamily* family : {vision, audio}) {
    if (family == nullptr) continue;
    for (MediumStyle& medium : family->styles()) style.media.push_back(std::move(medium));
  }
  if (vision != nullptr) {
    style.merge_size = vision->merge_size();
    style.tokens_per_second = vision->tokens_per_second();
    style.after_time = vision->after_time();
  }
  return style;
}

absl::StatusOr<std::unique_ptr<Processor>> LoadFolders(const ProcessorSpec& spec, const Limits& limits,
                                                       bool with_text) {
  std::unique_ptr<MediaFamily> vision;
  std::unique_ptr<MediaFamily> audio;
  std::unique_ptr<SequenceBuilder> text;
  if (!spec.vision.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(vision, LoadVisionFamily(spec.vision, spec, limits));
  }
  if (!spec.audio.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(audio, LoadAudioFamily(spec.audio, spec, limits));
  }
  if (with_text) {
    EVENKEEL_ASSIGN_OR_RETURN(text, SequenceBuilder::Load(spec, limits, StyleOf(vision.get(), audio.get())));
  }
  EVENKEEL_ASSIGN_OR_RETURN(PictureOptions pictures, PictureOptionsOf(spec));
  return std::make_unique<FolderProcessor>(std::move(vision), std::move(audio), std::move(text), limits,
                                           pictures.colour);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Processor>> Processor::LoadMedia(const ProcessorSpec& spec,
                                                                const Limits& limits) {
  return LoadFolders(spec, limits, /*with_text=*/false);
}

absl::StatusOr<std::unique_ptr<Processor>> Processor::Load(const ProcessorSpec& spec, const Limits& limits) {
  return LoadFolders(spec, limits, /*with_text=*/true);
}

absl::StatusOr<StoredBytes> Processor::AllocateStored(Medium, uint64_t num_bytes) const {
  std::shared_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(num_bytes);
  std::byte* const begin = bytes.get();
  return StoredBytes{.owner = std::move(bytes), .bytes = {begin, num_bytes}};
}

}  // namespace evenkeel::preprocess
