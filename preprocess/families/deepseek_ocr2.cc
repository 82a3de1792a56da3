// DeepSeek-OCR 2: the whole picture fitted into a square, and, of a picture that exceeds a tile, the tiles of the grid
// nearest to its shape. The tokens of both, and one more.
//
// The rules are those of transformers' models/deepseek_ocr2/{image_processing,processing}_deepseek_ocr2.py.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/internvl.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/families/tile_grid.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;
constexpr char kOcr2Processor[] = "DeepseekOcr2Processor";

struct Ocr2Rules {
  bool cuts = true;
  uint32_t side = 1024;  // of the square
  uint32_t tile = 768;
  uint32_t min_tiles = 2, max_tiles = 6;
  Colour around = {127, 127, 127};
  uint32_t patch = 16, downsampling = 4;

  static uint32_t SquareOf(uint32_t side, uint32_t step) {
    const uint32_t steps = (side + step - 1) / step;
    return steps * steps;
  }
  uint32_t TokensOf(uint32_t square) const { return SquareOf(square, patch * downsampling); }
};

// What a picture becomes.
struct Ocr2Shape {
  ImageSize fitted;              // of the whole picture in its square
  std::optional<TileGrid> grid;  // nullopt: it is not cut

  uint32_t tiles() const { return grid ? grid->tiles() : 0; }
};

class DeepseekOcr2 final : public MediaFamily {
 public:
  DeepseekOcr2(const PixelSettings& pixels, const Ocr2Rules& rules, const Limits& limits)
      : pixels_(pixels),
        rules_(rules),
        limits_(limits),
        table_(pixels.Table()),
        fields_{TileField("pixel_values", pixels, {rules.side, rules.side}),
                TileField("pixel_values_local", pixels, {rules.tile, rules.tile}),
                {"num_local_patches", DType::kI64, false, {}, nullptr}} {
    fields_[0].per_row = false;
  }

  std::vector<MediumStyle> styles() const override { return {{.placeholder = "<image>"}}; }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? fields_ : NoFields();
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const Ocr2Shape shape, ShapeOf(facts));
    return LengthsOf(shape);
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const Ocr2Shape shape, ShapeOf(request.facts));
    const ItemLengths lengths = LengthsOf(shape);
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("got an item of ", lengths.output_rows,
                                              " tokens, the plan has ", request.planned.output_rows));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
    const int64_t tiles = shape.tiles();
    std::memcpy(field_bytes[2].data(), &tiles, sizeof(tiles));
    return absl::OkStatus();
  }
  // The first two fields have values of the picture.
  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(MediaFamily::FillInvalid(request, field_bytes));
    std::memset(field_bytes[1].data(), 0, field_bytes[1].size());
    return absl::OkStatus();
  }
  MediaFacts DummyFacts() const override { return {.width = rules_.tile, .height = rules_.tile}; }

 private:
  absl::StatusOr<Ocr2Shape> ShapeOf(const MediaFacts& facts) const;
  ItemLengths LengthsOf(const Ocr2Shape& shape) const {
    const uint32_t tiles = shape.tiles();
    return {Ocr2Rules::SquareOf(rules_.side, rules_.patch) +
                tiles * Ocr2Rules::SquareOf(rules_.tile, rules_.patch),
            std::max(tiles, 1u), rules_.TokensOf(rules_.side) + tiles * rules_.TokensOf(rules_.tile) + 1};
  }

  const PixelSettings pixels_;
  const Ocr2Rules rules_;
  const Limits limits_;
  const std::vector<float> table_;
  std::vector<FieldSpec> fields_;
};

absl::StatusOr<Ocr2Shape> DeepseekOcr2::ShapeOf(const MediaFacts& facts) const {
  if (facts.medium != Medium::kImage) return absl::UnimplementedError("video of the family deepseek_ocr2");
  const ImageSize picture = PictureSize(facts, pixels_.picture);
  if (picture.width == 0 || picture.height == 0)
    return absl::InvalidArgumentError("image without pixels: its width or height is 0");
  const uint32_t longer = std::max(picture.width, picture.height);
  // Python's round: halves to even.
  const double scale = static_cast<double>(rules_.side) / longer;
  Ocr2Shape out{.fitted = {static_cast<uint32_t>(std::nearbyint(picture.width * scale)),
                           static_cast<uint32_t>(std::nearbyint(picture.height * scale))}};
  if (rules_.cuts && longer > rules_.tile) {
    out.grid = NearestTileGrid(picture, {rules_.tile, rules_.tile}, rules_.min_tiles, rules_.max_tiles);
  }
  if (out.fitted.width == 0 || out.fitted.height == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image of ", picture.width, "x", picture.height, " pixels, which the processor would resize to ",
        out.fitted.width, "x", out.fitted.height, ", which has no pixels"));
  }
  const uint64_t tiles = out.grid ? out.grid->Canvas({rules_.tile, rules_.tile}).rgb_bytes() : 0;
  if (std::max(tiles, ImageSize{rules_.side, rules_.side}.rgb_bytes()) > 3 * limits_.max_image_pixels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image of ", picture.width, "x", picture.height,
        " pixels, which the processor would enlarge to more than limits.max_image_pixels allows"));
  }
  return out;
}

