// LFM2-VL: a picture keeps about its shape within a number of tokens, or, if it is much larger, is stretched to a grid of
// tiles, after which it comes once more as a whole. Each is a row of patches, filled up to the largest number.
//
// The rules are those of transformers' models/lfm2_vl/{image_processing,processing}_lfm2_vl.py.
#include "preprocess/families/lfm2_vl.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/interleaved_patches.h"
#include "preprocess/families/internvl.h"
#include "preprocess/families/qwen2_vl.h"

namespace evenkeel::preprocess {
namespace {

// Indices into MediumStyle::tokens.
constexpr uint32_t kBegin = 0, kEnd = 1, kThumbnail = 2, kFirstTile = 3;

uint32_t UpTo(uint32_t value, uint32_t of) { return (value + of - 1) / of; }

// The values of a row, as those of a tile of this size.
ImageSize RowOf(const Lfm2Rules& rules) { return {rules.patch * rules.patch, rules.max_patches()}; }

// What a picture becomes: the tiles of a grid, unless it is {1, 1}, and the whole picture.
struct Lfm2Shape {
  TileGrid grid;
  ImageSize whole;
  bool has_whole = true;

  uint32_t cut_tiles() const { return grid.tiles() > 1 ? grid.tiles() : 0; }
  uint32_t tiles() const { return cut_tiles() + (has_whole ? 1 : 0); }
};

class Lfm2Vl final : public MediaFamily {
 public:
  Lfm2Vl(const PixelSettings& pixels, const Lfm2Rules& rules, const Limits& limits)
      : pixels_(pixels),
        rules_(rules),
        limits_(limits),
        table_(pixels.Table()),
        max_patches_(rules.max_patches()) {
    fields_ = {TileField("pixel_values", pixels, RowOf(rules)),
               {"pixel_attention_mask", DType::kI64, true, {max_patches_}, nullptr},
               {"spatial_shapes", DType::kI64, true, {2}, nullptr}};
    if (pixels.wire != Wire::kU8)
      fields_[0].trailing = {max_patches_, uint64_t{rules.patch} * rules.patch * 3};
  }

  std::vector<MediumStyle> styles() const override;
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? fields_ : NoFields();
  }
  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override;
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const Lfm2Shape shape, ShapeOf(facts));
    return LengthsOf(shape);
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    return Prepare(request, field_bytes).status();
  }
  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = facts.height = rules_.factor();
    return facts;
  }

 private:
  uint32_t TokensOfTile() const {
    const uint32_t side = UpTo(rules_.tile_side(), rules_.downsample);
    return side * side;
  }
  uint32_t TokensOfWhole(const Lfm2Shape& shape) const {
    return shape.whole.width / rules_.factor() * (shape.whole.height / rules_.factor());
  }
  ItemLengths LengthsOf(const Lfm2Shape& shape) const {
    const uint32_t whole = shape.has_whole ? TokensOfWhole(shape) : 0;
    return {shape.tiles() * max_patches_, shape.tiles(), shape.cut_tiles() * TokensOfTile() + whole};
  }
  absl::StatusOr<Lfm2Shape> ShapeOf(const MediaFacts& facts) const;
  // Checks the planned lengths and the buffers, and writes the mask and the shapes.
  absl::StatusOr<Lfm2Shape> Prepare(const ItemRequest& request,
                                    std::span<const std::span<std::byte>> field_bytes) const;

  const PixelSettings pixels_;
  const Lfm2Rules rules_;
  const Limits limits_;
  const std::vector<float> table_;
  const uint32_t max_patches_;  // of a row
  std::vector<FieldSpec> fields_;
};

// Tokens for the places that grids can have; a tokenizer need not have others.
std::vector<MediumStyle> Lfm2Vl::styles() const {
  MediumStyle style{.placeholder = "<image>"};
  style.tokens = {"<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"};
  for (uint32_t row = 1; rules_.splits && row <= rules_.max_tiles; ++row) {
    for (uint32_t column = 1; row * column <= rules_.max_tiles; ++column)
      style.tokens.push_back(absl::StrCat("<|img_row_", row, "_col_", column, "|>"));
  }
  return {style};
}

