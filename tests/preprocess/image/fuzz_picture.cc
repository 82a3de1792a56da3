// Any bytes as a picture of any format under any policy (the first four choose): an error of a type, or every
// row of every target; the same on both of two decodes, so that nothing left in memory shows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <tuple>
#include <utility>

#include "core/digest.h"
#include "preprocess/image/picture.h"

namespace evenkeel::preprocess {
namespace {

class CountedRows final : public RowSink {
 public:
  explicit CountedRows(ImageSize size) : size_(size) {}
  void Take(const PlanarRow& row) override {
    if (row.width != size_.width || ++taken_ > size_.height) std::abort();
    for (const uint8_t* plane : row.plane) digester_.Update(std::as_bytes(std::span(plane, row.width)));
  }
  bool complete() const { return taken_ == size_.height; }
  Digest digest() { return digester_.Finish(); }

 private:
  ImageSize size_;
  uint32_t taken_ = 0;
  Digester digester_;
};

struct Wanted {
  const char* suffix;
  PictureOptions options;
  PictureTarget whole;     // resized, or padded to a square before
  PictureTarget windowed;  // a crop that may reach beyond the picture
};

Wanted WantedOf(std::span<const uint8_t, 4> choice) {
  const auto bit = [&](int byte, int at) { return (choice[byte] >> at & 1) != 0; };
  static constexpr const char* kSuffixes[] = {"jpg", "png", "webp", "seg.jpeg"};
  Wanted wanted{.suffix = bit(1, 5) ? "tif" : bit(1, 6) ? "heif" : kSuffixes[choice[0] & 3]};
  PictureOptions& options = wanted.options;
  options.approximate = bit(0, 2);
  options.exif_orientation = bit(0, 3) ? ExifOrientation::kApply : ExifOrientation::kIgnore;
  options.resampler = bit(0, 4) ? Resampler::kAtenU8 : Resampler::kPil;
  if (bit(1, 0)) options.colour.background = Colour{255, 128, 0};
  options.colour.sixteen_bit = static_cast<SixteenBit>(choice[1] >> 1 & 3);
  options.colour.cmyk = bit(1, 3) ? Conversion::kRefuse : Conversion::kConvert;
  options.colour.palette = bit(1, 4) ? Conversion::kRefuse : Conversion::kConvert;
  const ResizeFilter filter = bit(0, 5) ? ResizeFilter::kBilinear : ResizeFilter::kBicubic;
  const ImageSize resized{choice[2] + 1u, choice[3] + 1u};
  wanted.whole = {.resized = resized, .filter = filter};
  if (bit(0, 6)) wanted.whole.square = Colour{1, 2, 3};
  // At least a row and a column of it are the picture's.
  wanted.windowed = {.resized = resized,
                     .filter = filter,
                     .left = bit(0, 7) ? -3 : static_cast<int32_t>(resized.width / 2),
                     .top = bit(1, 7) ? -5 : static_cast<int32_t>(resized.height / 2),
                     .window = {16, 16}};
  return wanted;
}

std::tuple<absl::Status, Digest, Digest> Decode(const Wanted& wanted, std::span<const std::byte> bytes,
                                                const Limits& limits, const PictureHeader& header) {
  CountedRows whole(wanted.whole.resized), windowed(wanted.windowed.window);
  PictureTarget targets[] = {wanted.whole, wanted.windowed};
  targets[0].sink = &whole;
  targets[1].sink = &windowed;
  absl::Status status = DecodePicture(wanted.suffix, bytes, limits, wanted.options, header, targets);
  if (status.ok() && !(whole.complete() && windowed.complete())) std::abort();
  return {std::move(status), whole.digest(), windowed.digest()};
}

}  // namespace
}  // namespace evenkeel::preprocess

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;              // NOLINT
  using namespace evenkeel::preprocess;  // NOLINT
  if (size < 4) return 0;
  const Wanted wanted = WantedOf(std::span<const uint8_t, 4>(data, 4));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data + 4, size - 4));
  Limits limits;
  limits.max_image_pixels = 1 << 18;
  limits.max_jpeg_scans = 50;
  const auto header = ReadPictureHeader(wanted.suffix, bytes, limits, wanted.options);
  if (!header.ok()) return 0;
  const auto first = Decode(wanted, bytes, limits, *header);
  const auto second = Decode(wanted, bytes, limits, *header);
  if (first != second || absl::IsInternal(std::get<0>(first))) std::abort();
  return 0;
}
