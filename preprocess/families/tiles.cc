// Cuts pictures into tiles: decodes once, resizes for every cut while rows arrive, and writes tiles in the
// model's order.
#include "preprocess/families/tiles.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/planar_picture.h"

namespace evenkeel::preprocess {
namespace {

uint32_t NumTiles(const std::vector<TileCut>& cuts) {
  uint32_t tiles = 0;
  for (const TileCut& cut : cuts) tiles += cut.columns * cut.rows;
  return tiles;
}

const std::vector<ImageSize>& LongestStages(const std::vector<TileCut>& cuts) {
  const TileCut* longest = &cuts.front();
  for (const TileCut& cut : cuts) {
    if (cut.stages.size() > longest->stages.size()) longest = &cut;
  }
  return longest->stages;
}

void WriteSides(ImageSize size, std::span<int64_t> out) {
  out[0] = size.height;
  out[1] = size.width;
}

class Tiles final : public MediaFamily {
 public:
  Tiles(TileSettings settings, const Limits& limits)
      : settings_(std::move(settings)),
        limits_(limits),
        table_(settings_.pixels.Table()),
        fields_{TileField("pixel_values", settings_.pixels, settings_.tile)} {
    for (const TileNumbers& numbers : settings_.numbers) {
      fields_.push_back({numbers.name, DType::kI64, false, numbers.shape, nullptr});
    }
  }

  std::vector<MediumStyle> styles() const override { return {settings_.style}; }
  uint32_t merge_size() const override { return settings_.merge_size; }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? fields_ : NoFields();
  }

  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override {
    if (!settings_.runs) return MediaFamily::Placeholders(facts, runs);
    EVENKEEL_RETURN_IF_ERROR(Measure(facts).status());
    runs.clear();
    settings_.runs(PictureOf(facts), runs);
    return absl::OkStatus();
  }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<TileCut> cuts, CutsOf(facts));
    return LengthsOf(cuts, facts);
  }

  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<TileCut> cuts, Prepare(request, field_bytes));
    const PictureOptions& options = settings_.pixels.picture;
    EVENKEEL_ASSIGN_OR_RETURN(PictureHeader header, ReadKnownPictureHeader(request.suffix, request.bytes,
                                                                           limits_, options, request.facts));
    const size_t tile_bytes = field_bytes[0].size() / request.planned.input_rows;
    std::vector<PatchWriter> writers;
    std::vector<PictureTarget> targets;  // resizes of the decoded picture; cuts with stages come later
    writers.reserve(cuts.size());
    size_t done = 0;
    for (const TileCut& cut : cuts) {
      const size_t bytes = tile_bytes * cut.columns * cut.rows;
      writers.emplace_back(TileShape(settings_.tile), settings_.tile.width * cut.columns,
                           settings_.pixels.wire, 1, table_, field_bytes[0].subspan(done, bytes));
      done += bytes;
      if (!cut.stages.empty()) continue;
      targets.push_back(cut.target);
      targets.back().sink = &writers.back();
    }
    const std::vector<ImageSize>& stages = LongestStages(cuts);
    static thread_local PlanarPicture stage;
    if (!stages.empty()) {
      stage.Start(stages.front());
      targets.push_back({.resized = stages.front(), .filter = settings_.pixels.filter, .sink = &stage});
    }
    EVENKEEL_RETURN_IF_ERROR(DecodePicture(request.suffix, request.bytes, limits_, options, header, targets));
    for (size_t level = 0; level < stages.size(); ++level) {
      for (size_t i = 0; i < cuts.size(); ++i) {
        if (cuts[i].stages.size() == level + 1)
          stage.ResizeTo(cuts[i].target.resized, settings_.pixels, writers[i]);
      }
      if (level + 1 == stages.size()) break;
      static thread_local PlanarPicture next;
      next.Start(stages[level + 1]);
      stage.ResizeTo(stages[level + 1], settings_.pixels, next);
      std::swap(stage, next);
    }
    return absl::OkStatus();
  }

  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    return Prepare(request, field_bytes).status();
  }

  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = settings_.tile.width, facts.height = settings_.tile.height;
    return facts;
  }

 private:
  TiledPicture PictureOf(const MediaFacts& facts) const {
    return {PictureSize(facts, settings_.pixels.picture), PicturesOfSample(facts)};
  }
  absl::StatusOr<std::vector<TileCut>> CutsOf(const MediaFacts& facts) const {
    if (facts.medium != Medium::kImage) {
      return absl::UnimplementedError(
          absl::StrCat("video of the family ", settings_.family,
                       ", which is not implemented; processor.python: transformers "
                       "lets Python make it"));
    }
    const TiledPicture size = PictureOf(facts);
    if (size.width == 0 || size.height == 0)
      return absl::InvalidArgumentError("image without pixels: its width or height is 0");
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<TileCut> cuts, settings_.cuts(size));
    for (const TileCut& cut : cuts) {
      const ImageSize resized = cut.target.resized;
      const ImageSize canvas = cut.target.window;
      ImageSize largest = canvas.rgb_bytes() > resized.rgb_bytes() ? canvas : resized;
      for (const ImageSize& stage : cut.stages) {
        if (stage.rgb_bytes() > largest.rgb_bytes()) largest = stage;
      }
      const bool is_empty = resized.width == 0 || resized.height == 0;
      if (is_empty || largest.rgb_bytes() > 3 * limits_.max_image_pixels) {
        return absl::InvalidArgumentError(
            absl::StrCat("image of ", size.width, "x", size.height,
                         " pixels, which the processor would resize to ", largest.width, "x", largest.height,
                         is_empty ? ", which has no pixels" : ", more than limits.max_image_pixels allows"));
      }
    }
    return cuts;
  }

  absl::StatusOr<ItemLengths> LengthsOf(const std::vector<TileCut>& cuts, const MediaFacts& facts) const {
    const uint32_t tiles = NumTiles(cuts);
    uint64_t tokens = uint64_t{tiles} * settings_.tokens_per_tile;
    if (settings_.tokens) tokens = settings_.tokens(PictureOf(facts));
    const uint64_t patches = uint64_t{tiles} * settings_.patches_per_tile;
    if (std::max(tokens, patches) > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat("image of ", tokens, " tokens"));
    }
    return ItemLengths{static_cast<uint32_t>(patches), tiles, static_cast<uint32_t>(tokens)};
  }

  // As WriteFacts(); returns the picture's cuts.
  absl::StatusOr<std::vector<TileCut>> Prepare(const ItemRequest& request,
                                               std::span<const std::span<std::byte>> field_bytes) const {
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<TileCut> cuts, CutsOf(request.facts));
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, LengthsOf(cuts, request.facts));
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("got an item of ", lengths.input_rows, " tiles, the plan has ",
                                              request.planned.input_rows));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
    for (size_t i = 0; i < settings_.numbers.size(); ++i) {
      const std::span<std::byte> bytes = field_bytes[1 + i];
      settings_.numbers[i].write(PictureOf(request.facts), cuts,
                                 {reinterpret_cast<int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)});
    }
    return cuts;
  }

  const TileSettings settings_;
  const Limits limits_;
  const std::vector<float> table_;
  std::vector<FieldSpec> fields_;
};

}  // namespace

