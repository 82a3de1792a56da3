// The list of families, and functions that they share. A new family is one line here, one line in family.cc,
// one file and one test.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

// What a family is made from: the checkpoint's folder and the job's settings, with the resampler and the
// transparency that follow from `like`.
struct FamilySource {
  CheckpointFolder checkpoint;
  const ProcessorSpec& spec;
  const Limits& limits;

  // For frames of videos. Where a release decides, they are torchvision's: transformers has no other class.
  ProcessorSpec ForFrames() const {
    ProcessorSpec out = spec;
    if (!out.like.empty()) out.resampler = "aten_u8";
    return out;
  }
};
using MadeFamily = absl::StatusOr<std::unique_ptr<MediaFamily>>;

// `config`: the image processor's or feature extractor's configuration; each family reads other files as
// needed.
MadeFamily MakeAudioFlamingo3(ConfigFile config, const FamilySource& source);   // windowed_speech.cc
MadeFamily MakeAyaVision(ConfigFile config, const FamilySource& source);        // aya_vision.cc
MadeFamily MakeBlip(ConfigFile config, const FamilySource& source);             // blip.cc
MadeFamily MakeClip(ConfigFile config, const FamilySource& source);             // clip.cc
MadeFamily MakeCohere2Vision(ConfigFile config, const FamilySource& source);    // cohere2_vision.cc
MadeFamily MakeConvNext(ConfigFile config, const FamilySource& source);         // convnext.cc
MadeFamily MakeDeit(ConfigFile config, const FamilySource& source);             // deit.cc
MadeFamily MakeDinov3(ConfigFile config, const FamilySource& source);           // dinov3.cc
MadeFamily MakeGemma3(ConfigFile config, const FamilySource& source);           // gemma3.cc
MadeFamily MakeGemma3n(ConfigFile config, const FamilySource& source);          // gemma3n.cc
MadeFamily MakeGlm4v(ConfigFile config, const FamilySource& source);            // glm4v.cc
MadeFamily MakeGlmAsr(ConfigFile config, const FamilySource& source);           // windowed_speech.cc
MadeFamily MakeIdefics3(ConfigFile config, const FamilySource& source);         // idefics3.cc
MadeFamily MakeInternVl(ConfigFile config, const FamilySource& source);         // internvl.cc
MadeFamily MakeLlama4(ConfigFile config, const FamilySource& source);           // llama4.cc
MadeFamily MakeLlava(ConfigFile config, const FamilySource& source);            // llava.cc
MadeFamily MakeLlavaNext(ConfigFile config, const FamilySource& source);        // llava_next.cc
MadeFamily MakeLlavaOneVision(ConfigFile config, const FamilySource& source);   // llava_onevision.cc
MadeFamily MakeMllama(ConfigFile config, const FamilySource& source);           // mllama.cc
MadeFamily MakePaliGemma(ConfigFile config, const FamilySource& source);        // paligemma.cc
MadeFamily MakePerceptionLm(ConfigFile config, const FamilySource& source);     // perception_lm.cc
MadeFamily MakePixtral(ConfigFile config, const FamilySource& source);          // pixtral.cc
MadeFamily MakeQwen2Vl(ConfigFile config, const FamilySource& source);          // qwen2_vl.cc
MadeFamily MakeQwen3Vl(ConfigFile config, const FamilySource& source);          // qwen3_vl.cc
MadeFamily MakeSiglip(ConfigFile config, const FamilySource& source);           // siglip.cc
MadeFamily MakeQwen2Audio(ConfigFile config, const FamilySource& source);       // qwen2_audio.cc
MadeFamily MakeQwen2Omni(ConfigFile config, const FamilySource& source);        // qwen_omni.cc
MadeFamily MakeQwen3Omni(ConfigFile config, const FamilySource& source);        // qwen_omni.cc
MadeFamily MakeQwen3Asr(ConfigFile config, const FamilySource& source);         // qwen3_asr.cc
MadeFamily MakeQwen2OmniVision(ConfigFile config, const FamilySource& source);  // qwen_omni.cc
MadeFamily MakeQwen3OmniVision(ConfigFile config, const FamilySource& source);  // qwen_omni.cc
MadeFamily MakeVit(ConfigFile config, const FamilySource& source);              // vit.cc
MadeFamily MakeVoxtral(ConfigFile config, const FamilySource& source);          // windowed_speech.cc
MadeFamily MakeWhisper(ConfigFile config, const FamilySource& source);          // whisper.cc

// Finishes processor_config.json: keys that the family did not read must have no effect here. `tokens`: keys
// that name a token ("image_token"), with their only implemented values.
struct NamedToken {
  std::string_view key;
  std::string_view token;
};
absl::Status FinishOuter(ConfigFile& outer, std::initializer_list<NamedToken> tokens = {});
// The same for a family that reads nothing from the file, which need not exist.
absl::Status FinishOuter(const CheckpointFolder& checkpoint, std::initializer_list<NamedToken> tokens = {});

// For a family that refuses videos: the keys of the folder's video processor must be known nevertheless.
// `keys`: those that this family's video processor has in addition to the common ones.
absl::Status FinishUnusedVideo(const CheckpointFolder& checkpoint,
                               std::initializer_list<std::string_view> keys);

// The side of the vision encoder's patches in pixels from the model's config.json, or `fallback`; used for
// the encoder's cost.
absl::StatusOr<uint32_t> VisionPatchSize(ConfigFile& model, uint32_t fallback);
absl::StatusOr<uint32_t> VisionPatchSize(const CheckpointFolder& checkpoint, uint32_t fallback);

// Internal if the caller's spans do not have the sizes of the fields.
absl::Status CheckFieldSizes(const std::vector<FieldSpec>& fields, const ItemLengths& lengths,
                             std::span<const std::span<std::byte>> field_bytes);

}  // namespace evenkeel::preprocess
