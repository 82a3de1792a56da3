#include "preprocess/image/picture.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <sstream>

#include "preprocess/families/patches.h"
#include "preprocess/image/exif.h"
#include "preprocess/image/ycc_rows.h"
#include "tests/preprocess/allocations.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

using Rgb = std::vector<uint8_t>;

struct Picture {
  absl::Status status;
  PictureHeader header;
  Rgb rgb;
};

ImageSize SizeOf(const PictureTarget& target) {
  return target.window == ImageSize{} ? target.resized : target.window;
}

// The picture by `target`, whose resized size is the header's where it is 0x0.
Picture Decode(const std::string& suffix, const Bytes& bytes, const PictureOptions& options,
               PictureTarget target = {}) {
  Picture picture;
  absl::StatusOr<PictureHeader> header = ReadPictureHeader(suffix, bytes, Limits{}, options);
  picture.status = header.status();
  if (!header.ok()) return picture;
  picture.header = *header;
  if (target.resized == ImageSize{}) target.resized = header->size;
  picture.rgb.assign(SizeOf(target).rgb_bytes(), 0xa5);
  InterleavedRows rows(picture.rgb);
  target.sink = &rows;
  picture.status = DecodePicture(suffix, bytes, Limits{}, options, *header, {&target, 1});
  return picture;
}

Rgb GoldenRgb(const std::string& name) {
  Bytes bytes = Golden(name);
  Rgb rgb(bytes.size());
  std::memcpy(rgb.data(), bytes.data(), bytes.size());
  return rgb;
}

// A line of the index: file, policy, width, height; its pixels are in pictures/FILE.POLICY.rgb. Returns how
// many there are.
int ComparePolicies(const std::string& index_name) {
  const std::map<std::string, std::function<void(PictureOptions&)>> policies = {
      {"white",
       [](PictureOptions& o) {
         o.colour.background = Colour{255, 255, 255};
       }},
      {"colour",
       [](PictureOptions& o) {
         o.colour.background = Colour{122, 116, 104};
       }},
      {"upright", [](PictureOptions& o) { o.exif_orientation = ExifOrientation::kApply; }},
      {"white_clip_grey",
       [](PictureOptions& o) {
         o.colour.background = Colour{255, 255, 255};
         o.colour.sixteen_bit = SixteenBit::kClipGrey;
       }},
      {"clip_grey", [](PictureOptions& o) { o.colour.sixteen_bit = SixteenBit::kClipGrey; }},
      {"high_byte", [](PictureOptions& o) { o.colour.sixteen_bit = SixteenBit::kHighByte; }},
  };
  Bytes index = Golden("pictures/" + index_name);
  std::istringstream lines(std::string(reinterpret_cast<const char*>(index.data()), index.size()));
  std::string file, policy;
  uint32_t width = 0, height = 0;
  int count = 0;
  for (; lines >> file >> policy >> width >> height; ++count) {
    SCOPED_TRACE(file + " " + policy);
    PictureOptions options;
    policies.at(policy)(options);
    Picture picture = Decode(SuffixOf(file), Golden("pictures/" + file), options);
    EXPECT_TRUE(picture.status.ok()) << picture.status;
    EXPECT_EQ(picture.header.size, (ImageSize{width, height}));
    EXPECT_EQ(picture.rgb, GoldenRgb("pictures/" + file + "." + policy + ".rgb"));
  }
  return count;
}

TEST(Picture, EveryPolicyGivesPillowsPixelsAndTheHeadersDimensions) {
  EXPECT_GE(ComparePolicies("index.txt"), 16);
}

TEST(Picture, TheTransparentColourIsComparedAsInPillow) { EXPECT_EQ(ComparePolicies("keys.txt"), 15); }

TEST(Picture, RefusesWhatTheOptionsRefuse) {
  PictureOptions options;
  options.colour = {
      .sixteen_bit = SixteenBit::kRefuse, .cmyk = Conversion::kRefuse, .palette = Conversion::kRefuse};
  for (std::string name : {"cmyk.jpg", "palette.png", "rgb-16-bits.png", "grey-alpha-16-bits.png"}) {
    EXPECT_TRUE(absl::IsUnimplemented(Decode(SuffixOf(name), Golden("images/" + name), options).status))
        << name;
    EXPECT_TRUE(Decode(SuffixOf(name), Golden("images/" + name), {}).status.ok()) << name;
  }
}

