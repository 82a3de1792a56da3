// Selects the family of a checkpoint by the class names in its configuration, and implements what families
// share.
#include "preprocess/families/family.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/unknown_word.h"

namespace evenkeel::preprocess {
namespace {

enum class FamilyKind : uint8_t { kVision, kAudio };
// By which path the reference works: registry.inc.
enum class Classes : uint8_t { kBoth, kTorchvision, kRepository };

struct NamedFamily {
  FamilyKind kind;
  std::string_view type;             // without the suffix Fast or Pil
  std::string_view processor_class;  // empty: any class that has no entry of its own
  MadeFamily (*make)(ConfigFile, const FamilySource&);
  Classes classes;
  // Those of config.json that select it where no file names an image processor; the rest are empty.
  std::array<std::string_view, 8> model_types;
};

constexpr NamedFamily kFamilies[] = {
#define EVENKEEL_FAMILY(kind, type, processor_class, make, classes, ...) \
  {FamilyKind::kind, type, processor_class, make, Classes::classes, {__VA_ARGS__}},
#include "preprocess/families/registry.inc"
#undef EVENKEEL_FAMILY
};

// transformers has the same processor with these suffixes; here the job's resampler selects the arithmetic.
std::string_view WithoutVariant(std::string_view type) {
  for (std::string_view variant : {"Fast", "Pil"}) {
    if (type.ends_with(variant)) type.remove_suffix(variant.size());
  }
  return type;
}

std::string Listed(FamilyKind kind) {
  std::string out;
  for (const NamedFamily& family : kFamilies) {
    if (family.kind != kind) continue;
    absl::StrAppend(&out, out.empty() ? "" : ", ", std::string(family.type));
    if (!family.processor_class.empty()) absl::StrAppend(&out, " of ", std::string(family.processor_class));
  }
  return out;
}

// The name of an image processor; empty if the folder names none. Before transformers had image processors it
// called them feature extractors, and CLIP's first checkpoints still do.
absl::StatusOr<std::string> ImageProcessorType(ConfigFile& config, const CheckpointFolder& checkpoint) {
  constexpr std::string_view kBefore = "FeatureExtractor";
  std::string type = config.Choice("image_processor_type", "");
  if (!type.empty()) return type;
  const std::string before = config.Choice("feature_extractor_type", "");
  if (before.ends_with(kBefore)) {
    type = absl::StrCat(before.substr(0, before.size() - kBefore.size()), "ImageProcessor");
    for (const NamedFamily& family : kFamilies) {
      if (family.type == type) return type;
    }
  }
  if (!before.empty()) {
    return config.Error(
        "feature_extractor_type",
        absl::StrCat("'", before, "' is not an implemented image processor; implemented are: ",
                     Listed(FamilyKind::kVision)));
  }
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  const std::string model_type = model.Choice("model_type", "");
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  if (model_type.empty()) return "";
  for (const NamedFamily& family : kFamilies) {
    if (std::find(family.model_types.begin(), family.model_types.end(), model_type) !=
        family.model_types.end())
      return std::string(family.type);
  }
  return "";
}

constexpr std::string_view k457 = "transformers-4.57", kSlow = "slow";

// Whether AutoProcessor of transformers 4.57 chooses the torchvision class ("fast"): it does so if the file
// names that class, and always for Qwen2-VL. The processors in the list name their Pillow class themselves;
// the release is an old one, so a new family is not in the list.
bool IsFastIn457(const std::string& type, const std::string& processor_class) {
  constexpr std::string_view kOwnChoice[] = {"BlipProcessor",      "Blip2Processor",
                                             "CLIPProcessor",      "InstructBlipProcessor",
                                             "PaliGemmaProcessor", "SiglipProcessor"};
  if (std::find(std::begin(kOwnChoice), std::end(kOwnChoice), processor_class) != std::end(kOwnChoice))
    return false;
  return type.ends_with("Fast") || type == "Qwen2VLImageProcessor";
}

// The job's settings, with the resampler and the treatment of transparency of the class that AutoProcessor
// chooses in the release `like`; `slow` means the Pillow class of the followed release. A resampler that the
// job names is kept.
absl::StatusOr<ProcessorSpec> Chosen(const NamedFamily& family, const std::string& type,
                                     const std::string& processor_class, const ProcessorSpec& spec) {
  ProcessorSpec out = spec;
  if (!spec.resampler.empty()) {
    const bool of_torch = spec.resampler == "aten_u8";
    if (family.classes == Classes::kTorchvision && !of_torch) {
      return absl::InvalidArgumentError(
          "processor.resampler: transformers has this image processor for torchvision only; set it to "
          "aten_u8");
    }
    if (family.classes == Classes::kRepository && of_torch) {
      return absl::InvalidArgumentError(
          "processor.resampler: the code of this model's repository works through Pillow only; set it to "
          "pil13 or "
          "pil");
    }
  }
  if (family.classes == Classes::kRepository) {
    EVENKEEL_RETURN_IF_ERROR(CheckLike(out.like));
    if (out.resampler.empty()) out.resampler = "pil13";
    if (out.alpha.empty()) out.alpha = "drop";  // it converts to RGB before all else
    return out;
  }
  if (!spec.resampler.empty()) return out;
  if (out.like.empty()) out.like = kFollowedRelease;
  EVENKEEL_RETURN_IF_ERROR(CheckLike(out.like));
  const bool is_457 = out.like == k457;
  const bool pillow = out.like == kSlow || (is_457 && !IsFastIn457(type, processor_class));
  out.resampler = pillow && family.classes == Classes::kBoth ? "pil13" : "aten_u8";
  if (is_457 && out.alpha.empty()) out.alpha = "drop";  // docs/decisions/0008
  return out;
}

MadeFamily Make(const NamedFamily& family, ConfigFile config, const std::string& type,
                const std::string& processor_class, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(const ProcessorSpec spec, Chosen(family, type, processor_class, source.spec));
  config.Resolved("family", {std::string(family.type), std::string(family.processor_class)});
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<MediaFamily> made,
                            family.make(std::move(config), {source.checkpoint, spec, source.limits}));
  made->Keep(*source.checkpoint.consumed);
  return made;
}

// The family whose pictures code in the repository of such a model cuts, or null.
const NamedFamily* OfRepository(const std::string& model_type) {
  for (const NamedFamily& family : kFamilies) {
    if (family.classes == Classes::kRepository && family.model_types.front() == model_type) return &family;
  }
  return nullptr;
}

bool IsVisionFamily(std::string_view type) {
  return std::any_of(std::begin(kFamilies), std::end(kFamilies), [type](const NamedFamily& family) {
    return family.kind == FamilyKind::kVision && family.type == type;
  });
}

MadeFamily LoadFamily(FamilyKind kind, ConfigFile config, std::string_view key, const std::string& type,
                      std::string_view usual_class, const FamilySource& source) {
  if (type.empty()) return config.Error(key, "is missing; it must name the processor's class");
  const std::string processor_class = config.Choice("processor_class", usual_class);
  const NamedFamily* of_this_type = nullptr;
  for (const NamedFamily& family : kFamilies) {
    if (family.kind != kind || family.type != WithoutVariant(type)) continue;
    const bool same_class = family.processor_class.empty() || family.processor_class == processor_class;
    if (same_class) return Make(family, std::move(config), type, processor_class, source);
    if (of_this_type == nullptr) of_this_type = &family;
  }
  // transformers omits the class when it saves a part alone.
  if (processor_class.empty() && of_this_type != nullptr)
    return Make(*of_this_type, std::move(config), type, processor_class, source);
  return config.Error(key, absl::StrCat("'", type, "'", processor_class.empty() ? "" : " of ",
                                        processor_class, " is not implemented; these are: ", Listed(kind),
                                        ". processor.python: transformers lets Python make any other"));
}

}  // namespace

