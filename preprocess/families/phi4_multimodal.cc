// Phi-4-multimodal's pictures: enlarged to a grid of square tiles, white to the right or below, and once more as a
// whole, the first tile, interpolated from the normalised values. A mask marks the patches of the picture in each tile.
//
// The rules are those of transformers' models/phi4_multimodal/image_processing_phi4_multimodal.py (4.57: ..._fast.py),
// which has them for torchvision alone. The values of the whole picture are not those of any byte, so all travel as f32
// where the job's wire form is u8.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/both_sinks.h"
#include "preprocess/families/families.h"
#include "preprocess/families/internvl.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/families/tile_grid.h"
#include "preprocess/resize/interpolator.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;
constexpr uint32_t kMinSide = 10;  // of a picture in its grid; the processor fails below
// Placeholders that every picture has: those of the whole picture, one after them, and one for each of its rows.
constexpr uint32_t kWholeTokens = 256, kSeparators = 1, kWholeRows = 16;

struct Phi4Rules {
  uint32_t side = 448;  // of a tile in pixels
  uint32_t patch = 14;
  uint32_t max_tiles = 36;

  uint32_t patches() const { return side / patch; }  // along a side of a tile
};

// Where a picture stands in its grid.
struct Phi4Shape {
  TileGrid grid;
  ImageSize canvas, resized;

  // Patches of padding along an axis, whose pixels are all padding.
  static uint32_t Padded(uint32_t canvas, uint32_t resized, uint32_t patch) {
    return (canvas - resized) / patch;
  }
};

// The grid that covers the picture, if it has no more tiles than allowed; else InternVL's. The order of the doubles'
// operations is the original's.
absl::StatusOr<Phi4Shape> ShapeOf(ImageSize picture, const Phi4Rules& rules) {
  Phi4Shape out;
  const uint64_t columns = (uint64_t{picture.width} + rules.side - 1) / rules.side;
  const uint64_t rows = (uint64_t{picture.height} + rules.side - 1) / rules.side;
  const ImageSize tile{rules.side, rules.side};
  out.grid = columns * rows > rules.max_tiles
                 ? NearestTileGrid(picture, tile, 1, rules.max_tiles)
                 : TileGrid{static_cast<uint32_t>(columns), static_cast<uint32_t>(rows)};
  out.canvas = out.resized = out.grid.Canvas(tile);
  const double by_width = static_cast<double>(out.canvas.width) / picture.width;
  const double by_height = static_cast<double>(out.canvas.height) / picture.height;
  if (by_width < by_height) {
    out.resized.height = static_cast<uint32_t>(picture.height * by_width);
  } else {
    out.resized.width = static_cast<uint32_t>(picture.width * by_height);
  }
  if (std::min(out.resized.width, out.resized.height) < kMinSide) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image of ", picture.width, "x", picture.height, " pixels, which the processor would resize to ",
        out.resized.width, "x", out.resized.height, ", below ", kMinSide, " pixels"));
  }
  return out;
}

// Every second patch of a tile along an axis of `tiles` tiles that is not all padding.
uint32_t KeptTokens(uint32_t tiles, uint32_t padded, const Phi4Rules& rules) {
  const uint32_t kept = tiles * rules.patches() - padded;
  uint32_t tokens = 0;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    for (uint32_t i = 0; i < rules.patches(); i += 2) tokens += tile * rules.patches() + i < kept;
  }
  return tokens;
}

class Phi4Pictures final : public MediaFamily {
 public:
  Phi4Pictures(const PixelSettings& pixels, const Phi4Rules& rules, const Limits& limits)
      : pixels_(pixels),
        rules_(rules),
        limits_(limits),
        table_(pixels.Table()),
        fields_{TileField("image_pixel_values", pixels, {rules.side, rules.side}),
                {"image_attention_mask", DType::kI64, true, {rules.patches(), rules.patches()}, nullptr},
                {"image_sizes", DType::kI64, false, {2}, nullptr}} {}

