// A processor made of the families of the job's encoder phases.
#include "preprocess/processor.h"

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/families/audio_in_video.h"
#include "preprocess/families/family.h"
#include "preprocess/families/python_family.h"
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

// The audio of a video is as large as the video, which has a limit of its own.
Limits OfAudioInVideo(Limits limits) {
  limits.max_audio_bytes = std::max(limits.max_audio_bytes, limits.max_video_bytes);
  return limits;
}

// What encodes items in one phase of the job: an image processor, a feature extractor, or both.
struct Encoder {
  Phase phase;
  std::unique_ptr<MediaFamily> vision;  // null where the phase encodes neither images nor videos
  std::unique_ptr<MediaFamily> audio;   // likewise

  const MediaFamily* FamilyOf(Medium medium) const {
    return medium == Medium::kAudio ? audio.get() : vision.get();
  }
};

void AddFamily(const MediaFamily* family, std::string_view media, std::string_view all_media,
               CanonicalText& text) {
  if (family == nullptr) return;
  if (media != all_media) text.Add("media", media);
  family->AddTo(text);
}

// A phase that encodes all media of its processors adds no line for them.
void AddTo(const Encoder& encoder, CanonicalText& text) {
  std::string pictures, sound;
  for (Medium medium : kItemMedia) {
    if (encoder.phase.takes(medium)) (medium == Medium::kAudio ? sound : pictures) += MediumName(medium);
  }
  if (encoder.phase.is_generator()) text.Add("kind", std::string_view("generator"));
  AddFamily(encoder.vision.get(), pictures, "imagevideo", text);
  AddFamily(encoder.audio.get(), sound, "audio", text);
}

// The families of the checkpoints' folders, and its text.
class FolderProcessor final : public Processor {
 public:
  FolderProcessor(std::vector<Encoder> encoders, std::unique_ptr<SequenceBuilder> text, const Limits& limits,
                  const ColourOptions& colour, FrameLoader frames, bool is_python, bool use_audio_in_video)
      : encoders_(std::move(encoders)),
        text_(std::move(text)),
        limits_(limits),
        colour_(colour),
        frames_(frames),
        is_python_(is_python),
        use_audio_in_video_(use_audio_in_video) {
    for (const Encoder& encoder : encoders_) {
      for (Medium medium : kItemMedia) {
        const auto number = static_cast<size_t>(medium);
        if (encoder.phase.encodes(medium)) towers_[number].push_back(encoder.FamilyOf(medium));
        if (encoder.phase.generates(medium)) generators_[number] = encoder.FamilyOf(medium);
      }
    }
    CanonicalText canonical("evenkeel processor 1");
    for (const Encoder& encoder : encoders_) AddTo(encoder, canonical);
    if (!fields(Medium::kVideo).empty()) canonical.Add("video.frames", FrameLoaderName(frames_));
    if (use_audio_in_video_) canonical.Add("video.audio", uint64_t{1});
    if (text_ != nullptr) text_->AddTo(canonical);
    digest_ = canonical.digest();
  }