absl::Status CheckLike(const std::string& like) {
  const std::vector<std::string> known = {std::string(kFollowedRelease), std::string(k457),
                                          std::string(kSlow)};
  if (like.empty() || std::find(known.begin(), known.end(), like) != known.end()) return absl::OkStatus();
  return UnknownWord("like", like, known);
}

absl::Status MediaFamily::PlaceholdersWithAudio(const MediaFacts&, uint32_t,
                                                std::vector<PlaceholderRun>&) const {
  return absl::UnimplementedError("this family does not interleave a video with its audio");
}

absl::Status MediaFamily::Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(facts));
  runs.clear();
  runs.push_back({.rows = lengths.output_rows});
  return absl::OkStatus();
}

absl::Status MediaFamily::FillInvalid(const ItemRequest& request,
                                      std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
  std::memset(field_bytes[0].data(), 0, field_bytes[0].size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MediaFamily>> LoadVisionFamily(const std::string& folder,
                                                              const ProcessorSpec& spec,
                                                              const Limits& limits) {
  const CheckpointFolder checkpoint(folder);
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  if (const NamedFamily* own = OfRepository(model.Choice("model_type", "")); own != nullptr) {
    return Make(*own, std::move(model), std::string(own->type), "", {checkpoint, spec, limits});
  }
  absl::StatusOr<ConfigFile> config = ConfigFile::ReadImageProcessor(checkpoint);
  if (absl::IsNotFound(config.status())) {  // a video processor may have been saved alone
    EVENKEEL_ASSIGN_OR_RETURN(ConfigFile video, ConfigFile::ReadOwnVideoProcessor(checkpoint));
    const std::string type = video.Choice("video_processor_type", "");
    if (IsVisionFamily(type)) {
      return LoadFamily(FamilyKind::kVision, std::move(video), "video_processor_type", type, "",
                        {checkpoint, spec, limits});
    }
  }
  EVENKEEL_RETURN_IF_ERROR(config.status());
  EVENKEEL_ASSIGN_OR_RETURN(const std::string type, ImageProcessorType(*config, checkpoint));
  return LoadFamily(FamilyKind::kVision, *std::move(config), "image_processor_type", type, "",
                    {checkpoint, spec, limits});
}

absl::StatusOr<std::unique_ptr<MediaFamily>> LoadAudioFamily(const std::string& folder,
                                                             const ProcessorSpec& spec,
                                                             const Limits& limits) {
  const CheckpointFolder checkpoint(folder);
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadFeatureExtractor(checkpoint));
  const std::string type = config.Choice("feature_extractor_type", "");
  return LoadFamily(FamilyKind::kAudio, std::move(config), "feature_extractor_type", type, "WhisperProcessor",
                    {checkpoint, spec, limits});
}

absl::Status FinishOuter(ConfigFile& outer, std::initializer_list<NamedToken> tokens) {
  for (const NamedToken& token : tokens) outer.Pin(token.key, token.token);
  // The parts of a processor are read from their own objects; processor.chat decides about the template.
  outer.Inert({"image_processor", "video_processor", "feature_extractor", "audio_processor", "tokenizer",
               "processor_class", "auto_map", "chat_template", "transformers_version", "_name_or_path"});
  return outer.Finish();
}

absl::Status FinishOuter(const CheckpointFolder& checkpoint, std::initializer_list<NamedToken> tokens) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer, ConfigFile::ReadIfThere(checkpoint, "processor_config.json"));
  return FinishOuter(outer, tokens);
}

