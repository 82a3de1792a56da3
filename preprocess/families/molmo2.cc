// Molmo 2: the whole picture as one crop, then the picture as overlapping crops, all as patches whose channels are
// last; tokens are squares of patches, of which an overlap counts once. Frames of videos are one crop each, after their
// times.
//
// The rules are those of transformers' models/molmo2/{image_processing,video_processing,processing}_molmo2.py, which
// has them for torchvision alone. Pictures are interpolated as floats without a widened filter, and rounded to bytes.
#include "preprocess/families/molmo2.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/frame_tiles.h"
#include "preprocess/families/interleaved_patches.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/resize/float_resizer.h"
#include "preprocess/resize/interpolator.h"
#include "preprocess/scratch.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxCrops = 64;
constexpr char kVideoClass[] = "Molmo2VideoProcessor";
// Indices into MediumStyle::tokens.
constexpr uint32_t kBegin = 0, kEnd = 1, kColumn = 2, kWholeBegin = 3, kFrameBegin = 3, kFrameEnd = 4;

uint32_t UpTo(uint32_t value, uint32_t of) { return (value + of - 1) / of; }

// A grid of patches in windows of pool_height x pool_width patches, each a token.
struct PooledGrid {
  uint32_t rows = 0;  // patches
  uint32_t columns = 0;
  uint32_t pool_height = 1, pool_width = 1;

  uint32_t token_rows() const { return UpTo(rows, pool_height); }
  uint32_t token_columns() const { return UpTo(columns, pool_width); }
  uint32_t tokens() const { return token_rows() * token_columns(); }
  uint32_t pool() const { return pool_height * pool_width; }

  // Writes the number of each patch of each window; -1 beyond the grid, which is centred among whole windows. Returns
  // the end.
  template <typename Number>
  int64_t* Write(const Number& number, int64_t* out) const {
    const int64_t top = (token_rows() * pool_height - rows) / 2;
    const int64_t left = (token_columns() * pool_width - columns) / 2;
    for (uint32_t token = 0; token < tokens(); ++token) {
      const int64_t y0 = int64_t{token / token_columns()} * pool_height - top;
      const int64_t x0 = int64_t{token % token_columns()} * pool_width - left;
      for (int64_t y = y0; y < y0 + pool_height; ++y) {
        for (int64_t x = x0; x < x0 + pool_width; ++x) {
          const bool inside = y >= 0 && y < rows && x >= 0 && x < columns;
          *out++ = inside ? number(static_cast<uint32_t>(y), static_cast<uint32_t>(x)) : -1;
        }
      }
    }
    return out;
  }
};

// The runs of a grid's rows of tokens between its marks.
void AddGrid(const PooledGrid& grid, uint32_t begin, uint32_t end, bool column_marks,
             std::vector<PlaceholderRun>& runs) {
  runs.push_back({.token = begin});
  if (column_marks) {
    for (uint32_t row = 0; row < grid.token_rows(); ++row) {
      runs.push_back({.rows = grid.token_columns()});
      runs.push_back({.token = kColumn});
    }
  } else {
    runs.push_back({.rows = grid.tokens()});
  }
  runs.push_back({.token = end});
}

// A picture or frame in the size of its crops, as bytes.
class Interpolated {
 public:
  // Begins a picture of `in` pixels; `out` receives its rows.
  void Start(ImageSize in, ImageSize out, ResizeFilter filter) {
    size_ = out;
    floats_ = float_memory_.GetAs<float>(out.rgb_bytes());
    interpolator_.Start({.in = in, .out = out, .filter = filter}, kBytes, floats_);
  }
  RowSink& sink() { return interpolator_; }
  // Once all rows came.
  void Finish() {
    bytes_ = byte_memory_.Get(floats_.size());
    RoundToBytes(floats_, bytes_);
  }
  // Gives the rows of a square window to `out`.
  void Cut(uint32_t left, uint32_t top, uint32_t side, RowSink& out) const {
    const size_t plane = size_t{size_.width} * size_.height;
    for (uint32_t y = top; y < top + side; ++y) {
      const uint8_t* const row = bytes_ + size_t{y} * size_.width + left;
      out.Take({{row, row + plane, row + 2 * plane}, side});
    }
  }