  absl::StatusOr<MediaFacts> Probe(Medium medium, std::string_view suffix,
                                   std::span<const std::byte> bytes) const override {
    switch (medium) {
      case Medium::kImage:
        return ProbeImage(suffix, bytes, limits_, colour_);
      case Medium::kVideo:
        return ProbeVideoAndAudio(suffix, bytes);
      case Medium::kAudio:
        return ProbeAudio(suffix, bytes, limits_);
      case Medium::kText:
        break;
    }
    return absl::InvalidArgumentError("text is not an item");
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override { return MeasureIn(0, facts); }
  uint8_t num_towers(Medium medium) const override {
    return static_cast<uint8_t>(towers_[static_cast<size_t>(medium)].size());
  }
  bool generates(Medium medium) const override { return generators_[static_cast<size_t>(medium)] != nullptr; }
  absl::StatusOr<ItemLengths> MeasureIn(uint8_t tower, const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(facts.medium, tower));
    return family->Measure(facts);
  }
  bool measures_stored(Medium medium) const override {
    absl::StatusOr<const MediaFamily*> family = FamilyOf(medium, 0);
    return family.ok() && (*family)->measures_stored(medium);
  }
  absl::StatusOr<ItemLengths> MeasureStored(const MediaFacts& facts, std::string_view suffix,
                                            std::span<const std::byte> bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(facts.medium, 0));
    return family->MeasureStored(facts, suffix, bytes);
  }
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const MediaFacts> facts) const override {
    EVENKEEL_RETURN_IF_ERROR(NeedsText());
    EVENKEEL_ASSIGN_OR_RETURN(const Written& written, WrittenOf(items, facts));
    return text_->Measure(conversation, written.items, written.used());
  }
  Digest digest() const override { return digest_; }

  const std::vector<FieldSpec>& fields(Medium medium) const override { return FieldsIn(0, medium); }
  const std::vector<FieldSpec>& FieldsIn(uint8_t tower, Medium medium) const override {
    static const std::vector<FieldSpec>* const kNone = new std::vector<FieldSpec>();
    absl::StatusOr<const MediaFamily*> family = FamilyOf(medium, tower);
    return family.ok() ? (*family)->fields(medium) : *kNone;
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(request.medium, request.tower));
    ItemRequest of_loader = request;
    of_loader.frames = frames_;
    try {
      return family->Produce(of_loader, field_bytes);
    } catch (const std::bad_alloc&) {
      return absl::InternalError("no memory for the item");  // of this machine, not of the item
    }
  }
  bool is_made_by_python(Medium) const override { return is_python_; }
  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(request.medium, request.tower));
    return family->FillInvalid(request, field_bytes);
  }
  MediaFacts DummyFacts(const Phase& phase) const override {
    for (const Encoder& encoder : encoders_) {
      if (encoder.phase != phase) continue;
      MediaFacts facts = (encoder.vision != nullptr ? encoder.vision : encoder.audio)->DummyFacts();
      return phase.takes(facts.medium) ? facts : AsVideo(facts);
    }
    return MediaFacts{};
  }
  absl::Status BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                             std::span<const MediaFacts> facts, Sequence& out) const override {
    EVENKEEL_RETURN_IF_ERROR(NeedsText());
    EVENKEEL_ASSIGN_OR_RETURN(const Written& written, WrittenOf(items, facts));
    return text_->Build(conversation, written.items, written.used(), out);
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
  // A short video of the size, for a phase that encodes no images.
  static MediaFacts AsVideo(MediaFacts facts) {
    facts.medium = Medium::kVideo;
    facts.num_frames = 8;
    facts.fps_num = 2;
    facts.fps_den = 1;
    facts.duration_us = 4'000'000;
    return facts;
  }
  absl::StatusOr<MediaFacts> ProbeVideoAndAudio(std::string_view suffix,
                                                std::span<const std::byte> bytes) const {
    EVENKEEL_ASSIGN_OR_RETURN(MediaFacts facts, ProbeVideo(suffix, bytes, limits_, frames_));
    if (!use_audio_in_video_) return facts;
    EVENKEEL_ASSIGN_OR_RETURN(const std::optional<MediaFacts> audio,
                              ProbeAudioOfVideo(suffix, bytes, OfAudioInVideo(limits_)));
    if (!audio.has_value()) return facts;
    facts.sample_rate = audio->sample_rate;
    facts.channels = audio->channels;
    facts.num_samples = audio->num_samples;
    return facts;
  }

  // The media as the conversation names them: a video and its audio are one.
  struct Written {
    std::vector<SampleItem> items;
    std::vector<ItemPlaceholders> placeholders;  // never fewer than ever used, so that each keeps its memory

    std::span<const ItemPlaceholders> used() const { return std::span(placeholders).first(items.size()); }
  };

  // Of memory that the thread keeps: valid until its next call. `facts`: one for every medium that the sample stores.
  absl::StatusOr<std::reference_wrapper<const Written>> WrittenOf(std::span<const SampleItem> items,
                                                                  std::span<const MediaFacts> facts) const {
    thread_local Written written;
    written.items.clear();
    std::array<uint32_t, 4> numbers{};  // of the next item, by medium
    for (const SampleItem& item : items) {
      if (item.of_video) {
        if (written.items.empty()) return absl::InternalError("the audio of a video follows no video");
        EVENKEEL_RETURN_IF_ERROR(AddAudio(item, facts[written.items.size() - 1], written));
        continue;
      }
      const size_t i = written.items.size();
      if (i == facts.size()) return absl::InternalError("facts and items differ in number");
      written.items.push_back(item);
      if (written.placeholders.size() == i) written.placeholders.emplace_back();
      ItemPlaceholders& runs = written.placeholders[i];
      EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(item.medium, item.tower));
      EVENKEEL_RETURN_IF_ERROR(family->PlannedPlaceholders(facts[i], item.lengths, runs));
      uint32_t& number = numbers[static_cast<size_t>(item.medium)];
      for (PlaceholderRun& run : runs) {
        if (run.numbered) absl::StrAppend(&run.text, number);
      }
      // Each sequence of a preference pair is numbered by itself, and has as many pictures as the facts say.
      if (++number == facts[i].pictures_in_sample) number = 0;
    }
    if (written.items.size() != facts.size()) return absl::InternalError("facts and items differ in number");
    return std::cref(written);
  }

  // Adds the audio of the last item, a video, to its placeholders.
  absl::Status AddAudio(const SampleItem& audio, const MediaFacts& facts, Written& written) const {
    SampleItem& video = written.items.back();
    EVENKEEL_ASSIGN_OR_RETURN(const MediaFamily* family, FamilyOf(video.medium, video.tower));
    EVENKEEL_RETURN_IF_ERROR(family->PlaceholdersWithAudio(facts, audio.lengths.output_rows,
                                                           written.placeholders[written.items.size() - 1]));
    video.lengths.output_rows += audio.lengths.output_rows;
    return absl::OkStatus();
  }

  absl::StatusOr<const MediaFamily*> FamilyOf(Medium medium, uint8_t tower) const {
    const std::vector<const MediaFamily*>& towers = towers_[static_cast<size_t>(medium)];
    if (tower < towers.size()) return towers[tower];
    if (tower == kTargetTower && generates(medium)) return generators_[static_cast<size_t>(medium)];
    const std::string name(MediumName(medium));
    if (tower > 0) {
      return absl::InternalError(
          absl::StrCat(towers.size(), " phases encode ", name, " items, and tower ", tower, " is asked for"));
    }
    const std::string phase = medium == Medium::kAudio ? "audio" : "vision";
    return absl::InvalidArgumentError(absl::StrCat("no phase of the job takes ", name,
                                                   " items; add a phase '", phase, "' to the job's phases"));
  }

  std::vector<Encoder> encoders_;                          // in the order of the job's phases
  std::array<std::vector<const MediaFamily*>, 4> towers_;  // by medium: of the phases that encode it
  std::array<const MediaFamily*, 4> generators_{};         // by medium; null: no phase generates it
  std::unique_ptr<SequenceBuilder> text_;                  // null: loaded without a tokenizer
  Limits limits_;
  ColourOptions colour_;
  FrameLoader frames_;
  bool is_python_;  // all items are made by Python processes
  bool use_audio_in_video_;
  Digest digest_;
};

