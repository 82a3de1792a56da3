// Connects a decoder with the resizers of one or several targets: bands pass through padding, resizing,
// colour conversion and framing without a full picture in memory.
#include "preprocess/image/picture.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image/turned_picture.h"
#include "preprocess/image/ycc_rows.h"
#include "preprocess/resize/row_resizer.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxReduction = 8;

// Adds rows and columns of one colour around the part of a window that the picture covers.
class FramedRows final : public RowSink {
 public:
  // `left` and `top`: position of the picture's rows of `width` bytes in the window.
  void Start(ImageSize window, uint32_t left, uint32_t top, uint32_t height, const Colour& colour,
             RowSink* sink) {
    colour_ = colour;
    window_ = window, left_ = left, bottom_ = window.height - top - height, height_ = height, taken_ = 0;
    sink_ = sink;
    planes_.resize(size_t{3} * window.width);
    Clear();
    for (uint32_t y = 0; y < top; ++y) Deliver();
  }
  void Take(const PlanarRow& row) override {
    for (uint32_t c = 0; c < 3; ++c) std::memcpy(plane(c) + left_, row.plane[c], row.width);
    Deliver();
    if (++taken_ < height_) return;
    Clear();
    for (uint32_t y = 0; y < bottom_; ++y) Deliver();
  }

 private:
  uint8_t* plane(uint32_t c) { return planes_.data() + size_t{c} * window_.width; }
  void Clear() {
    for (uint32_t c = 0; c < 3; ++c) std::memset(plane(c), colour_[c], window_.width);
  }
  void Deliver() { sink_->Take({{plane(0), plane(1), plane(2)}, window_.width}); }

  Colour colour_{};
  ImageSize window_;
  uint32_t left_ = 0;
  uint32_t bottom_ = 0;
  uint32_t height_ = 0;
  uint32_t taken_ = 0;
  RowSink* sink_ = nullptr;
  std::vector<uint8_t> planes_;
};

// Converts rows of Y, Cb and Cr to RGB; passes RGB rows on.
class ColouredRows final : public RowSink {
 public:
  void Start(uint32_t width, RowSink* sink) {
    sink_ = sink, ycc_ = false;
    stride_ = (size_t{width} + kYccBlock - 1) / kYccBlock * kYccBlock;
    planes_.resize(3 * stride_);
  }
  void set_ycc(bool ycc) { ycc_ = ycc; }
  void Take(const PlanarRow& row) override {
    if (!ycc_) return sink_->Take(row);
    uint8_t* const out[] = {planes_.data(), planes_.data() + stride_, planes_.data() + 2 * stride_};
    // The conversion reads whole blocks, and a row may end at the end of its memory: hence the copy.
    for (uint32_t c = 0; c < 3; ++c) std::memcpy(out[c], row.plane[c], row.width);
    kernels_.full_to_rgb(out[0], out[1], out[2], row.width, out);
    sink_->Take({{out[0], out[1], out[2]}, row.width});
  }

 private:
  const YccKernels& kernels_ = YccKernelsOf(YccPath::kFastest);
  RowSink* sink_ = nullptr;
  bool ycc_ = false;
  size_t stride_ = 0;
  std::vector<uint8_t> planes_;
};

// Places the rows of a picture in the middle of a square of one colour.
class SquareRows {
 public:
  // Returns the side of the square.
  uint32_t Start(ImageSize size, const Colour& colour) {
    size_ = size, side_ = std::max(size.width, size.height), taken_ = 0, colour_ = colour;
    stride_ = size_t{3} * side_;
    band_.resize(stride_ * kBandRows);
    Clear();
    return side_;
  }
  // Passes the square's rows to `feed(band)`.
  template <typename Feed>
  void Take(const PixelBand& rows, const Feed& feed) {
    const uint32_t above = (side_ - size_.height) / 2, left = (side_ - size_.width) / 2;
    if (taken_ == 0) Blank(above, feed);
    for (uint32_t done = 0; done < rows.rows;) {
      const uint32_t count = std::min(kBandRows, rows.rows - done);
      for (uint32_t r = 0; r < count; ++r) {
        CopyInterleaved(rows, done + r, size_.width, band_.data() + stride_ * r + size_t{3} * left);
      }
      feed(InterleavedBand(band_.data(), stride_, count));
      done += count;
    }
    taken_ += rows.rows;
    if (taken_ < size_.height) return;
    Clear();
    Blank(side_ - size_.height - above, feed);
  }