 private:
  static constexpr std::array<float, 3 * 256> kBytes = [] {
    std::array<float, 3 * 256> table{};
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i % 256);
    return table;
  }();

  ImageSize size_;
  Interpolator interpolator_;
  ScratchBytes float_memory_, byte_memory_;
  std::span<float> floats_;
  uint8_t* bytes_ = nullptr;
};

// Crops of [patches^2, patch^2 * 3] values.
FieldSpec CropField(const char* name, const PixelSettings& pixels, const Molmo2Rules& rules) {
  const uint32_t patches = rules.patches() * rules.patches(), values = rules.patch * rules.patch;
  FieldSpec field = TileField(name, pixels, {values, patches});
  if (pixels.wire != Wire::kU8) field.trailing = {patches, uint64_t{3} * values};
  return field;
}

struct Molmo2Video {
  PixelSettings pixels;
  Molmo2Rules rules;  // of frames, which are one crop each
  FrameChoice frames;
  bool upright = false;
};

struct Molmo2Words {
  bool columns = true;         // <im_col> after rows of the crops
  bool whole_columns = true;   // the same of the whole picture
  bool whole_begin = true;     // <low_res_im_start> before it
  bool frame_columns = false;  // <im_col> after rows of frames
  bool frame_marks = true;     // <frame_start> and <frame_end> around frames
};

class Molmo2 final : public MediaFamily {
 public:
  Molmo2(const PixelSettings& pixels, const Molmo2Rules& rules, const Molmo2Words& words,
         absl::StatusOr<Molmo2Video> video, const Limits& limits)
      : pixels_(pixels),
        rules_(rules),
        words_(words),
        video_(std::move(video)),
        limits_(limits),
        table_(pixels.Table()) {
    const uint64_t pool = uint64_t{rules.pool_height} * rules.pool_width;
    fields_ = {CropField("pixel_values", pixels, rules),
               {"image_token_pooling", DType::kI64, false, {MaxTokens(), pool}, nullptr},
               {"image_grids", DType::kI64, false, {4}, nullptr},
               {"image_num_crops", DType::kI64, false, {}, nullptr}};
    if (!video_.ok()) return;
    video_table_ = video_->pixels.Table();
    const PooledGrid frame = WholeGrid(video_->rules);
    video_fields_ = {CropField("pixel_values_videos", video_->pixels, video_->rules),
                     {"video_token_pooling", DType::kI64, true, {frame.tokens(), frame.pool()}, nullptr},
                     {"video_grids", DType::kI64, false, {3}, nullptr}};
  }

  std::vector<MediumStyle> styles() const override;
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    if (medium == Medium::kVideo) return video_fields_;
    return medium == Medium::kImage ? fields_ : NoFields();
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override;
  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override;
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override;
  MediaFacts DummyFacts() const override { return {.width = rules_.side, .height = rules_.side}; }