// The first phase that takes a medium decides how its items stand in the sequence. Generators follow all encoders.
const MediaFamily* FirstOf(const std::vector<Encoder>& encoders, Medium medium) {
  for (const Encoder& encoder : encoders) {
    if (encoder.phase.takes(medium)) return encoder.FamilyOf(medium);
  }
  return nullptr;
}

std::optional<MediumStyle> StyleIn(const MediaFamily& family, Medium medium) {
  for (MediumStyle& style : family.styles()) {
    if (style.medium == medium) return std::move(style);
  }
  return std::nullopt;
}

// One style writes all items of a medium, so targets must stand in a sequence as other items of their medium do.
absl::Status CheckGenerators(const std::vector<Encoder>& encoders) {
  for (const Encoder& encoder : encoders) {
    for (Medium medium : kItemMedia) {
      if (!encoder.phase.generates(medium)) continue;
      const std::string name(encoder.phase.name()), items(MediumName(medium));
      const MediaFamily &own = *encoder.FamilyOf(medium), &first = *FirstOf(encoders, medium);
      const std::optional<MediumStyle> style = StyleIn(own, medium);
      if (!style.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("phase ", name, ": its processor has no placeholders for ", items,
                         " items in a sequence, so no hidden states can be sent to it; take a processor that "
                         "writes them"));
      }
      if (StyleIn(first, medium) == style && first.merge_size() == own.merge_size()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "phase ", name, ": its processor writes ", items, " items into a sequence otherwise than ",
          "the first phase that encodes them; take a processor of the same family"));
    }
  }
  return absl::OkStatus();
}