 private:
  void Clear() {
    for (size_t i = 0; i < band_.size(); ++i) band_[i] = colour_[i % 3];
  }
  template <typename Feed>
  void Blank(uint32_t rows, const Feed& feed) {
    for (uint32_t done = 0; done < rows; done += kBandRows)
      feed(InterleavedBand(band_.data(), stride_, std::min(kBandRows, rows - done)));
  }

  ImageSize size_;
  uint32_t side_ = 0;
  uint32_t taken_ = 0;
  Colour colour_{};
  size_t stride_ = 0;
  std::vector<uint8_t> band_;
};

// The part of `resized` inside a window of `wanted` pixels at `offset`: its begin and length, and the
// position in the window where it begins.
struct Overlap {
  uint32_t begin = 0;
  uint32_t length = 0;
  uint32_t into = 0;
};
Overlap OverlapOf(uint32_t resized, int32_t offset, uint32_t wanted) {
  const int64_t begin = std::max<int64_t>(0, offset);
  const int64_t end = std::min<int64_t>(resized, int64_t{offset} + wanted);
  if (end <= begin) return {};
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin),
          static_cast<uint32_t>(begin - offset)};
}

// One target with its chain of resizer and sinks.
class TargetRows {
 public:
  // `size`: of the rows that arrive, which may be reduced by `reduction`; `whole`: of the picture without
  // reduction.
  absl::Status Start(const PictureTarget& target, Resampler resampler, ImageSize size, ImageSize whole,
                     uint32_t reduction) {
    square_.reset();
    ResizePlan plan{.in = size, .out = target.resized, .filter = target.filter, .resampler = resampler};
    // A reduced side was rounded up, so the picture may end within its last pixel: weights are computed for
    // the exact extent.
    plan.extent_width = static_cast<double>(whole.width) / reduction;
    plan.extent_height = static_cast<double>(whole.height) / reduction;
    if (target.square) {
      square_ = target.square;
      const uint32_t side = square_rows_.Start(size, *target.square);
      plan.in = {side, side};
      plan.extent_width = plan.extent_height = side;
    }
    const ImageSize window = target.window == ImageSize{} ? target.resized : target.window;
    const Overlap x = OverlapOf(target.resized.width, target.left, window.width);
    const Overlap y = OverlapOf(target.resized.height, target.top, window.height);
    if (x.length == 0 || y.length == 0) return absl::InternalError("the window does not overlap the picture");
    plan.left = x.begin, plan.top = y.begin, plan.window = {x.length, y.length};
    RowSink* sink = target.sink;
    if (plan.window != window) {
      frame_.Start(window, x.into, y.into, y.length, target.around, target.sink);
      sink = &frame_;
    }
    if (reduction > 1) {
      colours_.Start(x.length, sink);
      sink = &colours_;
    }
    resizer_.Start(plan, sink);
    return absl::OkStatus();
  }

  void Take(const PixelBand& rows) {
    colours_.set_ycc(rows.ycc);
    if (!square_) return resizer_.Feed(rows);
    square_rows_.Take(rows, [this](const PixelBand& band) { resizer_.Feed(band); });
  }

 private:
  std::optional<Colour> square_;
  SquareRows square_rows_;
  FramedRows frame_;
  ColouredRows colours_;
  RowResizer resizer_;
};

// Passes every band to every target.
class AllTargets final : public BandSink {
 public:
  absl::Status Start(std::span<const PictureTarget> targets, Resampler resampler, ImageSize size,
                     ImageSize whole, uint32_t reduction) {
    while (rows_.size() < targets.size()) rows_.emplace_back();
    count_ = targets.size();
    reduced_ = reduction > 1;
    for (size_t i = 0; i < count_; ++i) {
      EVENKEEL_RETURN_IF_ERROR(rows_[i].Start(targets[i], resampler, size, whole, reduction));
    }
    return absl::OkStatus();
  }
  void TakeBand(const PixelBand& band) override {
    for (size_t i = 0; i < count_; ++i) rows_[i].Take(band);
  }
  // With a reduction the bytes are approximate anyway, so the conversion to RGB is done after resizing, on
  // fewer rows.
  bool takes_ycc() const override { return reduced_; }