 private:
  static PooledGrid WholeGrid(const Molmo2Rules& rules) {
    return {rules.patches(), rules.patches(), rules.pool_height, rules.pool_width};
  }
  PooledGrid CropsGrid(TileGrid grid) const {
    return {grid.rows * rules_.window() + rules_.margin(), grid.columns * rules_.window() + rules_.margin(),
            rules_.pool_height, rules_.pool_width};
  }
  // The most tokens that a picture has.
  uint64_t MaxTokens() const {
    uint64_t most = 0;
    for (const TileGrid grid : GridsByArea(1, rules_.max_crops)) {
      most = std::max<uint64_t>(most, CropsGrid(grid).tokens());
    }
    return WholeGrid(rules_).tokens() + most;
  }
  // The grid of a picture. InvalidArgument: it has no pixels, or too many in its crops.
  absl::StatusOr<TileGrid> GridOf(const MediaFacts& facts) const;
  absl::StatusOr<uint32_t> FramesOf(const MediaFacts& facts) const;
  ImageSize FrameSize(const MediaFacts& facts) const {
    const MediaFacts seen = video_->upright ? Upright(facts) : facts;
    return {seen.width, seen.height};
  }
  void WritePooling(TileGrid grid, std::span<int64_t> out) const;
  void WriteFrameFacts(uint32_t frames, std::span<const std::span<std::byte>> field_bytes) const;
  absl::Status ProduceFrames(const ItemRequest& request,
                             std::span<const std::span<std::byte>> field_bytes) const;

  const PixelSettings pixels_;
  const Molmo2Rules rules_;
  const Molmo2Words words_;
  const absl::StatusOr<Molmo2Video> video_;  // an error: why videos are refused
  const Limits limits_;
  const std::vector<float> table_;
  std::vector<float> video_table_;
  std::vector<FieldSpec> fields_, video_fields_;
};

std::vector<MediumStyle> Molmo2::styles() const {
  MediumStyle style{.placeholder = "<im_patch>", .in_template = "<|image|>", .begins_text = true};
  style.tokens = {"<im_start>", "<im_end>", "<im_col>", "<low_res_im_start>"};
  if (!video_.ok()) return {style};
  MediumStyle video = style;
  video.medium = Medium::kVideo;
  video.in_template = "<|video|>";
  video.tokens = {"<im_start>", "<im_end>", "<im_col>", "<frame_start>", "<frame_end>"};
  return {style, video};
}

absl::StatusOr<TileGrid> Molmo2::GridOf(const MediaFacts& facts) const {
  const ImageSize picture = PictureSize(facts, pixels_.picture);
  if (picture.width == 0 || picture.height == 0)
    return absl::InvalidArgumentError("image without pixels: its width or height is 0");
  const TileGrid grid = Molmo2Grid(picture, rules_);
  const ImageSize canvas = Molmo2Canvas(grid, rules_);
  if (canvas.rgb_bytes() <= 3 * limits_.max_image_pixels) return grid;
  return absl::InvalidArgumentError(absl::StrCat(
      "image of ", picture.width, "x", picture.height, " pixels, which the processor would resize to ",
      canvas.width, "x", canvas.height, ", more than limits.max_image_pixels allows"));
}

absl::StatusOr<uint32_t> Molmo2::FramesOf(const MediaFacts& facts) const {
  if (!video_.ok()) return absl::UnimplementedError(absl::StrCat("video: ", video_.status().message()));
  if (facts.width == 0 || facts.height == 0) return absl::InvalidArgumentError("video without pixels");
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t frames, NumChosenFrames(video_->frames, facts));
  const uint64_t patches = uint64_t{video_->rules.patches()} * video_->rules.patches();
  if (frames * patches > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("video of ", frames, " frames of ", patches, " patches each"));
  }
  return frames;
}

absl::StatusOr<ItemLengths> Molmo2::Measure(const MediaFacts& facts) const {
  if (facts.medium == Medium::kVideo) {
    EVENKEEL_ASSIGN_OR_RETURN(const uint32_t frames, FramesOf(facts));
    const uint32_t patches = video_->rules.patches() * video_->rules.patches();
    return ItemLengths{frames * patches, frames, frames * WholeGrid(video_->rules).tokens()};
  }
  EVENKEEL_ASSIGN_OR_RETURN(const TileGrid grid, GridOf(facts));
  const uint32_t crops = 1 + grid.tiles();
  return ItemLengths{crops * rules_.patches() * rules_.patches(), crops,
                     WholeGrid(rules_).tokens() + CropsGrid(grid).tokens()};
}