// The rows of a video and of its audio alternate in a sequence, so each must be the only kind of its phase to be in order.
absl::Status CheckAudioInVideo(const std::vector<Encoder>& encoders) {
  constexpr char kKey[] = "processor.use_audio_in_video";
  const MediaFamily *video = FirstOf(encoders, Medium::kVideo), *audio = FirstOf(encoders, Medium::kAudio);
  if (video == nullptr || audio == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kKey, ": no phase of the job encodes ",
                                                   video == nullptr ? "video" : "audio",
                                                   "; add one, or leave the key out"));
  }
  if (video->audio_in_video() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        kKey,
        ": only the processors of Qwen2.5-Omni and Qwen3-Omni place a video's audio among the video, and "
        "the folder has another; leave the key out"));
  }
  for (const Encoder& encoder : encoders) {
    const bool mixes = encoder.phase.takes(Medium::kVideo) && encoder.phase.takes(Medium::kAudio);
    if (!mixes && !encoder.phase.is_generator()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(kKey, ": phase ", std::string(encoder.phase.name()),
                     mixes ? " encodes videos and audio; give each a phase of its own"
                           : " is a generator, with which it is not implemented"));
  }
  return absl::OkStatus();
}

SequenceStyle StyleOf(const std::vector<Encoder>& encoders) {
  SequenceStyle style;
  for (const Encoder& encoder : encoders) {
    for (const MediaFamily* family : {encoder.vision.get(), encoder.audio.get()}) {
      if (family == nullptr) continue;
      for (MediumStyle& medium : family->styles()) {
        if (FirstOf(encoders, medium.medium) == family) style.media.push_back(std::move(medium));
      }
    }
  }
  const MediaFamily* vision = FirstOf(encoders, Medium::kImage);
  if (vision == nullptr) vision = FirstOf(encoders, Medium::kVideo);
  if (vision != nullptr) {
    style.merge_size = vision->merge_size();
    style.tokens_per_second = vision->tokens_per_second();
    style.after_time = vision->after_time();
    const AudioInVideo* audio = vision->audio_in_video();
    style.shares_end_positions = audio != nullptr && audio->shares_end_positions;
  }
  return style;
}

// What the job gives in place of the checkpoint's values is for the phase that has the placeholders: a second
// tower of fixed size, say, has neither bounds on pixels nor a rule for frames.
ProcessorSpec OfFurtherTower(ProcessorSpec spec) {
  const ProcessorSpec not_given;
  spec.min_pixels = spec.max_pixels = not_given.min_pixels;
  spec.fps = not_given.fps;
  spec.min_frames = spec.max_frames = not_given.min_frames;
  spec.video_min_pixels = spec.video_max_pixels = not_given.video_min_pixels;
  spec.frame_rule = not_given.frame_rule;
  return spec;
}

absl::StatusOr<std::vector<Encoder>> MakePythonEncoders(const ProcessorSpec& spec,
                                                        const std::shared_ptr<PythonProcesses>& python) {
  std::vector<Encoder> encoders;
  for (const EncoderSpec& given : spec.Encoders()) {
    Encoder& encoder = encoders.emplace_back(Encoder{.phase = given.phase});
    std::vector<Medium> pictures, sound;
    for (Medium medium : kItemMedia) {
      if (given.phase.takes(medium)) (medium == Medium::kAudio ? sound : pictures).push_back(medium);
    }
    // A phase may encode videos that neither the data nor the Python code has.
    if (python != nullptr && pictures.size() == 2) {
      std::vector<Medium> taken = pictures;
      std::erase_if(taken, [&](Medium medium) {
        return std::none_of(python->description().media.begin(), python->description().media.end(),
                            [&](const PythonMedium& described) { return described.medium == medium; });
      });
      if (!taken.empty()) pictures = std::move(taken);
    }
    if (given.phase.takes(Medium::kImage) || given.phase.takes(Medium::kVideo)) {
      EVENKEEL_ASSIGN_OR_RETURN(encoder.vision, MakePythonFamily(python, pictures));
    }
    if (!sound.empty()) {
      EVENKEEL_ASSIGN_OR_RETURN(encoder.audio, MakePythonFamily(python, sound));
    }
  }
  return encoders;
}

