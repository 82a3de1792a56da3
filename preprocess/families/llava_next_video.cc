// LLaVA-NeXT-Video: LLaVA-NeXT's pictures, and videos as frames, one cropped tile each.
//
// The rules are those of transformers' models/llava_next_video/{processing,video_processing}_llava_next_video.py.
#include <memory>
#include <string>
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/frame_tiles.h"
#include "preprocess/families/llava_next.h"

namespace evenkeel::preprocess {
namespace {

// The model pools a frame's patches in fours. The processor rounds their number down as a whole, and never adds the
// tokens that pictures have in addition to their patches.
absl::StatusOr<FrameTiles> ReadVideo(const FamilySource& source, uint32_t patch, std::string placeholder) {
  EVENKEEL_ASSIGN_OR_RETURN(FrameTiles out,
                            ReadFrameTiles(source, "LlavaNextVideoVideoProcessor", kClipPictures,
                                           {"do_pad", "image_grid_pinpoints", "aspect_ratio_setting"}));
  out.patches_per_frame = (out.tile.width / patch) * (out.tile.height / patch);
  out.tokens_per_frame = out.patches_per_frame / 4;
  out.style = {.medium = Medium::kVideo, .placeholder = std::move(placeholder)};
  if (out.tokens_per_frame != 0) return out;
  return absl::UnimplementedError(source.checkpoint.folder +
                                  ": frames of the video processor are smaller than four patches, one token");
}

}  // namespace

MadeFamily MakeLlavaNextVideo(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  std::string placeholder = outer.Text("video_token", "<video>");
  EVENKEEL_ASSIGN_OR_RETURN(LlavaNextPictures made, ReadLlavaNext(std::move(config), outer, source));
  return MakePicturesAndFrames(std::move(made.pictures),
                               ReadVideo(source, made.tokens.patch, std::move(placeholder)), source.limits);
}

}  // namespace evenkeel::preprocess