absl::Status Lfm2Vl::Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Lfm2Shape shape, ShapeOf(facts));
  runs.clear();
  runs.push_back({.token = kBegin});
  uint32_t row_token = kFirstTile;  // of the first column
  for (uint32_t row = 0; shape.cut_tiles() != 0 && row < shape.grid.rows; ++row) {
    for (uint32_t column = 0; column < shape.grid.columns; ++column) {
      runs.push_back({.token = row_token + column});
      runs.push_back({.rows = TokensOfTile()});
    }
    row_token += rules_.max_tiles / (row + 1);
  }
  if (shape.has_whole) {
    if (shape.cut_tiles() != 0) runs.push_back({.token = kThumbnail});
    runs.push_back({.rows = TokensOfWhole(shape)});
  }
  runs.push_back({.token = kEnd});
  return absl::OkStatus();
}

absl::StatusOr<Lfm2Shape> Lfm2Vl::ShapeOf(const MediaFacts& facts) const {
  if (facts.medium != Medium::kImage) return absl::UnimplementedError("video of the family lfm2_vl");
  const ImageSize picture = PictureSize(facts, pixels_.picture);
  if (picture.width == 0 || picture.height == 0)
    return absl::InvalidArgumentError("image without pixels: its width or height is 0");
  Lfm2Shape shape{.grid = Lfm2Grid(picture, rules_), .whole = Lfm2Size(picture, rules_)};
  shape.has_whole = shape.grid.tiles() == 1 || rules_.thumbnail;
  const ImageSize canvas = shape.grid.Canvas({rules_.tile, rules_.tile});
  if (std::max(shape.whole.rgb_bytes(), shape.cut_tiles() != 0 ? canvas.rgb_bytes() : 0) >
      3 * limits_.max_image_pixels) {
    return absl::InvalidArgumentError(absl::StrCat("image of ", picture.width, "x", picture.height,
                                                   " pixels, which the processor would enlarge to more than "
                                                   "limits.max_image_pixels allows"));
  }
  const uint64_t patches = uint64_t{shape.whole.width / rules_.patch} * (shape.whole.height / rules_.patch);
  if (shape.has_whole && patches > max_patches_) {
    return absl::InvalidArgumentError(absl::StrCat("image of ", picture.width, "x", picture.height,
                                                   " pixels, which becomes ", patches,
                                                   " patches; a row has at most ", max_patches_));
  }
  return shape;
}

absl::StatusOr<Lfm2Shape> Lfm2Vl::Prepare(const ItemRequest& request,
                                          std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Lfm2Shape shape, ShapeOf(request.facts));
  const ItemLengths lengths = LengthsOf(shape);
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got an item of ", lengths.input_rows, " tiles, the plan has ",
                                            request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
  auto* const mask = reinterpret_cast<int64_t*>(field_bytes[1].data());
  auto* const shapes = reinterpret_cast<int64_t*>(field_bytes[2].data());
  for (uint32_t i = 0; i < shape.tiles(); ++i) {
    const bool cut = i < shape.cut_tiles();
    const uint32_t high = cut ? rules_.tile_side() : shape.whole.height / rules_.patch;
    const uint32_t wide = cut ? rules_.tile_side() : shape.whole.width / rules_.patch;
    shapes[2 * i] = high, shapes[2 * i + 1] = wide;
    int64_t* const of_tile = mask + size_t{i} * max_patches_;
    std::fill(of_tile, of_tile + max_patches_, 0);
    std::fill(of_tile, of_tile + size_t{high} * wide, 1);
  }
  return shape;
}

absl::Status Lfm2Vl::Produce(const ItemRequest& request,
                             std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Lfm2Shape shape, Prepare(request, field_bytes));
  EVENKEEL_ASSIGN_OR_RETURN(
      const PictureHeader header,
      ReadKnownPictureHeader(request.suffix, request.bytes, limits_, pixels_.picture, request.facts));
  const std::span<std::byte> out = field_bytes[0];
  std::memset(out.data(), 0, out.size());  // also where patches are missing
  const size_t cut_bytes = out.size() / shape.tiles() * shape.cut_tiles();
  InterleavedPatches tiles(rules_.patch, pixels_.wire, table_, out.first(cut_bytes),
                           {.side = rules_.tile_side(), .distance = max_patches_});
  InterleavedPatches whole(rules_.patch, pixels_.wire, table_, out.subspan(cut_bytes));
  std::vector<PictureTarget> targets;
  const ImageSize tile{rules_.tile, rules_.tile};
  if (shape.cut_tiles() != 0)
    targets.push_back({.resized = shape.grid.Canvas(tile), .filter = pixels_.filter, .sink = &tiles});
  if (shape.has_whole) targets.push_back({.resized = shape.whole, .filter = pixels_.filter, .sink = &whole});
  return DecodePicture(request.suffix, request.bytes, limits_, pixels_.picture, header, targets);
}

