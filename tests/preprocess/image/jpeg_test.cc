// What JPEG's own planes become here, against the library's own RGB. Of reduced pictures that is the library
// with the reduced transforms of ours, which have tests of their own.
// jpeglib.h needs size_t and FILE first.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
#include <jpegint.h>
// clang-format on

#include <gtest/gtest.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <vector>

#include "preprocess/image/image.h"
#include "preprocess/image/reduced_idct.h"
#include "preprocess/image/ycc_bands.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

using Samples = std::vector<uint8_t>;

// How a file is made.
struct Variant {
  J_COLOR_SPACE colours = JCS_YCbCr;
  int factors[3][2] = {{1, 1}, {1, 1}, {1, 1}};  // across and down, of each component
  bool progressive = false;
  bool scan_each = false;  // of each component
  int quality = 90;
  unsigned restart_rows = 0;
};

Variant Colour(int across, int down, int chroma_across = 1, int chroma_down = 1) {
  return {.factors = {{across, down}, {chroma_across, chroma_down}, {chroma_across, chroma_down}}};
}

// The library's own compressor, into memory.
struct JpegWriter {
  jpeg_compress_struct state;
  jpeg_error_mgr errors;
  unsigned char* out = nullptr;
  unsigned long out_size = 0;

  JpegWriter() {
    state.err = jpeg_std_error(&errors);
    jpeg_create_compress(&state);
    jpeg_mem_dest(&state, &out, &out_size);
  }
  Bytes Finish() {
    jpeg_finish_compress(&state);
    jpeg_destroy_compress(&state);
    Bytes bytes(out_size);
    std::memcpy(bytes.data(), out, out_size);
    std::free(out);
    return bytes;
  }
};

Bytes Encode(const Variant& variant, ImageSize size, Dice& dice) {
  const bool grey = variant.colours == JCS_GRAYSCALE;
  Samples pixels((grey ? 1 : 3) * size_t{size.width} * size.height);
  // Patches of noise, extremes and flat colour.
  uint8_t value = 0;
  for (uint8_t& sample : pixels) {
    if (dice.Roll(3) == 0)
      value = static_cast<uint8_t>(dice.Roll(4) == 0 ? dice.Roll(2) * 255 : dice.Roll(256));
    sample = value;
  }
  JpegWriter writer;
  jpeg_compress_struct& state = writer.state;
  state.image_width = size.width;
  state.image_height = size.height;
  state.input_components = grey ? 1 : 3;
  state.in_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&state);
  jpeg_set_colorspace(&state, variant.colours);
  jpeg_set_quality(&state, variant.quality, TRUE);
  for (int c = 0; c < state.num_components; ++c) {
    state.comp_info[c].h_samp_factor = variant.factors[c][0];
    state.comp_info[c].v_samp_factor = variant.factors[c][1];
  }
  state.restart_in_rows = static_cast<int>(variant.restart_rows);
  if (variant.progressive) jpeg_simple_progression(&state);
  jpeg_scan_info scans[3] = {};
  for (int c = 0; c < state.num_components; ++c) scans[c] = {1, {c}, 0, DCTSIZE2 - 1, 0, 0};
  if (variant.scan_each) state.scan_info = scans, state.num_scans = state.num_components;
  jpeg_start_compress(&state, TRUE);
  while (state.next_scanline < size.height) {
    JSAMPROW row = pixels.data() + (grey ? 1 : 3) * size_t{size.width} * state.next_scanline;
    jpeg_write_scanlines(&state, &row, 1);
  }
  return writer.Finish();
}

