// The families' functions, which registry.inc lists, and functions that they share.
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
#include "preprocess/resize/resize.h"

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

// The families' functions. `config`: the image processor's or feature extractor's configuration; each family reads other
// files as needed.
#define EVENKEEL_FAMILY(kind, type, processor_class, make, ...) \
  MadeFamily make(ConfigFile config, const FamilySource& source);
#include "preprocess/families/registry.inc"
#undef EVENKEEL_FAMILY

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
// the encoder's cost. InvalidArgument: a wrong value in the file, which the first leaves to Finish().
uint32_t VisionPatchSize(ConfigFile& model, uint32_t fallback);
absl::StatusOr<uint32_t> VisionPatchSize(const CheckpointFolder& checkpoint, uint32_t fallback);

// The number of whole patches of a tile, for the encoder's cost. InvalidArgument, about `key`: none.
absl::StatusOr<uint32_t> WholePatches(const ConfigFile& config, std::string_view key, ImageSize tile,
                                      uint32_t patch);

// Internal if the caller's spans do not have the sizes of the fields.
absl::Status CheckFieldSizes(const std::vector<FieldSpec>& fields, const ItemLengths& lengths,
                             std::span<const std::span<std::byte>> field_bytes);

// The fields of a medium that a family does not accept.
const std::vector<FieldSpec>& NoFields();

}  // namespace evenkeel::preprocess