TEST(Picture, OptionsAreReadFromTheJob) {
  ProcessorSpec spec;
  spec.resampler = "aten_u8", spec.alpha = "1,2,3", spec.exif_orientation = "apply";
  absl::StatusOr<PictureOptions> options = PictureOptionsOf(spec);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->resampler, Resampler::kAtenU8);
  EXPECT_EQ(options->colour.background, (Colour{1, 2, 3}));
  EXPECT_EQ(options->exif_orientation, ExifOrientation::kApply);
  PictureOptions family;
  family.colour.background = Colour{255, 255, 255};
  EXPECT_TRUE(PictureOptionsOf(ProcessorSpec{}, family)->colour.background.has_value());
  spec.alpha = "drop";
  EXPECT_FALSE(PictureOptionsOf(spec, family)->colour.background.has_value());
  // Each resampler repeats a release of transformers, which decides what transparency becomes.
  for (auto [resampler, white] : {std::pair("pil", false), {"pil13", true}, {"aten_u8", true}}) {
    ProcessorSpec usual;
    usual.resampler = resampler;
    EXPECT_EQ(PictureOptionsOf(usual)->colour.background.has_value(), white) << resampler;
  }
  for (std::string alpha : {"grey", "1,2", "1,2,256", "1,2,3,4", "1,,3"}) {
    spec.alpha = alpha;
    EXPECT_TRUE(absl::IsInvalidArgument(PictureOptionsOf(spec).status())) << alpha;
  }
}

TEST(Picture, TargetsOfOneDecodeAreThoseOfTheirOwn) {
  const Bytes bytes = Golden("images/baseline-420.jpg");
  const PictureTarget targets[] = {
      {.resized = {64, 64}},
      {.resized = {20, 31}, .filter = ResizeFilter::kBilinear},
      {.square = Colour{1, 2, 3}, .resized = {28, 28}},
      {.resized = {48, 34}, .left = 7, .top = 0, .window = {34, 34}},
      {.resized = {20, 14}, .left = -7, .top = -10, .window = {34, 34}},
  };
  std::vector<Rgb> together;
  for (const PictureTarget& target : targets) together.emplace_back(SizeOf(target).rgb_bytes());
  std::deque<InterleavedRows> rows;
  std::vector<PictureTarget> all(std::begin(targets), std::end(targets));
  for (size_t i = 0; i < all.size(); ++i) all[i].sink = &rows.emplace_back(together[i]);
  PictureHeader header = *ReadPictureHeader("jpg", bytes, Limits{}, {});
  ASSERT_TRUE(DecodePicture("jpg", bytes, Limits{}, {}, header, all).ok());
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(together[i], Decode("jpg", bytes, {}, targets[i]).rgb) << i;
}

// As expand2square: the picture in the middle, rounded to the left and to the top.
TEST(Picture, ASquareIsThePictureOnItsColour) {
  const Rgb rgb = GoldenRgb("images/rgb.png.rgb");
  const Colour colour{9, 8, 7};
  Picture picture = Decode("png", Golden("images/rgb.png"), {}, {.square = colour, .resized = {41, 41}});
  ASSERT_TRUE(picture.status.ok());
  for (uint32_t y = 0; y < 41; ++y) {
    for (uint32_t i = 0; i < 41 * 3; ++i) {
      const bool inside = y >= 6 && y < 35;
      ASSERT_EQ(picture.rgb[y * 123 + i], inside ? rgb[(y - 6) * 123 + i] : colour[i % 3]) << y;
    }
  }
}

TEST(Picture, AWindowBeyondThePictureIsBlack) {
  Picture whole = Decode("png", Golden("images/rgb.png"), {}, {.resized = {20, 14}});
  PictureTarget target{.resized = {20, 14}, .left = -3, .top = -2, .window = {30, 20}};
  Picture framed = Decode("png", Golden("images/rgb.png"), {}, target);
  ASSERT_TRUE(framed.status.ok());
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 30; ++x) {
      const bool inside = y >= 2 && y < 16 && x >= 3 && x < 23;
      for (int c = 0; c < 3; ++c) {
        ASSERT_EQ(framed.rgb[(y * 30 + x) * 3 + c], inside ? whole.rgb[((y - 2) * 20 + x - 3) * 3 + c] : 0)
            << x << " " << y;
      }
    }
  }
}