// A grey picture of whole blocks: of each the first coefficient and one other, most often zero.
struct PlainBlock {
  int16_t first;
  int16_t other;
  size_t at;  // of the other one
};
Bytes EncodeBlocks(const std::vector<PlainBlock>& blocks, uint32_t across, uint16_t quantity) {
  JpegWriter writer;
  jpeg_compress_struct& state = writer.state;
  const auto down = static_cast<uint32_t>(blocks.size() / across);
  state.image_width = DCTSIZE * across;
  state.image_height = DCTSIZE * down;
  state.input_components = 1;
  state.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&state);
  for (UINT16& value : state.quant_tbl_ptrs[0]->quantval) value = quantity;
  const auto owner = reinterpret_cast<j_common_ptr>(&state);
  jvirt_barray_ptr rows = state.mem->request_virt_barray(owner, JPOOL_IMAGE, TRUE, across, down, 1);
  jpeg_write_coefficients(&state, &rows);
  for (uint32_t y = 0; y < down; ++y) {
    JBLOCKARRAY row = state.mem->access_virt_barray(owner, rows, y, 1, TRUE);
    for (uint32_t x = 0; x < across; ++x) {
      const PlainBlock& block = blocks[across * y + x];
      row[0][x][block.at] = block.other;
      row[0][x][0] = block.first;
    }
  }
  return writer.Finish();
}

// The library's own rows, all through it; false where it fails or the data ends.
struct LibraryReader {
  jpeg_decompress_struct state{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  std::jmp_buf jump{};
};

template <ReducedIdct kTransform>
void TransformBlock(j_decompress_ptr, jpeg_component_info* component, JCOEFPTR coefficients, JSAMPARRAY rows,
                    JDIMENSION column) {
  static constexpr UINT16 kNone[DCTSIZE2] = {};
  const JQUANT_TBL* table = component->quant_table;
  kTransform(coefficients, table == nullptr ? kNone : table->quantval, rows, column);
}

bool ReadWithLibrary(LibraryReader& reader, const Bytes& bytes, unsigned reduction, J_COLOR_SPACE colours,
                     uint8_t* rgb, size_t size) {
  jpeg_decompress_struct& state = reader.state;
  state.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = [](j_common_ptr info) {
    std::longjmp(static_cast<LibraryReader*>(info->client_data)->jump, 1);
  };
  reader.errors.emit_message = [](j_common_ptr, int) {};
  state.client_data = &reader;
  if (setjmp(reader.jump) != 0) return false;
  jpeg_create_decompress(&state);
  reader.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  reader.source.bytes_in_buffer = bytes.size();
  reader.source.init_source = reader.source.term_source = [](j_decompress_ptr) {};
  reader.source.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
    ERREXIT(info, JERR_INPUT_EOF);
    return FALSE;
  };
  reader.source.skip_input_data = [](j_decompress_ptr info, long count) {
    if (count <= 0) return;
    if (static_cast<unsigned long>(count) > info->src->bytes_in_buffer) ERREXIT(info, JERR_INPUT_EOF);
    info->src->next_input_byte += count;
    info->src->bytes_in_buffer -= static_cast<size_t>(count);
  };
  reader.source.resync_to_restart = jpeg_resync_to_restart;
  state.src = &reader.source;
  jpeg_read_header(&state, TRUE);
  state.out_color_space = colours;
  state.dct_method = JDCT_ISLOW;
  state.do_fancy_upsampling = TRUE;
  state.scale_denom = reduction;
  jpeg_start_decompress(&state);
  for (int c = 0; reduction > 1 && c < state.num_components; ++c) {
#if JPEG_LIB_VERSION >= 70
    const int side = state.comp_info[c].DCT_h_scaled_size;
#else
    const int side = state.comp_info[c].DCT_scaled_size;
#endif
    if (side == 4) state.idct->inverse_DCT[c] = TransformBlock<PortableReducedIdct4>;
    if (side == 2) state.idct->inverse_DCT[c] = TransformBlock<ReducedIdct2>;
  }
  const size_t stride = size_t{3} * state.output_width;
  if (stride * state.output_height != size) return false;
  while (state.output_scanline < state.output_height) {
    JSAMPROW row = rgb + stride * state.output_scanline;
    jpeg_read_scanlines(&state, &row, 1);
  }
  jpeg_finish_decompress(&state);
  return true;
}

