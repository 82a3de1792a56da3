// JPEG through libjpeg-turbo with Pillow's settings: ISLOW, fancy upsampling, full size. The only file that
// includes it.
//
// Grey pictures, and colour with chroma of full size, half the width or half of both sides, are taken from
// the library as component planes and converted to RGB here (preprocess/image/ycc_bands.h): the same bytes at
// a lower cost, and as planes. For all other files the library does everything except two transforms: blocks
// of one colour are filled here, and reduced blocks are made by preprocess/image/reduced_idct.h.
//
// Warnings of the library are accepted, as in Pillow, but data that ends before the image does is an error.
// setjmp is only called in functions that have nothing to destroy.

// jpeglib.h needs size_t and FILE first.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
#include <jpegint.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image/exif.h"
#include "preprocess/image/image.h"
#include "preprocess/image/reduced_idct.h"
#include "preprocess/image/ycc_bands.h"

namespace evenkeel::preprocess {
namespace {

enum class Stop { kNone, kCorrupt, kEnded, kScans };

// One decompression, and everything that its callbacks reach through client_data.
struct JpegReader {
  jpeg_decompress_struct state{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};
  std::span<const std::byte> bytes;
  uint32_t max_scans = 0;
  Stop stop = Stop::kNone;
  inverse_DCT_method_ptr whole_transform[MAX_COMPONENTS] = {};  // the library's transforms