TEST(Picture, ApproximateIsCloseAndExactWhereNothingIsMuchReduced) {
  PictureOptions approximate;
  approximate.approximate = true;
  const Bytes bytes = Golden("pictures/smooth.jpg");
  for (ImageSize size : {ImageSize{320, 240}, {161, 120}, {100, 121}}) {
    EXPECT_EQ(Decode("jpg", bytes, {}, {.resized = size}).rgb,
              Decode("jpg", bytes, approximate, {.resized = size}).rgb);
  }
  for (ImageSize size : {ImageSize{160, 120}, {80, 60}, {40, 30}, {17, 11}}) {
    const Rgb exact = Decode("jpg", bytes, {}, {.resized = size}).rgb;
    const Rgb close = Decode("jpg", bytes, approximate, {.resized = size}).rgb;
    double squares = 0;
    for (size_t i = 0; i < exact.size(); ++i) squares += (exact[i] - close[i]) * (exact[i] - close[i]);
    EXPECT_NE(exact, close);
    EXPECT_LT(squares / static_cast<double>(exact.size()), 2.0) << size.width;  // 45 dB
  }
}

// A picture's own planes as interleaved "RGB".
class CollectedYcc final : public BandSink {
 public:
  explicit CollectedYcc(uint32_t width) : width_(width) {}
  bool takes_ycc() const override { return true; }
  void TakeBand(const PixelBand& band) override {
    EXPECT_TRUE(band.ycc);
    for (uint32_t r = 0; r < band.rows; ++r) {
      ycc.resize(ycc.size() + size_t{3} * width_);
      CopyInterleaved(band, r, width_, ycc.data() + ycc.size() - size_t{3} * width_);
    }
  }
  Rgb ycc;

 private:
  uint32_t width_;
};

// One pixel of Y, Cb and Cr.
void ColourOne(uint8_t* pixel) {
  Rgb block(3 * kYccBlock);
  uint8_t* planes[] = {block.data(), block.data() + kYccBlock, block.data() + 2 * kYccBlock};
  for (int c = 0; c < 3; ++c) planes[c][0] = pixel[c];
  YccKernelsOf(YccPath::kPortable).full_to_rgb(planes[0], planes[1], planes[2], 1, planes);
  for (int c = 0; c < 3; ++c) pixel[c] = planes[c][0];
}

TEST(Picture, ApproximateColoursTheResultOfResizingTheFilesOwnPlanes) {
  PictureOptions approximate;
  approximate.approximate = true;
  const Bytes bytes = Golden("pictures/smooth.jpg");
  const ImageSize whole{320, 240}, half{160, 120};
  CollectedYcc planes(half.width);
  const ImageHeader stored{whole.width, whole.height, whole.rgb_bytes(), 1};
  ASSERT_TRUE(JpegCodec().Decode(bytes, Limits{}, {}, stored, 2, planes).ok());
  for (ImageSize size : {half, {150, 111}, {91, 120}}) {
    Rgb expected(size.rgb_bytes());
    Resize(Resampler::kPil, ResizeFilter::kBicubic, planes.ycc, half, expected, size);
    for (size_t i = 0; i < expected.size(); i += 3) ColourOne(&expected[i]);
    EXPECT_EQ(Decode("jpg", bytes, approximate, {.resized = size}).rgb, expected) << size.width;
    // What a window has beside the picture is black all the same.
    const ImageSize framed{size.width + 5, size.height + 3};
    const Rgb frame =
        Decode("jpg", bytes, approximate, {.resized = size, .left = -5, .top = -3, .window = framed}).rgb;
    for (uint32_t y = 0; y < framed.height; ++y) {
      for (uint32_t x = 0; x < framed.width; ++x) {
        const size_t at = size_t{3} * (framed.width * y + x);
        const bool inside = y >= 3 && x >= 5;
        for (uint32_t c = 0; c < 3; ++c) {
          ASSERT_EQ(frame[at + c], inside ? expected[size_t{3} * (size.width * (y - 3) + x - 5) + c] : 0);
        }
      }
    }
  }
}

TEST(Picture, DamageIsDataLossAlsoWhereRowsWereDelivered) {
  const Bytes bytes = Golden("images/baseline-420.jpg");
  for (size_t share : {3, 6, 9}) {
    Bytes cut(bytes.begin(), bytes.begin() + bytes.size() * share / 10);
    absl::Status status = Decode("jpg", cut, {}, {.resized = {28, 28}}).status;
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status, Decode("jpg", cut, {}, {.resized = {28, 28}}).status);
  }
}