class CollectedRgb final : public BandSink {
 public:
  explicit CollectedRgb(uint32_t width, bool takes_ycc = false) : width_(width), takes_ycc_(takes_ycc) {}
  bool takes_ycc() const override { return takes_ycc_; }
  void TakeBand(const PixelBand& band) override {
    EXPECT_LE(band.rows, kBandRows);
    planes = !band.interleaved();
    ycc = band.ycc;
    for (uint32_t r = 0; r < band.rows; ++r) {
      rgb.resize(rgb.size() + size_t{3} * width_);
      CopyInterleaved(band, r, width_, rgb.data() + rgb.size() - size_t{3} * width_);
    }
  }
  Samples rgb;
  bool planes = false;  // what the last band was
  bool ycc = false;

 private:
  uint32_t width_;
  bool takes_ycc_;
};

// Expects the library's verdict and, where that is good, its bytes. Sets whether planes came, or with `ycc`
// whether they were Y, Cb and Cr.
void ExpectAsTheLibrary(const Bytes& bytes, uint32_t reduction, bool* planes = nullptr, bool ycc = false) {
  const Limits limits;
  const absl::StatusOr<ImageHeader> header = JpegCodec().ReadHeader(bytes, limits, {});
  if (!header.ok()) return;  // decides before any of this
  auto reduced = [reduction](uint32_t side) { return (side + reduction - 1) / reduction; };
  CollectedRgb ours(reduced(header->width), ycc);
  const absl::Status status = JpegCodec().Decode(bytes, limits, {}, *header, reduction, ours);
  Samples expected(size_t{3} * reduced(header->width) * reduced(header->height));
  LibraryReader reader;
  const bool read = ReadWithLibrary(reader, bytes, reduction, ours.ycc ? JCS_YCbCr : JCS_RGB, expected.data(),
                                    expected.size());
  jpeg_destroy_decompress(&reader.state);
  ASSERT_EQ(status.ok(), read) << status;
  if (!read) return;
  ASSERT_EQ(ours.rgb, expected);
  if (planes != nullptr) *planes = ycc ? ours.ycc : ours.planes;
}

constexpr size_t kPlainVariants = 8;
const Variant kVariants[] = {
    {.colours = JCS_GRAYSCALE},
    {.colours = JCS_GRAYSCALE, .factors = {{2, 2}}},
    Colour(1, 1),
    Colour(2, 1),
    Colour(2, 2),
    Colour(2, 1, 2, 1),  // full size
    Colour(1, 2, 1, 2),
    Colour(2, 2, 1, 2),  // half the width
    // All of these are left to the library.
    Colour(1, 2),
    Colour(4, 1),
    Colour(4, 2),
    Colour(3, 1),
    Colour(1, 1, 2, 2),
    {.factors = {{2, 2}, {1, 1}, {2, 1}}},
    {.colours = JCS_RGB},
};

TEST(Jpeg, PlanesBecomeTheLibrarysRgb) {
  Dice dice(21);
  for (const Variant& kind : kVariants) {
    for (uint32_t side = 1; side <= 70; ++side) {
      const auto other = static_cast<uint32_t>(1 + dice.Roll(70));
      for (const ImageSize size : {ImageSize{side, other}, ImageSize{other, side}}) {
        Variant variant = kind;
        variant.progressive = dice.Roll(4) == 0;
        variant.quality = static_cast<int>(1 + dice.Roll(100));
        variant.restart_rows = static_cast<unsigned>(dice.Roll(3));
        SCOPED_TRACE(testing::Message() << &kind - kVariants << " " << size.width << "x" << size.height);
        bool planes = false;
        ASSERT_NO_FATAL_FAILURE(ExpectAsTheLibrary(Encode(variant, size, dice), 1, &planes));
        const auto index = static_cast<size_t>(&kind - kVariants);
        EXPECT_TRUE(size.width <= 4 || planes == (index < kPlainVariants));
      }
    }
  }
}

