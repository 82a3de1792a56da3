// MiniCPM-V 4.6: the whole picture, then, if it is large, the slices of the grid nearest to its shape, all as patches in
// rows from the left; one placeholder for a square of patches. Its videos are in minicpm_frames.h.
//
// The rules are those of transformers' models/minicpmv4_6/{image_processing,processing}_minicpmv4_6.py.
#include "preprocess/families/minicpm_v4_6.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/minicpm_frames.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kLargestSide = 1 << 14;
// Indices into MediumStyle::tokens.
constexpr uint32_t kIdBegin = 0, kIdEnd = 1, kBegin = 2, kEnd = 3, kSliceBegin = 4, kSliceEnd = 5;

// The double nearest to the logarithm, which is what Python gives: equal distances decide between grids. In more bits
// than a double has, by 2 * atanh((m - 1) / (m + 1)) of the mantissa.
double NearestLog(double x) {
  constexpr long double kLn2 = 0.693147180559945309417232121458176568L;
  constexpr double kRootOfHalf = 0.70710678118654752;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < kRootOfHalf) mantissa *= 2, --exponent;
  const long double s = (static_cast<long double>(mantissa) - 1) / (static_cast<long double>(mantissa) + 1);
  long double sum = 0;
  for (int term = 41; term > 0; term -= 2) sum = sum * s * s + 1.0L / term;
  return static_cast<double>(exponent * kLn2 + 2 * s * sum);
}

// Python's round: halves to even.
uint32_t WholeSteps(double length, uint32_t step) {
  return static_cast<uint32_t>(std::max(std::nearbyint(length / step) * step, static_cast<double>(step)));
}

uint32_t Tokens(ImageSize size, const MiniCpmRules& rules) {
  return size.width / rules.step() * (size.height / rules.step());
}

std::vector<TileCut> CutsOf(ImageSize picture, const MiniCpmRules& rules, ResizeFilter filter) {
  const MiniCpmShape shape = MiniCpmShapeOf(picture, rules);
  const auto cut = [&](ImageSize size) {
    return TileCut{{.filter = filter}, size.width / rules.patch, size.height / rules.patch, {}};
  };
  std::vector<TileCut> out = {cut(shape.whole)};
  out.front().target.resized = shape.whole;
  if (!shape.is_cut()) return out;
  const ImageSize slice = shape.slice();
  for (uint32_t row = 0; row < shape.grid.rows; ++row) {
    for (uint32_t column = 0; column < shape.grid.columns; ++column) {
      PictureTarget& target = out.emplace_back(cut(slice)).target;
      target.resized = shape.canvas;
      target.window = slice;
      target.left = static_cast<int32_t>(column * slice.width);
      target.top = static_cast<int32_t>(row * slice.height);
    }
  }
  return out;
}

// Height and width in patches of the whole picture and of each slice; the rest is zeros.
TileNumbers TargetSizes(const MiniCpmRules& rules) {
  return {"target_sizes",
          {rules.max_slices + 1, 2},
          [](const auto&, const std::vector<TileCut>& cuts, std::span<int64_t> out) {
            std::fill(out.begin(), out.end(), 0);
            for (size_t i = 0; i < cuts.size(); ++i) {
              out[2 * i] = cuts[i].rows, out[2 * i + 1] = cuts[i].columns;
            }
          }};
}

}  // namespace

// The grids of about as many slices as the picture has squares; of equally near ones of the same number, that with most
// rows. The order of the doubles' operations is the original's.
TileGrid MiniCpmGrid(ImageSize picture, const MiniCpmRules& rules) {
  if (!rules.slices) return {1, 1};
  const double shape = NearestLog(static_cast<double>(picture.width) / picture.height);
  const double squares = static_cast<double>(uint64_t{picture.width} * picture.height) /
                         static_cast<double>(uint64_t{rules.side} * rules.side);
  const auto about = static_cast<uint32_t>(std::min<double>(std::ceil(squares), rules.max_slices));
  if (about <= 1) return {1, 1};
  TileGrid best{1, 1};
  double nearest = std::numeric_limits<double>::infinity();
  for (uint32_t slices = about - 1; slices <= about + 1; ++slices) {
    if (slices == 1 || slices > rules.max_slices) continue;
    for (uint32_t rows = 1; rows <= slices; ++rows) {
      if (slices % rows != 0) continue;
      const uint32_t columns = slices / rows;
      const double away = std::abs(shape - NearestLog(static_cast<double>(columns) / rows));
      if (away < nearest || (away == nearest && rows > best.rows)) {
        best = {columns, rows};
        nearest = away;
      }
    }
  }
  return best;
}