absl::Status Molmo2::Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const {
  runs.clear();
  if (facts.medium != Medium::kVideo) {
    EVENKEEL_ASSIGN_OR_RETURN(const TileGrid grid, GridOf(facts));
    AddGrid(WholeGrid(rules_), words_.whole_begin ? kWholeBegin : kBegin, kEnd, words_.whole_columns, runs);
    AddGrid(CropsGrid(grid), kBegin, kEnd, words_.columns, runs);
    return absl::OkStatus();
  }
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t frames, FramesOf(facts));
  static thread_local std::vector<uint32_t> chosen;
  ChooseFrames(video_->frames, facts, frames, /*times=*/{}, chosen);
  const double fps = static_cast<double>(facts.fps_num) / facts.fps_den;
  for (uint32_t i = 0; i < frames; ++i) {
    runs.push_back({.text = absl::StrFormat("%s%.1f ", i == 0 ? "" : " ", chosen[i] / fps)});
    AddGrid(WholeGrid(video_->rules), words_.frame_marks ? kFrameBegin : kBegin,
            words_.frame_marks ? kFrameEnd : kEnd, words_.frame_columns, runs);
  }
  return absl::OkStatus();
}

// The numbers of the patches of each token, those of the whole picture first; the rest is -1. Of a patch that several
// crops have, each crop but the one whose margin it is not in leaves it out.
void Molmo2::WritePooling(TileGrid grid, std::span<int64_t> out) const {
  const uint32_t side = rules_.patches(), window = rules_.window();
  int64_t* end =
      WholeGrid(rules_).Write([side](uint32_t y, uint32_t x) { return int64_t{y} * side + x; }, out.data());
  // The crop along an axis that a patch is taken of, and its place there.
  const auto crop_of = [&](uint32_t at, uint32_t crops) {
    return at < rules_.before ? 0 : std::min((at - rules_.before) / window, crops - 1);
  };
  end = CropsGrid(grid).Write(
      [&](uint32_t y, uint32_t x) {
        const uint32_t row = crop_of(y, grid.rows), column = crop_of(x, grid.columns);
        const int64_t crop = 1 + int64_t{row} * grid.columns + column;
        return (crop * side + y - row * window) * side + x - column * window;
      },
      end);
  std::fill(end, out.data() + out.size(), -1);
}

void Molmo2::WriteFrameFacts(uint32_t frames, std::span<const std::span<std::byte>> field_bytes) const {
  const PooledGrid grid = WholeGrid(video_->rules);
  auto* out = reinterpret_cast<int64_t*>(field_bytes[1].data());
  for (int64_t frame = 0; frame < frames; ++frame) {
    out = grid.Write([&](uint32_t y, uint32_t x) { return (frame * grid.rows + y) * grid.columns + x; }, out);
  }
  const int64_t sizes[] = {frames, grid.token_rows(), grid.token_columns()};
  std::memcpy(field_bytes[2].data(), sizes, sizeof(sizes));
}

absl::Status Molmo2::WriteFacts(const ItemRequest& request,
                                std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, Measure(request.facts));
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got an item of ", lengths.input_rows, " crops, the plan has ",
                                            request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields(request.medium), lengths, field_bytes));
  if (request.medium == Medium::kVideo) {
    WriteFrameFacts(lengths.input_rows, field_bytes);
    return absl::OkStatus();
  }
  EVENKEEL_ASSIGN_OR_RETURN(const TileGrid grid, GridOf(request.facts));
  WritePooling(grid,
               {reinterpret_cast<int64_t*>(field_bytes[1].data()), field_bytes[1].size() / sizeof(int64_t)});
  const PooledGrid whole = WholeGrid(rules_), crops = CropsGrid(grid);
  const int64_t sizes[] = {whole.token_rows(), whole.token_columns(), crops.token_rows(),
                           crops.token_columns()};
  std::memcpy(field_bytes[2].data(), sizes, sizeof(sizes));
  const int64_t count = lengths.input_rows;
  std::memcpy(field_bytes[3].data(), &count, sizeof(count));
  return absl::OkStatus();
}