std::vector<TileCut> GridThenWhole(TileGrid grid, ImageSize tile, ResizeFilter filter) {
  std::vector<TileCut> cuts = {
      {{.resized = grid.Canvas(tile), .filter = filter}, grid.columns, grid.rows, {}}};
  if (grid.tiles() > 1) cuts.push_back({{.resized = tile, .filter = filter}, 1, 1, {}});
  return cuts;
}

absl::Status SetSquareTile(const ConfigFile& config, const SideSizes& size,
                           const CheckpointFolder& checkpoint, uint32_t patch, TileSettings& settings) {
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t side, SquareSide(config, "size", size));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t of_model, VisionPatchSize(checkpoint, patch));
  settings.tile = {side, side};
  EVENKEEL_ASSIGN_OR_RETURN(settings.patches_per_tile, WholePatches(config, "size", settings.tile, of_model));
  return absl::OkStatus();
}

absl::Status NotOfItsSize(std::string_view what, ImageSize size, ImageSize tile) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), " of ", size.width, "x", size.height,
                                                 " pixels, but do_resize is false and size is ", tile.width,
                                                 "x", tile.height));
}

TileNumbers ImageSizes() {
  return {"image_sizes", {2}, [](const TiledPicture& picture, const auto&, std::span<int64_t> out) {
            WriteSides(picture, out);
          }};
}

TileNumbers ResizedSizes() {
  return {"image_sizes", {2}, [](const auto&, const std::vector<TileCut>& cuts, std::span<int64_t> out) {
            WriteSides(cuts.front().target.resized, out);
          }};
}

absl::StatusOr<std::unique_ptr<MediaFamily>> MakeTiles(TileSettings settings, const Limits& limits) {
  EVENKEEL_RETURN_IF_ERROR(CheckTile(settings.pixels, settings.tile));
  return std::make_unique<Tiles>(std::move(settings), limits);
}

}  // namespace evenkeel::preprocess