absl::StatusOr<std::vector<Encoder>> LoadEncoders(const ProcessorSpec& spec, const Limits& limits,
                                                  const std::shared_ptr<PythonProcesses>& python) {
  if (!spec.python.empty()) return MakePythonEncoders(spec, python);
  const ProcessorSpec further = OfFurtherTower(spec);
  std::vector<Encoder> encoders;
  bool first = true;  // that takes images or videos
  for (const EncoderSpec& given : spec.Encoders()) {
    Encoder& encoder = encoders.emplace_back(Encoder{.phase = given.phase});
    if (given.phase.takes(Medium::kImage) || given.phase.takes(Medium::kVideo)) {
      EVENKEEL_ASSIGN_OR_RETURN(encoder.vision,
                                LoadVisionFamily(given.folder, first ? spec : further, limits));
      first = false;
    }
    if (given.phase.takes(Medium::kAudio)) {
      EVENKEEL_ASSIGN_OR_RETURN(encoder.audio, LoadAudioFamily(given.folder, spec, limits));
    }
  }
  return encoders;
}

absl::StatusOr<std::unique_ptr<Processor>> LoadFolders(const ProcessorSpec& spec, const Limits& limits,
                                                       const std::shared_ptr<PythonProcesses>& python,
                                                       bool with_text) {
  if (with_text && !spec.python.empty() && python == nullptr) {
    return absl::FailedPreconditionError(
        "processor.python: this program starts no Python processes, which the job's processor needs");
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<Encoder> encoders, LoadEncoders(spec, limits, python));
  std::unique_ptr<SequenceBuilder> text;
  if (with_text) {
    EVENKEEL_RETURN_IF_ERROR(CheckGenerators(encoders));
    if (spec.use_audio_in_video) EVENKEEL_RETURN_IF_ERROR(CheckAudioInVideo(encoders));
    EVENKEEL_ASSIGN_OR_RETURN(text, SequenceBuilder::Load(spec, limits, StyleOf(encoders), python));
  }
  EVENKEEL_ASSIGN_OR_RETURN(PictureOptions pictures, PictureOptionsOf(spec));
  EVENKEEL_ASSIGN_OR_RETURN(const FrameLoader frames, FrameLoaderOf(spec.frames));
  return std::make_unique<FolderProcessor>(std::move(encoders), std::move(text), limits, pictures.colour,
                                           frames, !spec.python.empty(), spec.use_audio_in_video);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Processor>> Processor::LoadMedia(const ProcessorSpec& spec,
                                                                const Limits& limits,
                                                                std::shared_ptr<PythonProcesses> python) {
  return LoadFolders(spec, limits, python, /*with_text=*/false);
}

absl::StatusOr<std::unique_ptr<Processor>> Processor::Load(const ProcessorSpec& spec, const Limits& limits,
                                                           std::shared_ptr<PythonProcesses> python) {
  return LoadFolders(spec, limits, python, /*with_text=*/true);
}

const std::vector<FieldSpec>& Processor::FieldsIn(uint8_t tower, Medium medium) const {
  static const std::vector<FieldSpec>* const kNone = new std::vector<FieldSpec>();
  return tower == 0 ? fields(medium) : *kNone;
}

absl::StatusOr<StoredBytes> Processor::AllocateStored(Medium, uint64_t num_bytes) const {
  std::shared_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(num_bytes);
  std::byte* const begin = bytes.get();
  return StoredBytes{.owner = std::move(bytes), .bytes = {begin, num_bytes}};
}

}  // namespace evenkeel::preprocess