 private:
  std::deque<TargetRows> rows_;  // never shrinks, to keep memory
  size_t count_ = 0;
  bool reduced_ = false;
};

// The largest reduction with which no target is enlarged: a JPEG decoded to 1/2, 1/4 or 1/8 of its sides has
// lost the detail that a larger target would show. Pictures that are placed in a square first are decoded at
// full size.
uint32_t ReductionFor(const ImageCodec& codec, const PictureOptions& options, ImageSize size,
                      std::span<const PictureTarget> targets) {
  if (!options.approximate || !codec.scales()) return 1;
  uint32_t reduction = kMaxReduction;
  for (const PictureTarget& target : targets) {
    if (target.square) return 1;
    while (reduction > 1 && (size.width < uint64_t{target.resized.width} * reduction ||
                             size.height < uint64_t{target.resized.height} * reduction)) {
      reduction /= 2;
    }
  }
  return reduction;
}

// libjpeg rounds reduced sides up.
ImageSize Reduced(ImageSize size, uint32_t reduction) {
  return {(size.width + reduction - 1) / reduction, (size.height + reduction - 1) / reduction};
}

}  // namespace

absl::StatusOr<PictureHeader> ReadPictureHeader(std::string_view suffix, std::span<const std::byte> bytes,
                                                const Limits& limits, const PictureOptions& options) {
  EVENKEEL_ASSIGN_OR_RETURN(ImageHeader image, ReadImageHeader(suffix, bytes, limits, options.colour));
  PictureHeader header;
  header.stored = header.size = {image.width, image.height};
  header.stored_bytes = image.stored_bytes;
  header.orientation = image.orientation;
  if (options.exif_orientation == ExifOrientation::kApply && Turns(image.orientation)) {
    header.size = {image.height, image.width};
  }
  return header;
}

ImageSize PictureSize(const MediaFacts& facts, const PictureOptions& options) {
  const bool quarter = facts.rotation == 90 || facts.rotation == 270;
  if (options.exif_orientation == ExifOrientation::kApply && quarter) return {facts.height, facts.width};
  return {facts.width, facts.height};
}

absl::StatusOr<PictureHeader> ReadKnownPictureHeader(std::string_view suffix,
                                                     std::span<const std::byte> bytes, const Limits& limits,
                                                     const PictureOptions& options, const MediaFacts& facts) {
  EVENKEEL_ASSIGN_OR_RETURN(PictureHeader header, ReadPictureHeader(suffix, bytes, limits, options));
  const ImageSize planned = PictureSize(facts, options);
  if (header.size == planned) return header;
  return absl::DataLossError(absl::StrCat("image of ", header.size.width, "x", header.size.height,
                                          " pixels; the index has ", planned.width, "x", planned.height));
}

absl::Status DecodePicture(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                           const PictureOptions& options, const PictureHeader& header,
                           std::span<const PictureTarget> targets) {
  static thread_local AllTargets all;
  static thread_local TurnedPicture turned;
  EVENKEEL_ASSIGN_OR_RETURN(const ImageCodec* codec, ImageCodecOf(suffix, bytes));
  const ImageHeader stored{header.stored.width, header.stored.height, header.stored_bytes,
                           header.orientation};
  const uint32_t reduction = ReductionFor(*codec, options, header.size, targets);
  EVENKEEL_RETURN_IF_ERROR(
      all.Start(targets, options.resampler, Reduced(header.size, reduction), header.size, reduction));
  if (options.exif_orientation == ExifOrientation::kIgnore || header.orientation == 1) {
    return codec->Decode(bytes, limits, options.colour, stored, reduction, all);
  }
  turned.Start(Reduced(header.stored, reduction));
  EVENKEEL_RETURN_IF_ERROR(codec->Decode(bytes, limits, options.colour, stored, reduction, turned));
  turned.Deliver(header.orientation, all);
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