ImageSize MiniCpmSize(ImageSize picture, const MiniCpmRules& rules, bool enlarged) {
  double height = picture.height, width = picture.width;
  if (enlarged || height * width > static_cast<double>(uint64_t{rules.side} * rules.side)) {
    const double shape = width / height;
    height = std::trunc(rules.side / std::sqrt(shape));
    width = std::trunc(height * shape);
  }
  return {WholeSteps(width, rules.step()), WholeSteps(height, rules.step())};
}

ImageSize MiniCpmCanvas(ImageSize picture, TileGrid grid, const MiniCpmRules& rules) {
  const ImageSize slice{WholeSteps(picture.width, grid.columns) / grid.columns,
                        WholeSteps(picture.height, grid.rows) / grid.rows};
  return grid.Canvas(MiniCpmSize(slice, rules, /*enlarged=*/true));
}

MiniCpmShape MiniCpmShapeOf(ImageSize picture, const MiniCpmRules& rules) {
  MiniCpmShape out;
  out.grid = MiniCpmGrid(picture, rules);
  out.whole = MiniCpmSize(picture, rules, /*enlarged=*/!out.is_cut());
  if (out.is_cut()) out.canvas = MiniCpmCanvas(picture, out.grid, rules);
  return out;
}

uint32_t MiniCpmTokens(const MiniCpmShape& shape, const MiniCpmRules& rules) {
  return Tokens(shape.whole, rules) + (shape.is_cut() ? Tokens(shape.canvas, rules) : 0);
}

MediumStyle MiniCpmStyle(Medium medium, std::string_view token) {
  MediumStyle style{.medium = medium, .placeholder = std::string(token)};
  style.tokens = {"<image_id>", "</image_id>", "<image>", "</image>", "<slice>", "</slice>"};
  return style;
}

void AddMiniCpmNumber(std::vector<PlaceholderRun>& runs) {
  runs.push_back({.token = kIdBegin});
  runs.push_back({.token = kIdEnd, .numbered = true});
}

void AddMiniCpmRuns(const MiniCpmShape& shape, const MiniCpmRules& rules, std::vector<PlaceholderRun>& runs) {
  runs.push_back({.token = kBegin});
  runs.push_back({.rows = Tokens(shape.whole, rules)});
  runs.push_back({.token = kEnd});
  for (uint32_t i = 0; shape.is_cut() && i < shape.grid.tiles(); ++i) {
    const bool begins_row = i != 0 && i % shape.grid.columns == 0;
    runs.push_back({.text = begins_row ? "\n" : "", .token = kSliceBegin});
    runs.push_back({.rows = Tokens(shape.slice(), rules)});
    runs.push_back({.token = kSliceEnd});
  }
}

MiniCpmRules ReadMiniCpmRules(ConfigFile& config) {
  MiniCpmRules rules;
  rules.side = static_cast<uint32_t>(config.Uint("scale_resolution", rules.side, 1, kLargestSide));
  rules.max_slices = static_cast<uint32_t>(config.Uint("max_slice_nums", rules.max_slices, 1, 256));
  rules.patch = static_cast<uint32_t>(config.Uint("patch_size", rules.patch, 1, 256));
  rules.slices = config.Flag("slice_mode", rules.slices);
  rules.merge = config.OneOf("downsample_mode", {"16x", "4x"}) == "4x" ? 2 : 4;
  config.NotNull({"scale_resolution", "max_slice_nums", "patch_size", "slice_mode", "downsample_mode"});
  return rules;
}

MadeFamily MakeMiniCpmV46(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "minicpm_v4_6";
  const std::string processor = config.Text("processor_class", "MiniCPMV4_6Processor");
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kHalves, kHalves));
  const MiniCpmRules rules = ReadMiniCpmRules(config);
  const bool numbered = config.Flag("use_image_id", true);
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"use_image_id"});
  config.Inert({"size", "crop_size", "default_to_square"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(processor, {"MiniCPMV4_6Processor"}));
  settings.tile = {rules.patch, rules.patch};
  settings.patches_per_tile = 1;
  settings.style = MiniCpmStyle(Medium::kImage, "<|image_pad|>");
  settings.numbers = {TargetSizes(rules)};
  settings.tokens = [rules](const TiledPicture& picture) {
    return uint64_t{MiniCpmTokens(MiniCpmShapeOf(picture, rules), rules)};
  };
  settings.runs = [=](const TiledPicture& picture, std::vector<PlaceholderRun>& runs) {
    if (numbered) AddMiniCpmNumber(runs);
    AddMiniCpmRuns(MiniCpmShapeOf(picture, rules), rules, runs);
  };
  settings.cuts = [rules, filter = settings.pixels.filter](const TiledPicture& picture) {
    return CutsOf(picture, rules, filter);
  };
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<MediaFamily> pictures,
                            MakeTiles(std::move(settings), source.limits));
  return MakeMiniCpmFrames(std::move(pictures), numbered, source);
}

}  // namespace evenkeel::preprocess