  explicit JpegReader(std::span<const std::byte> bytes, uint32_t max_scans)
      : bytes(bytes), max_scans(max_scans) {}
  ~JpegReader() { jpeg_destroy_decompress(&state); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
};

JpegReader& ReaderOf(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }
JpegReader& ReaderOf(j_decompress_ptr info) { return *static_cast<JpegReader*>(info->client_data); }

// The library's errors end in a jump to the latest setjmp, since it cannot continue and does not return a
// status. The message is kept in the reader, since nothing is returned through the library's functions.
[[noreturn]] void OnError(j_common_ptr info) {
  JpegReader& reader = ReaderOf(info);
  if (reader.stop == Stop::kNone) reader.stop = Stop::kCorrupt;
  info->err->format_message(info, reader.message);
  std::longjmp(reader.jump, 1);
}

// Level -1 is a warning, higher ones are traces. Nothing is printed.
void OnMessage(j_common_ptr info, int level) {
  if (level < 0) ++info->err->num_warnings;
}
void Silent(j_common_ptr) {}
void NothingToDo(j_decompress_ptr) {}

// Called when the data is used up. libjpeg's own sources would insert an end-of-image marker and leave the
// rest grey.
boolean OnEnd(j_decompress_ptr info) {
  ReaderOf(info).stop = Stop::kEnded;
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}

void Skip(j_decompress_ptr info, long num_bytes) {
  if (num_bytes <= 0) return;
  if (static_cast<unsigned long>(num_bytes) > info->src->bytes_in_buffer) OnEnd(info);
  info->src->next_input_byte += num_bytes;
  info->src->bytes_in_buffer -= static_cast<size_t>(num_bytes);
}

// Counts scans: a small progressive file may have thousands, each of which walks over the whole picture.
void OnProgress(j_common_ptr info) {
  JpegReader& reader = ReaderOf(info);
  if (static_cast<uint32_t>(reader.state.input_scan_number) > reader.max_scans) {
    reader.stop = Stop::kScans;
    OnError(info);
  }
}

bool ReadHeader(JpegReader& reader) {
  jpeg_decompress_struct& state = reader.state;
  state.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = OnError;
  reader.errors.emit_message = OnMessage;
  reader.errors.output_message = Silent;
  state.client_data = &reader;
  if (setjmp(reader.jump) != 0) return false;
  jpeg_create_decompress(&state);
  reader.progress.progress_monitor = OnProgress;
  state.progress = &reader.progress;
  reader.source.next_input_byte = reinterpret_cast<const JOCTET*>(reader.bytes.data());
  reader.source.bytes_in_buffer = reader.bytes.size();
  reader.source.init_source = NothingToDo;
  reader.source.term_source = NothingToDo;
  reader.source.fill_input_buffer = OnEnd;
  reader.source.skip_input_data = Skip;
  reader.source.resync_to_restart = jpeg_resync_to_restart;
  state.src = &reader.source;
  jpeg_read_header(&state, TRUE);
  return true;
}

bool IsCmyk(const JpegReader& reader) { return reader.state.num_components == 4; }

#if JPEG_LIB_VERSION >= 70
int BlockSide(const jpeg_decompress_struct& state) { return state.min_DCT_h_scaled_size; }
int BlockSide(const jpeg_component_info& component) { return component.DCT_h_scaled_size; }
#else
int BlockSide(const jpeg_decompress_struct& state) { return state.min_DCT_scaled_size; }
int BlockSide(const jpeg_component_info& component) { return component.DCT_scaled_size; }
#endif

// 1: the component has the picture's width; 2: half of it; 0: another ratio.
int WidthRatio(const jpeg_decompress_struct& state, const jpeg_component_info& component) {
  const int whole = state.max_h_samp_factor * BlockSide(state);
  const int own = component.h_samp_factor * BlockSide(component);
  return own == whole ? 1 : 2 * own == whole ? 2 : 0;
}
int HeightRatio(const jpeg_decompress_struct& state, const jpeg_component_info& component) {
  const int whole = state.max_v_samp_factor * BlockSide(state);
  const int own = component.v_samp_factor * BlockSide(component);
  return own == whole ? 1 : 2 * own == whole ? 2 : 0;
}

// Sets the shape of the planes if YccBands converts them exactly like the library; otherwise false. The
// output's dimensions must have been calculated. The library writes whole blocks, so a row of a plane has the
// bytes of its blocks, which may be more than the picture's width.
bool HasPlainPlanes(const jpeg_decompress_struct& state, YccShape* shape) {
  const jpeg_component_info* parts = state.comp_info;
  *shape = {.size = {state.output_width, state.output_height}};
  shape->lines = static_cast<uint32_t>(state.max_v_samp_factor * BlockSide(state));
  shape->luma_bytes = size_t{parts[0].width_in_blocks} * BlockSide(parts[0]);
  if (kBandRows % shape->lines != 0) return false;
  if (WidthRatio(state, parts[0]) != 1 || HeightRatio(state, parts[0]) != 1) return false;
  shape->grey = state.num_components == 1 && state.jpeg_color_space == JCS_GRAYSCALE;
  if (shape->grey) return true;
  if (state.num_components != 3 || state.jpeg_color_space != JCS_YCbCr) return false;
  const int width_ratio = WidthRatio(state, parts[1]), height_ratio = HeightRatio(state, parts[1]);
  if (width_ratio != WidthRatio(state, parts[2]) || height_ratio != HeightRatio(state, parts[2]))
    return false;
  shape->chroma_bytes = size_t{std::max(parts[1].width_in_blocks, parts[2].width_in_blocks)} *
                        std::max(BlockSide(parts[1]), BlockSide(parts[2]));
  shape->halved_width = width_ratio == 2;
  shape->halved_height = height_ratio == 2;
  if (width_ratio == 1 && height_ratio == 1) return true;
  // The library interpolates only such planes; for others it repeats pixels.
  const bool interpolated = BlockSide(state) > 1 && parts[1].downsampled_width > 2;
  return width_ratio == 2 && height_ratio != 0 && interpolated;
}

// A reduced transform of ours with the signature of the library's own.
template <ReducedIdct kTransform>
void TransformBlock(j_decompress_ptr, jpeg_component_info* component, JCOEFPTR coefficients, JSAMPARRAY rows,
                    JDIMENSION column) {
  static constexpr UINT16 kNone[DCTSIZE2] = {};  // for a component without a scan
  const JQUANT_TBL* table = component->quant_table;
  kTransform(coefficients, table != nullptr ? table->quantval : kNone, rows, column);
}

// Whether all frequencies of a block except the first are zero. The first one is not loaded together with
// others: the library has just stored it, and a wider load would wait for that store.
bool HasOneColour(const JCOEF* coefficients) {
  if ((coefficients[1] | coefficients[DCTSIZE]) != 0) return false;
  uint64_t any = 0, four;
  for (int i = 1; i < DCTSIZE2; i += 4) {
    std::memcpy(&four, coefficients + std::min(i, DCTSIZE2 - 4), sizeof(four));
    any |= four;
  }
  return any == 0;
}

// Fills blocks of one colour, and calls the library's transform for others: it computes every block in full.
void TransformWholeBlock(j_decompress_ptr state, jpeg_component_info* component, JCOEFPTR coefficients,
                         JSAMPARRAY rows, JDIMENSION column) {
  // The first frequency is eight times the block's mean, from -1024 to 1016, plus what quantisation adds.
  // Only damaged files have larger values; for them the library's variants keep different bits.
  constexpr int32_t kMax = 16 * CENTERJSAMPLE;
  const JQUANT_TBL* table = component->quant_table;
  if (table != nullptr && HasOneColour(coefficients)) {
    // Every pixel is the first frequency / 8 + 128, as the full transform (JDCT_ISLOW) rounds it for such a
    // block.
    const int32_t first = coefficients[0] * int32_t{table->quantval[0]};
    if (-kMax <= first && first <= kMax) {
      const int32_t colour = std::clamp(((first + 4) >> 3) + CENTERJSAMPLE, 0, MAXJSAMPLE);
      for (int y = 0; y < DCTSIZE; ++y) std::memset(rows[y] + column, colour, DCTSIZE);
      return;
    }
  }
  ReaderOf(state).whole_transform[component->component_index](state, component, coefficients, rows, column);
}

// Replaces transforms of the library by faster ones. Must be called after jpeg_start_decompress, which
// chooses the library's.
void UseOwnTransforms(JpegReader& reader) {
  jpeg_decompress_struct& state = reader.state;
  for (int c = 0; c < state.num_components; ++c) {
    const int side = BlockSide(state.comp_info[c]);
    if (side == DCTSIZE) {
      reader.whole_transform[c] = state.idct->inverse_DCT[c];
      state.idct->inverse_DCT[c] = TransformWholeBlock;
    }
    if (side == 4) state.idct->inverse_DCT[c] = TransformBlock<ReducedIdct4>;
    if (side == 2) state.idct->inverse_DCT[c] = TransformBlock<ReducedIdct2>;
  }
}

// Starts the decompression, and sets `shape` if planes are read. False: an error.
bool StartRows(JpegReader& reader, uint32_t reduction, YccShape* shape) {
  jpeg_decompress_struct& state = reader.state;
  if (setjmp(reader.jump) != 0) return false;
  state.out_color_space = IsCmyk(reader) ? JCS_CMYK : JCS_RGB;
  state.dct_method = JDCT_ISLOW;
  state.do_fancy_upsampling = TRUE;
  state.scale_num = 1;
  state.scale_denom = reduction;
  jpeg_calc_output_dimensions(&state);
  state.raw_data_out = HasPlainPlanes(state, shape) ? TRUE : FALSE;
  jpeg_start_decompress(&state);
  UseOwnTransforms(reader);
  return true;
}

// Reads the next `count` rows, `stride` bytes apart.
bool ReadRows(JpegReader& reader, uint8_t* out, size_t stride, uint32_t count) {
  jpeg_decompress_struct& state = reader.state;
  if (setjmp(reader.jump) != 0) return false;
  const JDIMENSION first = state.output_scanline;
  while (state.output_scanline < first + count) {
    JSAMPROW rows[kBandRows];
    const JDIMENSION done = state.output_scanline - first;
    for (JDIMENSION i = 0; done + i < count; ++i) rows[i] = out + stride * (done + i);
    jpeg_read_scanlines(&state, rows, count - done);
  }
  return true;
}

// Reads the next rows of each component, as many as the library makes at once.
bool ReadPlanes(JpegReader& reader, YccBands& bands, uint32_t lines) {
  if (setjmp(reader.jump) != 0) return false;
  JSAMPARRAY planes[] = {bands.rows(0), bands.rows(1), bands.rows(2)};
  jpeg_read_raw_data(&reader.state, planes, lines);
  return true;
}

bool FinishRows(JpegReader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  jpeg_finish_decompress(&reader.state);
  return true;
}

bool DecodePlanes(JpegReader& reader, YccShape shape, BandSink& sink) {
  static thread_local YccBands bands;
  shape.kept = sink.takes_ycc() && !shape.grey && !shape.halved_width;
  bands.Start(shape, &sink);
  while (reader.state.output_scanline < reader.state.output_height) {
    if (!ReadPlanes(reader, bands, shape.lines)) return false;
    bands.Take();
  }
  return FinishRows(reader);
}

// Decodes in bands that stay in the cache until the sink has taken them.
bool DecodeBands(JpegReader& reader, uint32_t reduction, BandSink& sink) {
  static thread_local ScratchBytes band_memory, cmyk_memory;
  YccShape shape;
  if (!StartRows(reader, reduction, &shape)) return false;
  if (reader.state.raw_data_out) return DecodePlanes(reader, shape, sink);
  const uint32_t width = reader.state.output_width;
  const size_t stride = size_t{3} * width, cmyk_stride = size_t{4} * width;
  uint8_t* band = band_memory.Get(stride * kBandRows);
  uint8_t* cmyk = IsCmyk(reader) ? cmyk_memory.Get(cmyk_stride * kBandRows) : nullptr;
  while (reader.state.output_scanline < reader.state.output_height) {
    const uint32_t rows = std::min(kBandRows, reader.state.output_height - reader.state.output_scanline);
    if (!ReadRows(reader, cmyk == nullptr ? band : cmyk, cmyk == nullptr ? stride : cmyk_stride, rows))
      return false;
    for (uint32_t r = 0; cmyk != nullptr && r < rows; ++r) {
      CmykToRgb(cmyk + cmyk_stride * r, width, /*inverted=*/true, band + stride * r);
    }
    sink.TakeBand(band, stride, rows);
  }
  return FinishRows(reader);
}

// The error of ReadHeader(): Unimplemented for variants that the library does not support, else `damaged`.
absl::Status HeaderError(const JpegReader& reader, absl::StatusCode damaged) {
  const int code = reader.errors.msg_code;
  const bool unknown = code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED;
  return {unknown ? absl::StatusCode::kUnimplemented : damaged,
          absl::StrCat("JPEG header: ", reader.message)};
}

absl::Status CheckVariant(const JpegReader& reader, const Limits& limits, const ColourOptions& options) {
  const jpeg_decompress_struct& state = reader.state;
  if (state.data_precision != 8) {  // libjpeg-turbo before 3 refuses other precisions itself
    return absl::UnimplementedError(
        absl::StrCat("JPEG of ", state.data_precision, " bits; only 8 bits are supported"));
  }
  if (state.num_components != 1 && state.num_components != 3 && state.num_components != 4) {
    return absl::UnimplementedError(absl::StrCat("JPEG of ", state.num_components, " components"));
  }
  if (IsCmyk(reader) && options.cmyk == Conversion::kRefuse) {
    return absl::UnimplementedError("JPEG of four components; the job's processor.cmyk is refuse");
  }
  if (!jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&state))) return absl::OkStatus();
  uint64_t coefficient_bytes = 0;
  for (int c = 0; c < state.num_components; ++c) {
    const jpeg_component_info& component = state.comp_info[c];
    coefficient_bytes +=
        uint64_t{component.width_in_blocks} * component.height_in_blocks * DCTSIZE2 * sizeof(JCOEF);
  }
  // The coefficients of all scans except the last stay in memory.
  if (coefficient_bytes > limits.max_jpeg_coefficient_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "JPEG of several scans with ", coefficient_bytes,
        " bytes of coefficients; limits.max_jpeg_coefficient_bytes is ", limits.max_jpeg_coefficient_bytes));
  }
  return absl::OkStatus();
}