// Of every format, colour and orientation, padded, cropped and blended.
TEST(Picture, NothingIsAllocatedOnceAThreadHasItsScratch) {
  PictureOptions blended{.exif_orientation = ExifOrientation::kApply};
  blended.colour.background = Colour{255, 255, 255};
  PictureOptions torch = blended;
  torch.resampler = Resampler::kAtenU8;
  for (const std::string name :
       {"pictures/smooth.jpg", "images/baseline-420.jpg", "images/progressive.jpg", "images/cmyk.jpg",
        "images/grey.jpg", "pictures/turned-6.jpg", "images/grey.png", "images/palette-transparent.png",
        "images/interlaced.png", "images/grey-alpha-16-bits.png", "pictures/turned-6.png",
        "images/lossy.webp", "images/lossless-alpha.webp", "pictures/turned-6.webp"}) {
    const Bytes bytes = Golden(name);
    const std::string suffix = SuffixOf(name);
    const std::vector<float> table(3 * 256);
    std::vector<std::byte> out(56 * 56 * 3);
    std::vector<uint8_t> square(40 * 40 * 3), crop(20 * 20 * 3);
    for (const PictureOptions& options : {PictureOptions{}, blended, torch}) {
      const PictureHeader header = *ReadPictureHeader(suffix, bytes, Limits{}, options);
      auto run = [&] {
        PatchWriter writer({14, 2, 2}, 56, Wire::kU8, 1, table, out);
        InterleavedRows square_rows(square), crop_rows(crop);
        const PictureTarget targets[] = {
            {.resized = {56, 56}, .sink = &writer},
            {.square = Colour{1, 2, 3}, .resized = {40, 40}, .sink = &square_rows},
            {.resized = {30, 25}, .left = -3, .top = 8, .window = {20, 20}, .sink = &crop_rows}};
        ASSERT_TRUE(ReadPictureHeader(suffix, bytes, Limits{}, options).ok());
        ASSERT_TRUE(DecodePicture(suffix, bytes, Limits{}, options, header, targets).ok());
      };
      run();
      const CountedAllocations counted;
      for (int i = 0; i < 5; ++i) run();
      EXPECT_EQ(counted.count(), 0u) << name;
    }
  }
}

TEST(Picture, OrientationIsReadFromEveryContainerAndDamageIsNone) {
  for (std::string name : {"turned-6.jpg", "turned-6.png", "turned-6.webp"}) {
    const Bytes bytes = Golden("pictures/" + name);
    absl::StatusOr<PictureHeader> header = ReadPictureHeader(SuffixOf(name), bytes, Limits{}, {});
    ASSERT_TRUE(header.ok()) << name;
    EXPECT_EQ(header->orientation, 6u) << name;
    for (uint64_t n = 0; n < MutationCount(300); ++n) {
      const Bytes damaged = Mutated(bytes, n);
      for (auto* read : {JpegOrientation, PngOrientation, WebpOrientation}) {
        const uint32_t orientation = read(damaged);
        ASSERT_TRUE(orientation >= 1 && orientation <= 8);
      }
    }
  }
}

TEST(Picture, OtherSidesThanTheFactsAreDataLossThatNamesBoth) {
  const Bytes bytes = Golden("pictures/turned-6.jpg");  // 21x13 as stored
  const PictureOptions apply{.exif_orientation = ExifOrientation::kApply};
  MediaFacts facts;
  facts.width = 21, facts.height = 13, facts.rotation = 90;
  for (const PictureOptions& options : {PictureOptions{}, apply})
    EXPECT_TRUE(ReadKnownPictureHeader("jpg", bytes, Limits{}, options, facts).ok());
  facts.height = 14;
  for (const auto& [options, message] :
       {std::pair(PictureOptions{}, "image of 21x13 pixels; the index has 21x14"),
        std::pair(apply, "image of 13x21 pixels; the index has 14x21")}) {
    const absl::Status status = ReadKnownPictureHeader("jpg", bytes, Limits{}, options, facts).status();
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_EQ(status.message(), message);
  }
}

// TIFF with an orientation of 6 of this type, `count` of them.
Bytes Oriented(bool big_endian, uint32_t type, uint32_t count, size_t prefixes) {
  Bytes out;
  auto number = [&](uint32_t value, size_t size) {
    for (size_t i = 0; i < size; ++i)
      out.push_back(static_cast<std::byte>(value >> 8 * (big_endian ? size - 1 - i : i)));
  };
  auto text = [&](std::string_view letters) {
    for (char letter : letters) out.push_back(static_cast<std::byte>(letter));
  };
  for (size_t i = 0; i < prefixes; ++i) text(std::string_view("Exif\0\0", 6));
  text(big_endian ? "MM" : "II");
  const size_t size = type == 3 || type == 8 ? 2 : type == 4 || type == 9 || type == 13 ? 4 : 1;
  number(42, 2), number(8, 4), number(1, 2), number(0x0112, 2), number(type, 2), number(count, 4);
  number(6, size), number(0, 4 - size), number(0, 4);
  return out;
}