TEST(Jpeg, BlocksOfOneColourAndNearlyThatAreTheLibrarys) {
  Dice dice(27);
  for (const uint16_t quantity : {1, 2, 3, 8, 17, 99, 255}) {
    std::vector<PlainBlock> blocks;
    for (int16_t first = -1023; first <= 1023; ++first) blocks.push_back({first, 0, 1});
    for (size_t at = 1; at < DCTSIZE2; ++at) {
      for (int16_t other : {-1, 1, 2}) {
        blocks.push_back({static_cast<int16_t>(dice.Roll(2047) - 1023), other, at});
      }
    }
    constexpr uint32_t kAcross = 28;
    while (blocks.size() % kAcross != 0) blocks.push_back({0, 0, 1});
    const Bytes bytes = EncodeBlocks(blocks, kAcross, quantity);
    for (uint32_t reduction : {1, 2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << quantity << " / " << reduction);
      ASSERT_NO_FATAL_FAILURE(ExpectAsTheLibrary(bytes, reduction));
    }
  }
}

TEST(Jpeg, PlanesOfReducedPicturesBecomeTheLibrarysRgb) {
  Dice dice(22);
  for (const Variant& kind : kVariants) {
    for (int round = 0; round < 40; ++round) {
      const ImageSize size{static_cast<uint32_t>(1 + dice.Roll(200)),
                           static_cast<uint32_t>(1 + dice.Roll(200))};
      const Bytes bytes = Encode(kind, size, dice);
      for (uint32_t reduction : {2, 4, 8}) {
        SCOPED_TRACE(testing::Message()
                     << &kind - kVariants << " " << size.width << "x" << size.height << " / " << reduction);
        ASSERT_NO_FATAL_FAILURE(ExpectAsTheLibrary(bytes, reduction));
      }
    }
  }
}

TEST(Jpeg, ReducedPicturesOfFilesWithoutAScanAreTheLibrarys) {
  Dice dice(26);
  for (const Variant& kind : {Colour(1, 1), Colour(2, 1), Colour(2, 2), Colour(4, 1)}) {
    Variant variant = kind;
    variant.scan_each = true;
    const Bytes whole = Encode(variant, {77, 53}, dice);
    const auto byte = [](int value) { return static_cast<std::byte>(value); };
    const std::byte scan[] = {byte(0xff), byte(0xda)};
    Bytes cut = whole;
    for (int from = 3; from > 1; --from) {
      const auto last = std::find_end(cut.begin(), cut.end(), std::begin(scan), std::end(scan));
      ASSERT_NE(last, cut.end());
      cut.erase(last, cut.end());
      Bytes file = cut;
      file.insert(file.end(), {byte(0xff), byte(0xd9)});
      for (uint32_t reduction : {2, 4, 8}) {
        SCOPED_TRACE(testing::Message() << from - 1 << " scans / " << reduction);
        ASSERT_NO_FATAL_FAILURE(ExpectAsTheLibrary(file, reduction));
      }
    }
  }
}

TEST(Jpeg, KeptPlanesAreTheLibrarysWhereChromaHasItsFullSize) {
  Dice dice(25);
  int kept[std::size(kVariants)][4] = {};
  for (const Variant& kind : kVariants) {
    const auto index = static_cast<size_t>(&kind - kVariants);
    for (int round = 0; round < 20; ++round) {
      const ImageSize size{static_cast<uint32_t>(5 + dice.Roll(200)),
                           static_cast<uint32_t>(1 + dice.Roll(200))};
      const Bytes bytes = Encode(kind, size, dice);
      for (int halvings = 0; halvings < 4; ++halvings) {
        SCOPED_TRACE(testing::Message()
                     << index << " " << size.width << "x" << size.height << " / 2^" << halvings);
        bool ycc = false;
        ASSERT_NO_FATAL_FAILURE(ExpectAsTheLibrary(bytes, 1u << halvings, &ycc, true));
        kept[index][halvings] += ycc;
      }
    }
  }
  constexpr size_t kGrey = 0, kFull = 2, kQuarter = 4;
  EXPECT_EQ(kept[kGrey][1], 0);
  EXPECT_EQ(kept[kFull][0], 20);
  EXPECT_EQ(kept[kFull][1], 20);
  EXPECT_EQ(kept[kQuarter][0], 0);
  EXPECT_EQ(kept[kQuarter][1], 20);  // the library reduces chroma less
}

