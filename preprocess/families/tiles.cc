#include "preprocess/families/tiles.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/patches.h"

namespace evenkeel::preprocess {
namespace {

uint32_t NumTiles(const std::vector<TileCut>& cuts) {
  uint32_t tiles = 0;
  for (const TileCut& cut : cuts) tiles += cut.columns * cut.rows;
  return tiles;
}

class Tiles final : public MediaFamily {
 public:
  Tiles(TileSettings settings, const Limits& limits)
      : settings_(std::move(settings)),
        limits_(limits),
        table_(settings_.pixels.Table()),
        fields_{TileField("pixel_values", settings_.pixels, settings_.tile)} {
    if (settings_.image_sizes) fields_.push_back({"image_sizes", DType::kI64, false, {2}, nullptr});
  }

  std::vector<MediumStyle> styles() const override { return {settings_.style}; }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    static const std::vector<FieldSpec>* const kNone = new std::vector<FieldSpec>();
    return medium == Medium::kImage ? fields_ : *kNone;
  }

  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override {
    if (!settings_.runs) return MediaFamily::Placeholders(facts, runs);
    EVENKEEL_RETURN_IF_ERROR(Measure(facts).status());
    runs.clear();
    settings_.runs(PictureSize(facts, settings_.pixels.picture), runs);
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
    std::vector<PictureTarget> targets;
    writers.reserve(cuts.size());
    size_t done = 0;
    for (const TileCut& cut : cuts) {
      const size_t bytes = tile_bytes * cut.columns * cut.rows;
      writers.emplace_back(TileShape(settings_.tile), settings_.tile.width * cut.columns,
                           settings_.pixels.wire, 1, table_, field_bytes[0].subspan(done, bytes));
      targets.push_back(cut.target);
      targets.back().sink = &writers.back();
      done += bytes;
    }
    return DecodePicture(request.suffix, request.bytes, limits_, options, header, targets);
  }

  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(Prepare(request, field_bytes).status());
    std::memset(field_bytes[0].data(), 0, field_bytes[0].size());
    return absl::OkStatus();
  }

  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = settings_.tile.width, facts.height = settings_.tile.height;
    return facts;
  }

  void AddTo(CanonicalText& text) const override {
    text.Add("vision.family", std::string_view(settings_.family));
    settings_.pixels.AddTo(text);
    const ImageSize tile = settings_.tile;
    text.Add("vision.side", uint64_t{tile.width});
    if (tile.height != tile.width) text.Add("vision.height", uint64_t{tile.height});
    text.Add("vision.tokens_per_tile", uint64_t{settings_.tokens_per_tile});
    text.Add("vision.patches_per_tile", uint64_t{settings_.patches_per_tile});
    settings_.add_to(text);
  }

 private:
  absl::StatusOr<std::vector<TileCut>> CutsOf(const MediaFacts& facts) const {
    if (facts.medium != Medium::kImage) {
      return absl::UnimplementedError(absl::StrCat("video of the family ", settings_.family));
    }
    const ImageSize size = PictureSize(facts, settings_.pixels.picture);
    if (size.width == 0 || size.height == 0) return absl::InvalidArgumentError("no pixels");
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<TileCut> cuts, settings_.cuts(size));
    for (const TileCut& cut : cuts) {
      const ImageSize resized = cut.target.resized;
      const ImageSize canvas = cut.target.window;
      const ImageSize largest = canvas.rgb_bytes() > resized.rgb_bytes() ? canvas : resized;
      if (resized.width == 0 || resized.height == 0 || largest.rgb_bytes() > 3 * limits_.max_image_pixels) {
        return absl::InvalidArgumentError(absl::StrCat("image of ", size.width, "x", size.height,
                                                       " pixels, which the processor makes ", largest.width,
                                                       "x", largest.height));
      }
    }
    return cuts;
  }

  absl::StatusOr<ItemLengths> LengthsOf(const std::vector<TileCut>& cuts, const MediaFacts& facts) const {
    const uint32_t tiles = NumTiles(cuts);
    uint64_t tokens = uint64_t{tiles} * settings_.tokens_per_tile;
    if (settings_.tokens) tokens = settings_.tokens(PictureSize(facts, settings_.pixels.picture));
    const uint64_t patches = uint64_t{tiles} * settings_.patches_per_tile;
    if (std::max(tokens, patches) > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat("image of ", tokens, " tokens"));
    }
    return ItemLengths{static_cast<uint32_t>(patches), tiles, static_cast<uint32_t>(tokens)};
  }

  absl::StatusOr<std::vector<TileCut>> Prepare(const ItemRequest& request,
                                               std::span<const std::span<std::byte>> field_bytes) const {
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<TileCut> cuts, CutsOf(request.facts));
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, LengthsOf(cuts, request.facts));
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("item of ", lengths.input_rows, " tiles where the plan says ",
                                              request.planned.input_rows));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
    if (settings_.image_sizes) {
      const ImageSize size = settings_.resized_sizes ? cuts.front().target.resized
                                                     : PictureSize(request.facts, settings_.pixels.picture);
      const int64_t sides[2] = {size.height, size.width};
      std::memcpy(field_bytes[1].data(), sides, sizeof(sides));
    }
    return cuts;
  }

  const TileSettings settings_;
  const Limits limits_;
  const std::vector<float> table_;
  std::vector<FieldSpec> fields_;
};

}  // namespace

absl::Status NotOfItsSize(std::string_view what, ImageSize size, ImageSize tile) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), " of ", size.width, "x", size.height,
                                                 " pixels, where do_resize is false and size says ",
                                                 tile.width, "x", tile.height));
}

absl::StatusOr<std::unique_ptr<MediaFamily>> MakeTiles(TileSettings settings, const Limits& limits) {
  EVENKEEL_RETURN_IF_ERROR(CheckTile(settings.pixels, settings.tile));
  return std::make_unique<Tiles>(std::move(settings), limits);
}

}  // namespace evenkeel::preprocess