absl::Status Molmo2::Produce(const ItemRequest& request,
                             std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
  if (request.medium == Medium::kVideo) return ProduceFrames(request, field_bytes);
  EVENKEEL_ASSIGN_OR_RETURN(const TileGrid grid, GridOf(request.facts));
  EVENKEEL_ASSIGN_OR_RETURN(
      const PictureHeader header,
      ReadKnownPictureHeader(request.suffix, request.bytes, limits_, pixels_.picture, request.facts));
  static thread_local Interpolated whole, canvas;
  whole.Start(header.size, {rules_.side, rules_.side}, pixels_.filter);
  canvas.Start(header.size, Molmo2Canvas(grid, rules_), pixels_.filter);
  const PictureTarget targets[] = {{.resized = header.size, .sink = &whole.sink()},
                                   {.resized = header.size, .sink = &canvas.sink()}};
  EVENKEEL_RETURN_IF_ERROR(
      DecodePicture(request.suffix, request.bytes, limits_, pixels_.picture, header, targets));
  whole.Finish();
  canvas.Finish();
  const size_t crop_bytes = field_bytes[0].size() / request.planned.input_rows;
  const uint32_t step = rules_.window() * rules_.patch;
  for (uint32_t crop = 0; crop < request.planned.input_rows; ++crop) {
    InterleavedPatches writer(rules_.patch, pixels_.wire, table_,
                              field_bytes[0].subspan(crop * crop_bytes, crop_bytes));
    if (crop == 0) {
      whole.Cut(0, 0, rules_.side, writer);
    } else {
      canvas.Cut((crop - 1) % grid.columns * step, (crop - 1) / grid.columns * step, rules_.side, writer);
    }
  }
  return absl::OkStatus();
}

