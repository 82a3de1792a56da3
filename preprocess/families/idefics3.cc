// Idefics3, and the pictures of SmolVLM and SmolVLM2: a picture is resized to a longest edge, then stretched to whole tiles, and
// that again to one tile, the whole picture, which comes last. Special tokens around every tile give its row
// and column.
//
// The rules are those of transformers' models/idefics3/{image_processing,processing}_idefics3.py, which
// models/smolvlm copies.
#include "preprocess/families/idefics3.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kLargestEdge = 4096;  // MAX_IMAGE_SIZE
constexpr uint32_t kMaxRows = 6;         // rows of tiles for which the models' tokenizers have tokens
// Indices into MediumStyle::tokens.
constexpr uint32_t kAround = 0, kWhole = 1, kFirstTile = 2;

// A side in pixels: Python's int() of a quotient or product of doubles.
uint32_t Truncated(double side) { return static_cast<uint32_t>(std::max(side, 0.0)); }

uint32_t WholeTiles(uint32_t side, uint32_t tile) { return (side + tile - 1) / tile * tile; }

MediumStyle StyleOf(uint32_t rows) {
  MediumStyle style{.placeholder = "<image>", .tokens = {"<fake_token_around_image>", "<global-img>"}};
  for (uint32_t row = 1; row <= rows; ++row) {
    for (uint32_t column = 1; column <= rows; ++column) {
      style.tokens.push_back(absl::StrCat("<row_", row, "_col_", column, ">"));
    }
  }
  return style;
}

// `most`: the rows and columns of tiles for which the style has tokens.
void WriteRuns(ImageSize tiles, uint32_t most, uint32_t tokens, std::vector<PlaceholderRun>& runs) {
  const bool split = tiles.width * tiles.height > 1;
  for (uint32_t row = 0; split && row < tiles.height; ++row) {
    for (uint32_t column = 0; column < tiles.width; ++column) {
      runs.push_back({.token = kAround});
      runs.push_back({.token = kFirstTile + row * most + column});
      runs.push_back({.rows = tokens});
    }
    runs.push_back({.text = "\n"});
  }
  runs.push_back({.text = split ? "\n" : "", .token = kAround});
  runs.push_back({.token = kWhole});
  runs.push_back({.rows = tokens});
  runs.push_back({.token = kAround});
}

}  // namespace

// The longest side becomes `longest`, the other follows from the shape and is made even by adding a pixel. A
// picture with a side above kLargestEdge is reduced a second time, where the other side is not made even.
ImageSize Idefics3Size(ImageSize picture, uint32_t longest) {
  const auto scaled = [](ImageSize size, uint32_t edge, bool even) {
    const double shape = static_cast<double>(size.width) / size.height;
    const bool wide = size.width >= size.height;
    uint32_t other = Truncated(wide ? edge / shape : edge * shape);
    if (even && other % 2 != 0) ++other;
    other = std::max(other, 1u);
    return wide ? ImageSize{edge, other} : ImageSize{other, edge};
  };
  const ImageSize size = scaled(picture, longest, /*even=*/true);
  return std::max(size.width, size.height) > kLargestEdge ? scaled(size, kLargestEdge, false) : size;
}

// The longer side is rounded up to whole tiles first; the other side follows from the shape, and is then
// rounded up too.
ImageSize Idefics3Canvas(ImageSize resized, uint32_t tile) {
  const double shape = static_cast<double>(resized.width) / resized.height;
  if (resized.width >= resized.height) {
    const uint32_t width = WholeTiles(resized.width, tile);
    return {width, WholeTiles(Truncated(width / shape), tile)};
  }
  const uint32_t height = WholeTiles(resized.height, tile);
  return {WholeTiles(Truncated(height * shape), tile), height};
}

absl::StatusOr<uint32_t> LongestEdge(ConfigFile& config, std::string_view key, uint32_t fallback) {
  const SideSizes sizes = ReadSideSizes(config, key, NumberIs::kSquare, {.longest_edge = fallback});
  if (sizes == SideSizes{.longest_edge = sizes.longest_edge}) return sizes.longest_edge;
  return config.Error(key, "is not {longest_edge}; only that is implemented");
}

absl::StatusOr<Idefics3Pictures> ReadIdefics3(ConfigFile config, const FamilySource& source) {
  constexpr uint32_t kUsualTile = 364;
  TileSettings settings;
  settings.family = "idefics3";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels,
                            ReadPixelSettings(config, source.spec, kHalves, kHalves, ResizeFilter::kLanczos));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t longest, LongestEdge(config, "size", 4 * kUsualTile));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t tile, LongestEdge(config, "max_image_size", kUsualTile));
  const bool splits = config.Flag("do_image_splitting", true);
  config.NotNull({"size", "max_image_size", "do_image_splitting"});
  config.Pin("do_center_crop", false);
  // Padding concerns batches of several pictures only. Video keys are SmolVLM's.
  config.Inert({"do_pad", "crop_size", "return_row_col_info", "video_sampling"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (!settings.pixels.resized) return config.Error("do_resize", "only true is implemented");

  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  const auto tokens = static_cast<uint32_t>(outer.Uint("image_seq_len", 169, 1, 1 << 16));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t patch, VisionPatchSize(source.checkpoint, 14));
  const uint32_t most = splits ? WholeTiles(std::min(longest, kLargestEdge), tile) / tile : 0;
  if (most > kMaxRows) {
    return config.Error("size", absl::StrCat("makes ", most, " rows of tiles of ", tile, " pixels; at most ",
                                             kMaxRows, " have tokens"));
  }
  settings.tile = {tile, tile};
  EVENKEEL_ASSIGN_OR_RETURN(settings.patches_per_tile,
                            WholePatches(config, "max_image_size", settings.tile, patch));
  settings.tokens_per_tile = tokens;
  settings.style = StyleOf(most);
  const auto tiles_of = [=](ImageSize picture) {
    const ImageSize canvas = Idefics3Canvas(Idefics3Size(picture, longest), tile);
    return splits ? ImageSize{canvas.width / tile, canvas.height / tile} : ImageSize{1, 1};
  };
  settings.runs = [=](ImageSize picture, std::vector<PlaceholderRun>& runs) {
    WriteRuns(tiles_of(picture), most, tokens, runs);
  };
  settings.cuts = [=](ImageSize picture) {
    const ImageSize resized = Idefics3Size(picture, longest), one{tile, tile}, tiles = tiles_of(picture);
    const ImageSize canvas{tiles.width * tile, tiles.height * tile};
    std::vector<TileCut> cuts;
    if (canvas != one) cuts.push_back({{.resized = canvas}, tiles.width, tiles.height, {resized}});
    cuts.push_back({{.resized = one}, 1, 1, {resized}});
    if (canvas != one) cuts.back().stages.push_back(canvas);
    return cuts;
  };
  Idefics3Pictures out{.pictures = nullptr, .tokens_per_tile = tokens, .patch = patch};
  EVENKEEL_ASSIGN_OR_RETURN(out.pictures, MakeTiles(std::move(settings), source.limits));
  return out;
}

MadeFamily MakeIdefics3(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(Idefics3Pictures made, ReadIdefics3(std::move(config), source));
  EVENKEEL_RETURN_IF_ERROR(FinishUnusedVideo(
      source.checkpoint,
      {"max_image_size", "video_sampling", "max_frames", "do_image_splitting", "resample"}));
  return std::move(made.pictures);
}

}  // namespace evenkeel::preprocess
