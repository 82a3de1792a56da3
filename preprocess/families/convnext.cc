// ConvNeXT, ResNet and RegNet: for a small size, the picture is resized larger by `crop_pct` and its centre
// is cropped; for others it is resized to a square, whatever its shape.
//
// The rules are those of transformers' models/convnext/image_processing_convnext.py.
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kWhole = 384;  // edges from here on are not cropped
constexpr uint32_t kStride = 32;  // pixels per side of a position of the encoder's last stage
constexpr double kMaxEdge = 16384;

}  // namespace

MadeFamily MakeConvNext(ConfigFile config, const FamilySource& source) {
  FixedSize fixed;
  EVENKEEL_ASSIGN_OR_RETURN(fixed.pixels, ReadPixelSettings(config, source.spec, kHalves, kHalves));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kShortestEdge, {.shortest_edge = kWhole});
  const double kept = config.Real("crop_pct", 224.0 / 256);
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  const uint32_t edge = size.shortest_edge;
  if (edge == 0 || size != SideSizes{.shortest_edge = edge}) {
    return config.Error("size", "is not {shortest_edge}");
  }
  fixed.result = {edge, edge};
  fixed.cropped = edge < kWhole;
  if (fixed.cropped) {
    if (config.IsNull("crop_pct")) return config.Error("crop_pct", "is null");
    const double resized = edge / kept;
    if (!(resized >= 1 && resized <= kMaxEdge)) {
      return config.Error("crop_pct", absl::StrCat("makes edges of ", resized, " pixels"));
    }
    fixed.size.shortest_edge = static_cast<uint32_t>(resized);
  } else {
    fixed.size = {.height = edge, .width = edge};
  }
  return MakeFixedSize("convnext", fixed, kStride, /*extra_tokens=*/0, source);
}

}  // namespace evenkeel::preprocess