absl::Status Molmo2::ProduceFrames(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const {
  const Molmo2Rules& rules = video_->rules;
  const ImageSize native = FrameSize(request.facts);
  const size_t bytes = field_bytes[0].size() / request.planned.input_rows;
  auto sink = [&](size_t position, FrameRows rows) -> absl::Status {
    static thread_local Interpolated frame;
    frame.Start(native, {rules.side, rules.side}, video_->pixels.filter);
    EVENKEEL_RETURN_IF_ERROR(ResizeFrame(rows, native, video_->pixels, {.resized = native}, frame.sink()));
    frame.Finish();
    InterleavedPatches writer(rules.patch, video_->pixels.wire, video_table_,
                              field_bytes[0].subspan(bytes * position, bytes));
    frame.Cut(0, 0, rules.side, writer);
    return absl::OkStatus();
  };
  return DecodeChosenFrames(request, limits_, video_->frames, request.planned.input_rows, video_->upright,
                            std::ref(sink));
}

// The side of pictures or frames, in whole patches, and how they are pooled.
absl::Status ReadCrops(ConfigFile& config, const PixelSettings& pixels, Molmo2Rules& rules) {
  const SideSizes size =
      ReadSideSizes(config, "size", NumberIs::kSquare, {.height = rules.side, .width = rules.side});
  rules.patch = static_cast<uint32_t>(config.Uint("patch_size", rules.patch, 1, 256));
  if (config.Has("pooling_size")) {
    const std::vector<uint64_t> pool = config.Uints("pooling_size", 2, 1, 256);
    rules.pool_height = static_cast<uint32_t>(pool[0]);
    rules.pool_width = static_cast<uint32_t>(pool[1]);
  }
  config.Resolved("pooling_size", {uint64_t{rules.pool_height}, uint64_t{rules.pool_width}});
  // Both are resized whatever the file has for do_resize.
  config.Passed("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "patch_size", "pooling_size"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(rules.side, SquareSide(config, "size", size));
  if (rules.side % rules.patch != 0) {
    return config.Error(
        "size", absl::StrCat("is ", rules.side, " pixels, which are not whole patches of ", rules.patch));
  }
  const bool known = pixels.filter == ResizeFilter::kBilinear || pixels.filter == ResizeFilter::kBicubic;
  if (!known) return config.Error("resample", "only bilinear and bicubic are implemented for Molmo 2");
  if (2 * rules.side <= Interpolator::kOtherKernel) {
    return config.Error("size", absl::StrCat("is not above ", Interpolator::kOtherKernel / 2,
                                             " pixels; torch rounds smaller ones otherwise"));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckInterleaved(config, pixels));
  return CheckTile(pixels, {rules.patch * rules.patch, rules.patches() * rules.patches()});
}

// The folder's settings of videos. NotFound or Unimplemented: why there are none.
absl::StatusOr<Molmo2Video> ReadVideo(const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadVideoProcessor(source.checkpoint));
  const std::string kind = config.Choice("video_processor_type", "");
  if (kind != kVideoClass) {
    return absl::UnimplementedError(absl::StrCat(source.checkpoint.folder, ": only ", kVideoClass,
                                                 " is implemented, which no file of videos names"));
  }
  // Unlike others, the class does neither unless its file has it.
  for (const char* key : {"do_rescale", "do_normalize"}) {
    if (!config.Has(key)) config.Passed(key, false);
  }
  Molmo2Video out;
  EVENKEEL_ASSIGN_OR_RETURN(
      out.pixels, ReadPixelSettings(config, source.ForFrames(), kHalves, kHalves, ResizeFilter::kBilinear));
  FrameChoice& frames = out.frames;
  frames.multiple = 1;
  EVENKEEL_ASSIGN_OR_RETURN(frames.rule, FrameRuleOf(source.spec.frame_rule, FrameRule::kMolmo2Processor,
                                                     FrameRule::kMolmo2Processor));
  EVENKEEL_RETURN_IF_ERROR(CheckAskedFrames(source.spec, frames.rule));
  const bool samples = config.Flag("do_sample_frames", true);
  const auto num_frames = static_cast<uint32_t>(config.Uint("num_frames", 64, 1, 1 << 20));
  const double max_fps = config.Real("max_fps", 2);
  const bool uniform = frames.rule == FrameRule::kUniform;
  if (config.Has("fps") || (source.spec.fps.has_value() && !uniform)) {
    return absl::UnimplementedError(
        config
            .Error("fps",
                   "is given, by the file or the job, which fails in transformers together with the class's "
                   "num_frames; max_fps of the file bounds the rate")
            .message());
  }
  if (!(max_fps > 0)) return config.Error("max_fps", "is not positive");
  const bool asks_bounds = source.spec.min_frames || source.spec.max_frames;
  frames.min_frames = source.spec.min_frames.value_or(kVideoDefaults.min_frames);
  frames.max_frames = source.spec.max_frames.value_or(kVideoDefaults.max_frames);
  frames.fps = uniform ? source.spec.fps.value_or(kVideoDefaults.fps) : max_fps;
  frames.num_frames = uniform ? 0 : asks_bounds ? frames.min_frames : num_frames;
  if (source.spec.frame_rule.empty() && !asks_bounds && !samples) frames.rule = FrameRule::kAll;
  out.upright = source.spec.apply_video_rotation;
  AddFrames(config, frames, out.upright);
  config.NotNull({"num_frames", "max_fps", "do_sample_frames"});
  out.rules.pool_height = out.rules.pool_width = 3;
  EVENKEEL_RETURN_IF_ERROR(ReadCrops(config, out.pixels, out.rules));
  return out;
}

absl::StatusOr<Molmo2Words> ReadWords(const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  Molmo2Words out;
  // A null is "no", except of the second, which then is as the first.
  const auto flag = [&outer](const char* key, bool usual) {
    return outer.Flag(key, usual && !outer.IsNull(key));
  };
  out.columns = flag("image_use_col_tokens", true);
  out.whole_columns = outer.Flag("use_single_crop_col_tokens", out.columns);
  out.whole_begin = flag("use_single_crop_start_token", true);
  out.frame_columns = flag("video_use_col_tokens", false);
  out.frame_marks = flag("use_frame_special_tokens", true);
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  return out;
}

}  // namespace

