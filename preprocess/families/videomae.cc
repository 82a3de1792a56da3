// VideoMAE, TimeSformer: encoders of clips alone. Every frame is resized and cropped to one size; a patch spans one
// frame or several. Pictures are refused, since their models take none.
//
// The rules are those of transformers' models/videomae/{image_processing,video_processing}_videomae.py. The first, which
// takes lists of frames, is the one of published checkpoints.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/frame_tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr FixedSizeClass kClips = {kHalves, kHalves, {.shortest_edge = 224}, 224, ResizeFilter::kBilinear};

constexpr uint32_t kMostFrames = 1 << 20;

// Takes no pictures. A dummy is a clip.
class NoPictures final : public MediaFamily {
 public:
  explicit NoPictures(const FrameTiles& clips) {
    dummy_.medium = Medium::kVideo;
    dummy_.width = clips.tile.width, dummy_.height = clips.tile.height;
    dummy_.fps_num = dummy_.fps_den = 1;
    // The rule may want a number of frames, or leave some out.
    for (dummy_.num_frames = clips.frames_per_patch; dummy_.num_frames < kMostFrames;
         dummy_.num_frames *= 2) {
      dummy_.duration_us = uint64_t{1'000'000} * dummy_.num_frames;
      const absl::StatusOr<uint32_t> chosen = NumChosenFrames(clips.frames, dummy_);
      if (chosen.ok() && *chosen >= clips.frames_per_patch) break;
    }
  }

  std::vector<MediumStyle> styles() const override { return {}; }
  const std::vector<FieldSpec>& fields(Medium) const override { return NoFields(); }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts&) const override {
    return absl::UnimplementedError(
        "a picture of the family videomae, whose models take clips of frames alone");
  }
  absl::Status Produce(const ItemRequest& request, std::span<const std::span<std::byte>>) const override {
    return Measure(request.facts).status();
  }
  absl::Status WriteFacts(const ItemRequest& request, std::span<const std::span<std::byte>>) const override {
    return Measure(request.facts).status();
  }
  MediaFacts DummyFacts() const override { return dummy_; }

 private:
  MediaFacts dummy_;
};

// The patches of a clip, from the model's config.json. TimeSformer's span one frame each.
MadeFamily MakeClips(FrameTiles clips, const FamilySource& source) {
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  const bool spans_one = model.Choice("model_type", "") == "timesformer";
  const uint32_t patch = VisionPatchSize(model, 16);
  clips.frames_per_patch = static_cast<uint32_t>(model.Uint("tubelet_size", spans_one ? 1 : 2, 1, 64));
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(clips.patches_per_frame, WholePatches(model, "patch_size", clips.tile, patch));
  clips.tokens_per_frame = clips.patches_per_frame;
  clips.style = {.medium = Medium::kVideo, .placeholder = "<video>"};
  clips.field = "pixel_values";
  auto no_pictures = std::make_unique<NoPictures>(clips);
  return MakePicturesAndFrames(std::move(no_pictures), std::move(clips), source.limits);
}

}  // namespace

MadeFamily MakeVideoMae(ConfigFile config, const FamilySource& source) {
  config.Passed("do_sample_frames", false);  // the image processor takes the frames that it is given
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(FrameTiles clips, ReadFrameTilesOf(config, source, source.spec, kClips, {}));
  EVENKEEL_RETURN_IF_ERROR(FinishUnusedVideo(source.checkpoint, {}));
  return MakeClips(std::move(clips), source);
}

MadeFamily MakeVideoMaeVideo(ConfigFile config, const FamilySource& source) {
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(FrameTiles clips,
                            ReadFrameTilesOf(config, source, source.ForFrames(), kClips, {}));
  return MakeClips(std::move(clips), source);
}

}  // namespace evenkeel::preprocess