TEST(Jpeg, DamageHasTheLibrarysVerdictAndBytes) {
  Dice dice(23);
  for (const Variant& kind : kVariants) {
    for (int round = 0; round < 30; ++round) {
      Variant variant = kind;
      variant.progressive = round % 3 == 0;
      variant.restart_rows = round % 2;
      const Bytes whole = Encode(variant, {static_cast<uint32_t>(20 + dice.Roll(80)), 70}, dice);
      for (uint64_t n = 0; n < 8; ++n) {
        SCOPED_TRACE(testing::Message() << &kind - kVariants << " round " << round << " " << n);
        ASSERT_NO_FATAL_FAILURE(
            ExpectAsTheLibrary(Mutated(whole, dice.Roll(1 << 20)), n % 2 == 0 ? 1 : 1 << n / 2));
      }
      const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(dice.Roll(whole.size())));
      ASSERT_NO_FATAL_FAILURE(ExpectAsTheLibrary(cut, 1));
    }
  }
}

// Of the decoder's rows anything may be: all paths give the same bytes.
TEST(YccBands, EveryPathGivesTheSameBytes) {
  Dice dice(24);
  for (int round = 0; round < 200; ++round) {
    YccShape shape{
        .size = {static_cast<uint32_t>(1 + dice.Roll(150)), static_cast<uint32_t>(1 + dice.Roll(60))}};
    shape.lines = 2u << dice.Roll(4);
    shape.grey = dice.Roll(8) == 0;
    shape.halved_width = !shape.grey && shape.size.width > 2 && dice.Roll(3) != 0;
    shape.halved_height = shape.halved_width && dice.Roll(2) == 0;
    shape.luma_bytes = shape.chroma_bytes = shape.size.width;
    const auto seed = dice.Roll(1 << 20);
    Samples results[2];
    for (YccPath path : {YccPath::kFastest, YccPath::kPortable}) {
      Dice samples(seed);
      CollectedRgb rgb(shape.size.width);
      YccBands bands(path);
      bands.Start(shape, &rgb);
      for (uint32_t y = 0; y < shape.size.height; y += shape.lines) {
        for (int c = 0; c < (shape.grey ? 1 : 3); ++c) {
          const uint32_t rows = c > 0 && shape.halved_height ? shape.lines / 2 : shape.lines;
          for (uint32_t r = 0; r < rows; ++r) {
            for (uint32_t x = 0; x < shape.size.width; ++x)
              bands.rows(c)[r][x] = static_cast<uint8_t>(samples.Roll(256));
          }
        }
        bands.Take();
      }
      results[path == YccPath::kPortable] = rgb.rgb;
    }
    ASSERT_EQ(results[0].size(), shape.size.rgb_bytes());
    ASSERT_EQ(results[0], results[1]) << shape.size.width << "x" << shape.size.height;
  }
}

// Round numbers, so that a product that is rounded differently anywhere shows.
TEST(YccRows, EveryPairOfChromaGivesTheSameColourOnEveryPath) {
  constexpr uint32_t kWidth = 256;
  Samples luma(kWidth), cb(kWidth), cr(kWidth);
  for (uint32_t x = 0; x < kWidth; ++x) cb[x] = static_cast<uint8_t>(x);
  for (int light : {0, 1, 127, 128, 200, 255}) {
    std::fill(luma.begin(), luma.end(), static_cast<uint8_t>(light));
    for (int red = 0; red < 256; ++red) {
      std::fill(cr.begin(), cr.end(), static_cast<uint8_t>(red));
      Samples planes[2][3];
      for (YccPath path : {YccPath::kFastest, YccPath::kPortable}) {
        uint8_t* out[3];
        for (int c = 0; c < 3; ++c) {
          Samples& plane = planes[path == YccPath::kPortable][c];
          plane.resize(kWidth);
          out[c] = plane.data();
        }
        YccKernelsOf(path).full_to_rgb(luma.data(), cb.data(), cr.data(), kWidth, out);
      }
      for (int c = 0; c < 3; ++c) ASSERT_EQ(planes[0][c], planes[1][c]) << light << " " << red;
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
