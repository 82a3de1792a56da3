// SigLIP: every picture becomes a square of one size, whatever its shape.
//
// The rules are those of transformers' models/siglip/image_processing_siglip.py.
#include "core/status.h"
#include "preprocess/families.h"
#include "preprocess/fixed_size.h"

namespace evenkeel {

MadeFamily MakeSiglip(ConfigFile config, const FamilySource& source) {
  FixedSize fixed;
  EVENKEEL_ASSIGN_OR_RETURN(fixed.pixels, ReadPixelSettings(config, source.spec, kHalves, kHalves));
  SideSizes size = ReadSideSizes(config, "size", NumberIs::kShortestEdge);
  if (size.height == 0 && size.width == 0 && size.shortest_edge == 0) size.height = size.width = 224;
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (size.shortest_edge != 0 || size.height != size.width) {
    return config.Error("size", "only a square {height, width} is implemented");
  }
  fixed.side = size.height;
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.folder));
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(source.folder, 16));
  return MakeFixedSize("siglip", fixed, patch, /*extra_tokens=*/0, source);
}

}  // namespace evenkeel