TileGrid Molmo2Grid(ImageSize picture, const Molmo2Rules& rules) {
  const uint32_t margin = rules.margin() * rules.patch, window = rules.window() * rules.patch;
  // Without its margins, a small picture has no pixels, or less: as in the original, whose scales are then below 0.
  const auto height = static_cast<float>(int64_t{picture.height} - margin);
  const auto width = static_cast<float>(int64_t{picture.width} - margin);
  std::vector<TileGrid> grids;
  for (uint32_t rows = 1; rows <= rules.max_crops; ++rows) {
    for (uint32_t columns = 1; rows * columns <= rules.max_crops; ++columns) grids.push_back({columns, rows});
  }
  std::stable_sort(grids.begin(), grids.end(), [](TileGrid a, TileGrid b) { return a.tiles() < b.tiles(); });
  const auto scale_of = [&](TileGrid grid) {
    return std::min(static_cast<float>(grid.rows * window) / height,
                    static_cast<float>(grid.columns * window) / width);
  };
  const bool all_reduce =
      std::all_of(grids.begin(), grids.end(), [&](TileGrid grid) { return scale_of(grid) < 1; });
  TileGrid best = grids.front();
  for (const TileGrid grid : grids) {
    constexpr float kNotEnlarged = 10e9f;  // of a grid that would reduce the picture
    const auto cost = [&](TileGrid of) { return scale_of(of) < 1 ? kNotEnlarged : scale_of(of); };
    if (all_reduce ? scale_of(grid) > scale_of(best) : cost(grid) < cost(best)) best = grid;
  }
  return best;
}

ImageSize Molmo2Canvas(TileGrid grid, const Molmo2Rules& rules) {
  return {(grid.columns * rules.window() + rules.margin()) * rules.patch,
          (grid.rows * rules.window() + rules.margin()) * rules.patch};
}

MadeFamily MakeMolmo2(ConfigFile config, const FamilySource& source) {
  Molmo2Rules rules;
  EVENKEEL_ASSIGN_OR_RETURN(const PixelSettings pixels, ReadPixelSettings(config, source.spec, kHalves,
                                                                          kHalves, ResizeFilter::kBilinear));
  rules.max_crops = static_cast<uint32_t>(config.Uint("max_crops", rules.max_crops, 1, kMaxCrops));
  if (config.Has("overlap_margins")) {
    const std::vector<uint64_t> margins = config.Uints("overlap_margins", 2, 0, 1 << 10);
    rules.before = static_cast<uint32_t>(margins[0]);
    rules.after = static_cast<uint32_t>(margins[1]);
  }
  config.Resolved("overlap_margins", {uint64_t{rules.before}, uint64_t{rules.after}});
  config.NotNull({"max_crops", "overlap_margins"});
  EVENKEEL_RETURN_IF_ERROR(ReadCrops(config, pixels, rules));
  if (rules.margin() >= rules.patches()) {
    return config.Error(
        "overlap_margins",
        absl::StrCat("are ", rules.margin(), " patches together; a crop has ", rules.patches(), " a side"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const Molmo2Words words, ReadWords(source));
  absl::StatusOr<Molmo2Video> video = ReadVideo(source);
  if (!video.ok() && !absl::IsNotFound(video.status()) && !absl::IsUnimplemented(video.status())) {
    return video.status();
  }
  return std::make_unique<Molmo2>(pixels, rules, words, std::move(video), source.limits);
}

}  // namespace evenkeel::preprocess