absl::Status FinishUnusedVideo(const CheckpointFolder& checkpoint,
                               std::initializer_list<std::string_view> keys) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile video, ConfigFile::ReadOwnVideoProcessor(checkpoint));
  IgnoreImageProcessor(video);
  if (video.Has("feature_size")) IgnoreFeatureExtractor(video);
  video.Inert({"video_processor_type", "processor_class", "auto_map", "fps", "num_frames", "do_sample_frames",
               "video_metadata", "return_metadata", "return_tensors", "pad_size", "size_divisor"});
  video.Inert(keys);
  return video.Finish();
}

uint32_t VisionPatchSize(ConfigFile& model, uint32_t fallback) {
  constexpr uint64_t kMaxPatch = 256;
  const uint64_t own = model.Side("patch_size", fallback, 1, kMaxPatch);
  return static_cast<uint32_t>(model.UintIn("vision_config", "patch_size", own, 1, kMaxPatch));
}

absl::StatusOr<uint32_t> VisionPatchSize(const CheckpointFolder& checkpoint, uint32_t fallback) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  const uint32_t patch = VisionPatchSize(model, fallback);
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  return patch;
}

absl::StatusOr<uint32_t> WholePatches(const ConfigFile& config, std::string_view key, ImageSize tile,
                                      uint32_t patch) {
  const uint32_t patches = (tile.width / patch) * (tile.height / patch);
  if (patches != 0) return patches;
  return config.Error(key, absl::StrCat("is ", tile.width, "x", tile.height, " pixels, smaller than one ",
                                        patch, "-pixel patch"));
}

absl::Status CheckFieldSizes(const std::vector<FieldSpec>& fields, const ItemLengths& lengths,
                             std::span<const std::span<std::byte>> field_bytes) {
  if (field_bytes.size() != fields.size())
    return absl::InternalError(
        absl::StrCat("expected ", fields.size(), " field buffers, got ", field_bytes.size()));
  for (size_t i = 0; i < fields.size(); ++i) {
    if (field_bytes[i].size() != fields[i].num_bytes(lengths)) {
      return absl::InternalError(absl::StrCat(fields[i].name, ": got ", field_bytes[i].size(),
                                              " bytes, expected ", fields[i].num_bytes(lengths)));
    }
  }
  return absl::OkStatus();
}

const std::vector<FieldSpec>& NoFields() {
  static const std::vector<FieldSpec>* const kNone = new std::vector<FieldSpec>();
  return *kNone;
}

}  // namespace evenkeel::preprocess