void AppendChunk(std::string_view type, const Bytes& body, Bytes& png) {
  auto number = [&](uint32_t value) {
    for (int shift : {24, 16, 8, 0}) png.push_back(static_cast<std::byte>(value >> shift));
  };
  number(static_cast<uint32_t>(body.size()));
  const size_t begin = png.size();
  for (char letter : type) png.push_back(static_cast<std::byte>(letter));
  png.insert(png.end(), body.begin(), body.end());
  uint32_t sum = ~0u;
  for (size_t i = begin; i < png.size(); ++i) {
    sum ^= std::to_integer<uint32_t>(png[i]);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
  }
  number(~sum);
}

// Without a picture, which the reader of orientations does not look at.
Bytes PngOf(std::initializer_list<Bytes> exif) {
  Bytes png(8);
  for (const Bytes& one : exif) AppendChunk("eXIf", one, png);
  return png;
}

TEST(Picture, OrientationIsAnyWholeNumberThatPillowTakes) {
  for (bool big : {false, true}) {
    for (uint32_t type = 0; type < 20; ++type) {
      const bool whole = type == 3 || type == 4 || type == 6 || type == 8 || type == 9 || type == 13;
      EXPECT_EQ(PngOrientation(PngOf({Oriented(big, type, 1, 0)})), whole ? 6u : 1u) << type;
    }
    EXPECT_EQ(PngOrientation(PngOf({Oriented(big, 3, 0, 0)})), 1u) << "none of them";
    EXPECT_EQ(PngOrientation(PngOf({Oriented(big, 3, 2, 0)})), 6u) << "the first of two";
    EXPECT_EQ(PngOrientation(PngOf({Oriented(big, 4, 2, 0)})), 1u) << "a place, not a number";
    EXPECT_EQ(PngOrientation(PngOf({Oriented(big, 3, 1, 2)})), 6u) << "behind two prefixes";
    EXPECT_EQ(PngOrientation(PngOf({Oriented(big, 3, 1, 3)})), 1u) << "behind more";
  }
  EXPECT_EQ(PngOrientation(PngOf({Oriented(true, 2, 1, 0), Oriented(true, 3, 1, 0)})), 6u) << "the last";
  EXPECT_EQ(PngOrientation(PngOf({Oriented(true, 3, 1, 0), Oriented(true, 2, 1, 0)})), 1u) << "the last";
}

// A JPEG's segment: its marker, its length, its bytes.
void AppendSegment(uint8_t marker, const Bytes& body, Bytes& jpeg) {
  const size_t length = body.size() + 2;
  for (size_t byte : {size_t{0xff}, size_t{marker}, length >> 8, length & 0xff})
    jpeg.push_back(static_cast<std::byte>(byte));
  jpeg.insert(jpeg.end(), body.begin(), body.end());
}