absl::Status DeepseekOcr2::Produce(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
  EVENKEEL_ASSIGN_OR_RETURN(const Ocr2Shape shape, ShapeOf(request.facts));
  EVENKEEL_ASSIGN_OR_RETURN(
      const PictureHeader header,
      ReadKnownPictureHeader(request.suffix, request.bytes, limits_, pixels_.picture, request.facts));
  const ImageSize square{rules_.side, rules_.side}, tile{rules_.tile, rules_.tile};
  PatchWriter whole(TileShape(square), square.width, pixels_.wire, 1, table_, field_bytes[0]);
  std::vector<PictureTarget> targets = {
      {.resized = shape.fitted,
       .filter = pixels_.filter,
       .left = -static_cast<int32_t>((square.width - shape.fitted.width) / 2),
       .top = -static_cast<int32_t>((square.height - shape.fitted.height) / 2),
       .window = square,
       .around = rules_.around,
       .sink = &whole}};
  std::optional<PatchWriter> tiles;
  if (shape.grid) {
    const ImageSize canvas = shape.grid->Canvas(tile);
    tiles.emplace(TileShape(tile), canvas.width, pixels_.wire, 1, table_, field_bytes[1]);
    targets.push_back({.resized = canvas, .filter = pixels_.filter, .sink = &*tiles});
  } else {
    std::memset(field_bytes[1].data(), 0, field_bytes[1].size());
  }
  return DecodePicture(request.suffix, request.bytes, limits_, pixels_.picture, header, targets);
}

// What the processor passes in every call, whatever the image processor's file has.
void PassCuts(ConfigFile& config, Ocr2Rules& rules) {
  rules.min_tiles = 2;
  rules.max_tiles = 6;
  config.Passed("crop_to_patches", true);
  rules.cuts = config.Flag("crop_to_patches", true);
  config.Inert({"min_patches", "max_patches"});
  config.Resolved("min_patches", {uint64_t{rules.min_tiles}});
  config.Resolved("max_patches", {uint64_t{rules.max_tiles}});
}

}  // namespace

MadeFamily MakeDeepseekOcr2(ConfigFile config, const FamilySource& source) {
  Ocr2Rules rules;
  const std::string processor = config.Text("processor_class", "");
  if (!processor.empty()) EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(processor, {kOcr2Processor}));
  EVENKEEL_ASSIGN_OR_RETURN(const PixelSettings pixels,
                            ReadPixelSettings(config, source.spec, kHalves, kHalves));
  const SideSizes size =
      ReadSideSizes(config, "size", NumberIs::kSquare, {.height = rules.side, .width = rules.side});
  rules.tile = static_cast<uint32_t>(config.Uint("tile_size", rules.tile, 1, 4096));
  if (processor == kOcr2Processor) {
    PassCuts(config, rules);
  } else {
    rules.cuts = config.Flag("crop_to_patches", true);
    rules.min_tiles = static_cast<uint32_t>(config.Uint("min_patches", rules.min_tiles, 1, kMaxTiles));
    rules.max_tiles = static_cast<uint32_t>(config.Uint("max_patches", rules.max_tiles, 1, kMaxTiles));
  }
  if (config.Has("background_color")) {
    const std::vector<uint64_t> around = config.Uints("background_color", 3, 0, 255);
    for (size_t c = 0; c < 3; ++c) rules.around[c] = static_cast<uint8_t>(around[c]);
  }
  config.Resolved("background_color",
                  {uint64_t{rules.around[0]}, uint64_t{rules.around[1]}, uint64_t{rules.around[2]}});
  config.Passed("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "tile_size", "crop_to_patches", "min_patches", "max_patches", "background_color"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(rules.side, SquareSide(config, "size", size));
  if (rules.min_tiles > rules.max_tiles) return config.Error("min_patches", "is above max_patches");
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  rules.patch = static_cast<uint32_t>(outer.Uint("patch_size", rules.patch, 1, 256));
  rules.downsampling = static_cast<uint32_t>(outer.Uint("downsample_ratio", rules.downsampling, 1, 256));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  if (!rules.cuts) rules.side = rules.tile;
  EVENKEEL_RETURN_IF_ERROR(CheckTile(pixels, {rules.side, rules.side}));
  EVENKEEL_RETURN_IF_ERROR(CheckTile(pixels, {rules.tile, rules.tile}));
  return std::make_unique<DeepseekOcr2>(pixels, rules, source.limits);
}

}  // namespace evenkeel::preprocess