// With min_tiles of 4 and more the order of a Python set could decide between two grids.
Lfm2Rules ReadRules(ConfigFile& config) {
  Lfm2Rules rules;
  const auto whole = [&config](const char* key, uint32_t usual, uint32_t least, uint32_t most) {
    return static_cast<uint32_t>(config.Uint(key, usual, least, most));
  };
  rules.patch = whole("encoder_patch_size", rules.patch, 1, 256);
  rules.downsample = whole("downsample_factor", rules.downsample, 1, 16);
  rules.min_tokens = whole("min_image_tokens", rules.min_tokens, 1, 1 << 14);
  rules.max_tokens = whole("max_image_tokens", rules.max_tokens, 1, 1 << 14);
  rules.tolerance = config.Real("max_pixels_tolerance", rules.tolerance);
  rules.splits = config.Flag("do_image_splitting", rules.splits);
  rules.min_tiles = whole("min_tiles", rules.min_tiles, 2, 3);
  rules.max_tiles = whole("max_tiles", rules.max_tiles, 2, 64);
  rules.tile = whole("tile_size", rules.tile, 1, 16384);
  rules.thumbnail = config.Flag("use_thumbnail", rules.thumbnail);
  config.NotNull({"encoder_patch_size", "downsample_factor", "min_image_tokens", "max_image_tokens",
                  "max_pixels_tolerance", "do_image_splitting", "min_tiles", "max_tiles", "tile_size",
                  "use_thumbnail"});
  return rules;
}

}  // namespace

ImageSize Lfm2Size(ImageSize picture, const Lfm2Rules& rules) {
  const double f = rules.factor();
  const auto [height, width] = SidesBy({.factor = f,
                                        .min_pixels = rules.pixels_of(rules.min_tokens),
                                        .max_pixels = rules.pixels_of(rules.max_tokens),
                                        .least = f,
                                        .least_shrunk = f},
                                       picture.height, picture.width);
  return {static_cast<uint32_t>(width), static_cast<uint32_t>(height)};
}

// In the original's doubles; Python's round: halves to even.
TileGrid Lfm2Grid(ImageSize picture, const Lfm2Rules& rules) {
  const double f = rules.factor(), patch = rules.patch;
  const double h = std::max(patch, std::nearbyint(picture.height / f) * f);
  const double w = std::max(patch, std::nearbyint(picture.width / f) * f);
  const bool large = h * w > rules.pixels_of(rules.max_tokens) * rules.tolerance;
  if (!large || !rules.splits) return {1, 1};
  return NearestTileGrid(picture, {rules.tile, rules.tile}, rules.min_tiles, rules.max_tiles);
}

MadeFamily MakeLfm2Vl(ConfigFile config, const FamilySource& source) {
  const std::string processor = config.Text("processor_class", "Lfm2VlProcessor");
  config.Passed("do_resize", true);
  if (!config.Has("do_convert_rgb")) config.Passed("do_convert_rgb", false);  // left to the caller
  EVENKEEL_ASSIGN_OR_RETURN(const PixelSettings pixels, ReadPixelSettings(config, source.spec, kHalves,
                                                                          kHalves, ResizeFilter::kBilinear));
  const Lfm2Rules rules = ReadRules(config);
  config.Pin("do_pad", true);
  config.Pin("do_center_crop", false);
  config.Inert({"size", "crop_size", "default_to_square", "return_row_col_info", "max_num_patches"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  outer.Pin("use_image_special_tokens", true);  // 5.23 ignores another value, and 4.57 does not
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(processor, {"Lfm2VlProcessor"}));
  if (rules.min_tiles > rules.max_tiles) return config.Error("min_tiles", "is above max_tiles");
  if (rules.tile % rules.factor() != 0)
    return config.Error("tile_size", absl::StrCat("is ", rules.tile, ", which is not whole tokens of ",
                                                  rules.factor(), " pixels"));
  EVENKEEL_RETURN_IF_ERROR(CheckInterleaved(config, pixels));
  EVENKEEL_RETURN_IF_ERROR(CheckTile(pixels, RowOf(rules)));
  return std::make_unique<Lfm2Vl>(pixels, rules, source.limits);
}

}  // namespace evenkeel::preprocess