Bytes BytesOfText(std::string_view text) {
  Bytes out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

// A file of the extended format with these chunks and no picture.
Bytes WebpOf(uint8_t flags, std::initializer_list<std::pair<std::string_view, Bytes>> chunks) {
  Bytes out = BytesOfText("RIFF....WEBP");
  auto append = [&](std::string_view type, const Bytes& body) {
    const Bytes name = BytesOfText(type);
    out.insert(out.end(), name.begin(), name.end());
    for (int shift : {0, 8, 16, 24}) out.push_back(static_cast<std::byte>(body.size() >> shift));
    out.insert(out.end(), body.begin(), body.end());
    out.resize(out.size() + body.size() % 2);
  };
  Bytes head(10);
  head[0] = std::byte{flags};
  append("VP8X", head);
  for (const auto& [type, body] : chunks) append(type, body);
  return out;
}

TEST(Picture, OrientationOfXmpCountsWhereExifHasNone) {
  using namespace std::string_view_literals;
  const std::string attribute = "<x:xmpmeta a tiff:Orientation=\"8\" b>";
  const std::string_view adobe = "http://ns.adobe.com/xap/1.0/\0"sv;
  const std::string_view text = "XML:com.adobe.xmp\0\0\0en\0\0"sv;
  const Bytes turned = Oriented(true, 3, 1, 0), none = Oriented(true, 14, 1, 0),
              odd = Oriented(true, 2, 1, 0);
  auto jpeg = [&](const Bytes& exif, std::string_view xmp) {
    Bytes out = {std::byte{0xff}, std::byte{0xd8}};
    AppendSegment(0xe1, BytesOfText(std::string(adobe) + std::string(xmp)), out);
    Bytes marked = BytesOfText("Exif\0\0"sv);
    marked.insert(marked.end(), exif.begin(), exif.end());
    if (!exif.empty()) AppendSegment(0xe1, marked, out);
    return JpegOrientation(out);
  };
  auto png = [&](const Bytes& exif, std::string_view xmp) {
    Bytes out(8);
    AppendChunk("iTXt", BytesOfText(std::string(text) + std::string(xmp)), out);
    if (!exif.empty()) AppendChunk("eXIf", exif, out);
    return PngOrientation(out);
  };
  auto webp = [&](const Bytes& exif, std::string_view xmp) {
    return WebpOrientation(WebpOf(12, {{"EXIF", exif}, {"XMP ", BytesOfText(xmp)}}));
  };
  for (const std::function<uint32_t(const Bytes&, std::string_view)>& read :
       {std::function<uint32_t(const Bytes&, std::string_view)>(jpeg), {png}, {webp}}) {
    EXPECT_EQ(read({}, attribute), 8u);
    EXPECT_EQ(read({}, "<tiff:Orientation>3</tiff:Orientation>"), 3u);
    EXPECT_EQ(read({}, "tiff:Orientation='3' tiff:Orientation=\"5\""), 5u) << "the first that is one";
    EXPECT_EQ(read({}, "tiff:Orientation=\"9\" tiff:Orientation=\"5\""), 1u) << "the first";
    EXPECT_EQ(read({}, "tiff:Orientation=\""), 1u) << "cut off";
    EXPECT_EQ(read(turned, attribute), 6u) << "EXIF comes first";
    EXPECT_EQ(read(none, attribute), 8u) << "EXIF without the tag";
    EXPECT_EQ(read(odd, attribute), 1u) << "a tag that is no number";
  }
  EXPECT_EQ(WebpOrientation(WebpOf(8, {{"EXIF", none}, {"XMP ", BytesOfText(attribute)}})), 1u) << "no XMP";
  EXPECT_EQ(WebpOrientation(WebpOf(4, {{"EXIF", turned}, {"XMP ", BytesOfText(attribute)}})), 8u)
      << "no EXIF";
}

TEST(Picture, OrientationIsFoundInEveryPlaceOfAJpegWhereItStandsForPillow) {
  constexpr uint8_t kApp0 = 0xe0, kApp1 = 0xe1, kComment = 0xfe, kScan = 0xda;
  const Bytes exif = Oriented(true, 3, 1, 1);
  auto jpeg = [&](const std::function<void(Bytes&)>& between) {
    Bytes out = {std::byte{0xff}, std::byte{0xd8}};
    between(out);
    AppendSegment(kScan, Bytes(10), out);
    AppendSegment(kApp1, Oriented(true, 3, 1, 1), out);  // is what follows the scan's head, and no segment
    return JpegOrientation(out);
  };
  auto other = [](Bytes& out) {
    AppendSegment(kApp1, Bytes(40, std::byte{'x'}), out);  // XMP, say
    AppendSegment(kComment, Oriented(true, 2, 1, 1), out);
  };
  EXPECT_EQ(jpeg([](Bytes&) {}), 1u);
  EXPECT_EQ(jpeg([&](Bytes& out) { AppendSegment(kApp1, exif, out); }), 6u);
  EXPECT_EQ(jpeg([&](Bytes& out) { AppendSegment(kApp0, exif, out); }), 1u) << "another segment";
  EXPECT_EQ(jpeg([&](Bytes& out) { other(out), AppendSegment(kApp1, exif, out), other(out); }), 6u);
  for (size_t first = 6; first < exif.size(); ++first) {
    const Bytes head(exif.begin(), exif.begin() + first);
    Bytes tail = exif;
    tail.erase(tail.begin() + 6, tail.begin() + first);
    EXPECT_EQ(jpeg([&](Bytes& out) { AppendSegment(kApp1, head, out), AppendSegment(kApp1, tail, out); }), 6u)
        << "in two segments, after " << first << " bytes";
    EXPECT_EQ(jpeg([&](Bytes& out) {
                AppendSegment(kApp1, head, out), other(out), AppendSegment(kApp1, tail, out);
              }),
              6u)
        << "with others between";
  }
  EXPECT_EQ(jpeg([&](Bytes& out) {
              AppendSegment(kApp1, Oriented(false, 2, 1, 1), out), AppendSegment(kApp1, exif, out);
            }),
            1u)
      << "what follows a directory is no second one";
  for (const char* between : {"\xff", "\xff\xff\xff", "junk", "\xff\xd0", "\xff\xd8"}) {
    EXPECT_EQ(jpeg([&](Bytes& out) {
                for (const char* byte = between; *byte != 0; ++byte) out.push_back(std::byte(*byte));
                AppendSegment(kApp1, exif, out);
              }),
              6u)
        << "behind bytes of no segment";
  }
}

// Pillow takes them; libpng passes over them, and the picture would be opaque.
TEST(Picture, APalettesTransparencyMayHaveMoreEntriesAndStandBeforeIt) {
  const Bytes png = Golden("pictures/palette.png");
  auto find = [&](std::string_view type) {
    size_t at = 8;
    while (std::memcmp(&png[at + 4], type.data(), 4) != 0) {
      at += 12 + (std::to_integer<size_t>(png[at + 2]) << 8 | std::to_integer<size_t>(png[at + 3]));
    }
    return at;
  };
  const size_t palette = find("PLTE"), alpha = find("tRNS"), data = find("IDAT");
  ASSERT_EQ(data - alpha, 12u + 32);
  Bytes entries(png.begin() + alpha + 8, png.begin() + data - 4);
  Bytes before(png.begin(), png.begin() + palette), longer(png.begin(), png.begin() + alpha);
  AppendChunk("tRNS", entries, before);
  before.insert(before.end(), png.begin() + palette, png.begin() + alpha);
  entries.resize(200);
  AppendChunk("tRNS", entries, longer);
  const PictureOptions white{.colour = {.background = Colour{255, 255, 255}}};
  for (Bytes* file : {&before, &longer}) {
    file->insert(file->end(), png.begin() + data, png.end());
    const Picture picture = Decode("png", *file, white);
    ASSERT_TRUE(picture.status.ok()) << picture.status;
    EXPECT_EQ(picture.rgb, GoldenRgb("pictures/palette.png.white.rgb"));
    EXPECT_EQ(Decode("png", *file, {}).rgb, Decode("png", png, {}).rgb);
  }
}

// The small goldens say what each orientation means; this one is turned in several bands.
TEST(Picture, EveryPixelOfALargePictureIsTurnedToItsPlace) {
  const Bytes bytes = Golden("pictures/smooth.jpg");
  const Picture stored = Decode("jpg", bytes, {});
  ASSERT_TRUE(stored.status.ok());
  const uint32_t w = stored.header.size.width, h = stored.header.size.height;
  const PictureOptions apply{.exif_orientation = ExifOrientation::kApply};
  for (uint32_t orientation = 1; orientation <= 8; ++orientation) {
    PictureHeader header = stored.header;
    header.orientation = orientation;
    if (orientation >= 5) header.size = {h, w};
    Rgb turned(header.size.rgb_bytes());
    InterleavedRows rows(turned);
    const PictureTarget target{.resized = header.size, .sink = &rows};
    ASSERT_TRUE(DecodePicture("jpg", bytes, Limits{}, apply, header, {&target, 1}).ok());
    for (uint32_t y = 0; y < header.size.height; ++y) {
      for (uint32_t x = 0; x < header.size.width; ++x) {
        const std::pair<uint32_t, uint32_t> from[] = {
            {x, y}, {w - 1 - x, y}, {w - 1 - x, h - 1 - y}, {x, h - 1 - y},
            {y, x}, {y, h - 1 - x}, {w - 1 - y, h - 1 - x}, {w - 1 - y, x}};
        const auto [u, v] = from[orientation - 1];
        const uint8_t* pixel = &stored.rgb[(size_t{v} * w + u) * 3];
        ASSERT_TRUE(std::equal(pixel, pixel + 3, &turned[(size_t{y} * header.size.width + x) * 3]))
            << orientation << ": " << x << ", " << y;
      }
    }
  }
}

TEST(Picture, HeaderAndDecoderAgreeWhateverThePolicyAndTheDamage) {
  PictureOptions apply;
  apply.exif_orientation = ExifOrientation::kApply;
  apply.colour.background = Colour{1, 2, 3};
  apply.colour.sixteen_bit = SixteenBit::kClipGrey;
  for (std::string name : {"turned-6.jpg", "turned-6.png", "turned-6.webp", "grey-16.png"}) {
    const Bytes bytes = Golden("pictures/" + name);
    for (uint64_t n = 0; n < MutationCount(60); ++n) {
      for (const PictureOptions& options : {PictureOptions{}, apply}) {
        const Bytes damaged = Mutated(bytes, n);
        Picture first = Decode(SuffixOf(name), damaged, options);  // its buffer has the header's size
        if (first.header.size.rgb_bytes() > 1 << 20) continue;
        Picture second = Decode(SuffixOf(name), damaged, options);
        ASSERT_EQ(first.status, second.status) << name << " " << n;
        if (first.status.ok()) {
          ASSERT_EQ(first.rgb, second.rgb) << name << " " << n;
        }
      }
    }
  }
}

void Append(Wire wire, float normalised, uint8_t byte, std::vector<std::byte>& out) {
  auto append = [&](auto value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  if (wire == Wire::kU8) append(byte);
  if (wire == Wire::kBf16) append(ToBf16(normalised));
  if (wire == Wire::kF32) append(normalised);
}

// The definition, value by value: rows (h/merge, w/merge, merge, merge), columns (channel, frame, y, x).
std::vector<std::byte> PatchesOf(const PatchShape& shape, std::span<const uint8_t* const> frames,
                                 uint32_t width, uint32_t height, Wire wire,
                                 const std::vector<float>& table) {
  std::vector<std::byte> out;
  const uint32_t side = shape.patch * shape.merge;
  for (uint32_t block = 0; block < height / side * (width / side) * shape.merge * shape.merge; ++block) {
    const uint32_t inner = block % (shape.merge * shape.merge), outer = block / (shape.merge * shape.merge);
    const uint32_t top = outer / (width / side) * side + inner / shape.merge * shape.patch;
    const uint32_t left = outer % (width / side) * side + inner % shape.merge * shape.patch;
    for (uint32_t c = 0; c < 3; ++c) {
      for (const uint8_t* frame : frames) {
        for (uint32_t i = 0; i < shape.patch * shape.patch; ++i) {
          const uint32_t y = top + i / shape.patch, x = left + i % shape.patch;
          const uint8_t byte = frame[3 * (size_t{width} * y + x) + c];
          Append(wire, table[256 * c + byte], byte, out);
        }
      }
    }
  }
  return out;
}

TEST(PatchWriter, PutsEveryValueWhereTheDefinitionHasIt) {
  Dice dice(4);
  for (PatchShape shape : {PatchShape{14, 2, 2}, {16, 2, 2}, {7, 1, 1}, {8, 3, 3}, {40, 1, 1}}) {
    const uint32_t width = shape.patch * shape.merge * 3, height = shape.patch * shape.merge * 2;
    Rgb rgb(size_t{3} * width * height);
    for (uint8_t& value : rgb) value = static_cast<uint8_t>(dice.Roll(256));
    std::vector<float> table(3 * 256);
    for (float& value : table) value = static_cast<float>(dice.Roll(1000)) / 7;
    for (Wire wire : {Wire::kU8, Wire::kBf16, Wire::kF32}) {
      const uint32_t copies = wire == Wire::kU8 ? 1 : shape.frames;
      const size_t size = rgb.size() * copies * (wire == Wire::kU8 ? 1 : wire == Wire::kBf16 ? 2 : 4);
      std::vector<std::byte> written(size);
      std::vector<const uint8_t*> frames(copies, rgb.data());
      const std::vector<std::byte> expected = PatchesOf(shape, frames, width, height, wire, table);
      PatchWriter writer(shape, width, wire, copies, table, written);
      std::vector<uint8_t> planes(size_t{3} * width);
      for (uint32_t y = 0; y < height; ++y) {
        for (uint32_t i = 0; i < 3 * width; ++i)
          planes[i % 3 * width + i / 3] = rgb[size_t{y} * 3 * width + i];
        writer.Take({{planes.data(), planes.data() + width, planes.data() + 2 * width}, width});
      }
      EXPECT_EQ(written, expected) << shape.patch;
    }
  }
}

TEST(PatchWriter, PutsTheFramesOfAGroupInTheirPlaces) {
  Dice dice(6);
  const PatchShape shape{14, 3, 2};
  const uint32_t width = 56, height = 28;
  std::vector<Rgb> pictures(2, Rgb(size_t{3} * width * height));
  for (Rgb& rgb : pictures) {
    for (uint8_t& value : rgb) value = static_cast<uint8_t>(dice.Roll(256));
  }
  const std::vector<float> table(3 * 256);
  std::vector<std::byte> written(pictures[0].size() * shape.frames);
  // The last frame fills its group.
  const uint8_t* frames[] = {pictures[0].data(), pictures[1].data(), pictures[1].data()};
  const std::vector<std::byte> expected = PatchesOf(shape, frames, width, height, Wire::kU8, table);
  for (uint32_t i = 0; i < 2; ++i) {
    PatchWriter writer(shape, width, Wire::kU8, shape.frames, {i, i == 0 ? 1u : 2u}, table, written);
    Resize(Resampler::kPil, ResizeFilter::kBicubic, pictures[i], {width, height}, {width, height}, writer);
  }
  EXPECT_EQ(written, expected);
}

}  // namespace
}  // namespace evenkeel::preprocess