class Jpeg final : public ImageCodec {
 public:
  bool HasMagic(std::span<const std::byte> bytes) const override {
    return bytes.size() >= 3 && std::memcmp(bytes.data(), "\xff\xd8\xff", 3) == 0;
  }

  bool scales() const override { return true; }

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits& limits,
                                         const ColourOptions& options) const override {
    JpegReader reader(bytes, limits.max_jpeg_scans);
    if (!evenkeel::preprocess::ReadHeader(reader))
      return HeaderError(reader, absl::StatusCode::kInvalidArgument);
    EVENKEEL_RETURN_IF_ERROR(CheckVariant(reader, limits, options));
    ImageHeader header{reader.state.image_width, reader.state.image_height, 0, JpegOrientation(bytes)};
    header.stored_bytes = uint64_t{header.width} * header.height * reader.state.num_components;
    return header;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits& limits, const ColourOptions& options,
                      const ImageHeader& header, uint32_t reduction, BandSink& sink) const override {
    JpegReader reader(bytes, limits.max_jpeg_scans);
    if (!evenkeel::preprocess::ReadHeader(reader)) return HeaderError(reader, absl::StatusCode::kDataLoss);
    EVENKEEL_RETURN_IF_ERROR(CheckVariant(reader, limits, options));
    if (reader.state.image_width != header.width || reader.state.image_height != header.height) {
      return absl::DataLossError("JPEG dimensions differ from those in the index");
    }
    if (DecodeBands(reader, reduction, sink)) return absl::OkStatus();
    std::string where =
        absl::StrCat("JPEG at byte ", bytes.size() - reader.source.bytes_in_buffer, " of ", bytes.size(),
                     ", row ", std::min(reader.state.output_scanline, reader.state.output_height), " of ",
                     reader.state.output_height, ": ");
    if (reader.stop == Stop::kScans) {
      return absl::ResourceExhaustedError(
          absl::StrCat(where, "more scans than limits.max_jpeg_scans ", limits.max_jpeg_scans));
    }
    return absl::DataLossError(
        absl::StrCat(where, reader.stop == Stop::kEnded ? "the data ends" : reader.message));
  }
};

}  // namespace

const ImageCodec& JpegCodec() {
  static const Jpeg codec;
  return codec;
}

}  // namespace evenkeel::preprocess