  std::vector<MediumStyle> styles() const override { return {{.placeholder = "<|image|>"}}; }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? fields_ : NoFields();
  }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const Phi4Shape shape, Shape(facts));
    return LengthsOf(shape);
  }

  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
    EVENKEEL_ASSIGN_OR_RETURN(const Phi4Shape shape, Shape(request.facts));
    EVENKEEL_ASSIGN_OR_RETURN(
        const PictureHeader header,
        ReadKnownPictureHeader(request.suffix, request.bytes, limits_, pixels_.picture, request.facts));
    const ImageSize tile{rules_.side, rules_.side};
    const size_t tile_bytes = field_bytes[0].size() / request.planned.input_rows;
    static thread_local Interpolator interpolator;
    static thread_local std::vector<float> whole;
    whole.resize(tile.rgb_bytes());
    interpolator.Start({.in = shape.canvas, .out = tile, .filter = pixels_.filter}, table_, whole);
    {
      PatchWriter tiles(TileShape(tile), shape.canvas.width, pixels_.wire, 1, table_,
                        field_bytes[0].subspan(tile_bytes));
      BothSinks sinks(tiles, interpolator);
      const PictureTarget target{.resized = shape.resized,
                                 .filter = ResizeFilter::kBilinear,
                                 .window = shape.canvas,
                                 .around = {255, 255, 255},
                                 .sink = &sinks};
      EVENKEEL_RETURN_IF_ERROR(
          DecodePicture(request.suffix, request.bytes, limits_, pixels_.picture, header, {&target, 1}));
    }
    WriteFloats(whole, fields_.front().dtype, field_bytes[0].first(tile_bytes));
    return absl::OkStatus();
  }

  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const Phi4Shape shape, Shape(request.facts));
    const ItemLengths lengths = LengthsOf(shape);
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("got an item of ", lengths.input_rows, " tiles, the plan has ",
                                              request.planned.input_rows));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
    WriteMask(shape,
              {reinterpret_cast<int64_t*>(field_bytes[1].data()), field_bytes[1].size() / sizeof(int64_t)});
    const int64_t sides[] = {shape.canvas.height, shape.canvas.width};
    std::memcpy(field_bytes[2].data(), sides, sizeof(sides));
    return absl::OkStatus();
  }

  MediaFacts DummyFacts() const override { return {.width = rules_.side, .height = rules_.side}; }

 private:
  absl::StatusOr<Phi4Shape> Shape(const MediaFacts& facts) const {
    if (facts.medium != Medium::kImage)
      return absl::UnimplementedError("video of the family phi4_multimodal");
    const ImageSize picture = PictureSize(facts, pixels_.picture);
    if (picture.width == 0 || picture.height == 0)
      return absl::InvalidArgumentError("image without pixels: its width or height is 0");
    EVENKEEL_ASSIGN_OR_RETURN(const Phi4Shape shape, ShapeOf(picture, rules_));
    if (shape.canvas.rgb_bytes() > 3 * limits_.max_image_pixels) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image of ", picture.width, "x", picture.height, " pixels, which the processor would resize to ",
          shape.canvas.width, "x", shape.canvas.height, ", more than limits.max_image_pixels allows"));
    }
    return shape;
  }

  ImageSize PaddedPatches(const Phi4Shape& shape) const {
    return {Phi4Shape::Padded(shape.canvas.width, shape.resized.width, rules_.patch),
            Phi4Shape::Padded(shape.canvas.height, shape.resized.height, rules_.patch)};
  }

  ItemLengths LengthsOf(const Phi4Shape& shape) const {
    const ImageSize padded = PaddedPatches(shape);
    const uint32_t columns = KeptTokens(shape.grid.columns, padded.width, rules_);
    const uint32_t rows = KeptTokens(shape.grid.rows, padded.height, rules_);
    const uint32_t tiles = 1 + shape.grid.tiles();
    // A separator ends each row, if its first patch is the picture's.
    const uint32_t ends = columns == 0 ? 0 : rows;
    return {tiles * rules_.patches() * rules_.patches(), tiles,
            kWholeTokens + kSeparators + rows * columns + ends + kWholeRows};
  }

  // [tiles, patches, patches]: 1 where a patch is not all padding; everywhere in the whole picture.
  void WriteMask(const Phi4Shape& shape, std::span<int64_t> mask) const {
    const uint32_t side = rules_.patches();
    const ImageSize padded = PaddedPatches(shape);
    const uint32_t columns = shape.grid.columns * side - padded.width;
    const uint32_t rows = shape.grid.rows * side - padded.height;
    std::fill_n(mask.begin(), size_t{side} * side, 1);
    size_t place = size_t{side} * side;
    for (uint32_t tile = 0; tile < shape.grid.tiles(); ++tile) {
      const uint32_t left = tile % shape.grid.columns * side, top = tile / shape.grid.columns * side;
      for (uint32_t y = top; y < top + side; ++y) {
        for (uint32_t x = left; x < left + side; ++x) mask[place++] = y < rows && x < columns ? 1 : 0;
      }
    }
  }

  const PixelSettings pixels_;  // whose wire form is not u8
  const Phi4Rules rules_;
  const Limits limits_;
  const std::vector<float> table_;
  const std::vector<FieldSpec> fields_;
};

}  // namespace

MadeFamily MakePhi4Pictures(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(PixelSettings pixels, ReadPixelSettings(config, source.spec, kHalves, kHalves));
  Phi4Rules rules;
  const SideSizes size =
      ReadSideSizes(config, "size", NumberIs::kSquare, {.height = rules.side, .width = rules.side});
  rules.patch = static_cast<uint32_t>(config.Uint("patch_size", rules.patch, 1, 256));
  rules.max_tiles = static_cast<uint32_t>(config.Uint("dynamic_hd", rules.max_tiles, 1, kMaxTiles));
  // Pictures are resized whatever the file has for do_resize.
  config.Passed("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "patch_size", "dynamic_hd"});
  config.Inert({"crop_size"});
  // The speech extractor's keys, where one file has both.
  config.Inert({"win_length", "preemphasis", "audio_compression_rate", "audio_downsample_rate",
                "audio_feat_stride", "mel_min_frequency", "mel_max_frequency"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(rules.side, SquareSide(config, "size", size));
  EVENKEEL_RETURN_IF_ERROR(WholePatches(config, "size", {rules.side, rules.side}, rules.patch).status());
  if (pixels.filter != ResizeFilter::kBicubic &&
      (pixels.filter != ResizeFilter::kBilinear || 2 * rules.side <= Interpolator::kOtherKernel)) {
    return config.Error("resample",
                        absl::StrCat("only bicubic, and with a size above ", Interpolator::kOtherKernel / 2,
                                     " bilinear, are implemented for Phi-4"));
  }
  if (!pixels.normalized && pixels.rescale == 1) {
    return config.Error("do_rescale",
                        "is false as do_normalize is; then torch resizes bytes, which is not implemented");
  }
  if (pixels.wire == Wire::kU8) pixels.wire = Wire::kF32;
  return std::make_unique<Phi4Pictures>(pixels, rules, source.limits);
}

}  // namespace evenkeel::preprocess
