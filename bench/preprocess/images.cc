// Times stills from their bytes to final patches, one thread, against libjpeg-turbo's decode alone.
//
//   bench_images --processor DIR [--resampler pil] [--exif-orientation ignore] [--repeat 3] FILE…
//
// A line of JSON for each file: seconds of processor time of each stage, the best of the repeats, taken in
// turns. `decode`: the library's full-size decode (JPEG) into reused memory; `u8`, `f32`: bytes to patches;
// `approximate`: u8 with scaling in the DCT domain, and its PSNR against exact; `resize`: the resizer alone,
// from memory to memory. bench/preprocess/images.py adds the rivals.
#include <cstdio>
// jpeglib.h needs stdio.h first.
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "preprocess/processor.h"
#include "preprocess/resize/resize.h"

namespace evenkeel {
namespace {

using Bytes = std::vector<std::byte>;

struct Arguments {
  ProcessorSpec spec;
  int repeat = 3;
  std::vector<std::string> files;
};

Bytes ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// libjpeg-turbo as everybody uses it; 0 for another format.
void DecodeAlone(const Bytes& bytes, std::vector<uint8_t>& rgb) {
  jpeg_decompress_struct state;
  jpeg_error_mgr errors;
  state.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&state);
  jpeg_mem_src(&state, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&state, TRUE);
  state.out_color_space = state.num_components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&state);
  const size_t stride = size_t{state.output_width} * state.output_components;
  if (rgb.size() < stride * state.output_height) rgb.resize(stride * state.output_height);
  while (state.output_scanline < state.output_height) {
    JSAMPROW rows[4];
    for (JDIMENSION i = 0; i < 4; ++i) rows[i] = rgb.data() + stride * (state.output_scanline + i);
    jpeg_read_scanlines(&state, rows, std::min<JDIMENSION>(4, state.output_height - state.output_scanline));
  }
  jpeg_finish_decompress(&state);
  jpeg_destroy_decompress(&state);
}

// One way of making a file's tensors.
class Path {
 public:
  Path(const ProcessorSpec& spec, Wire wire, bool approximate) {
    ProcessorSpec own = spec;
    own.wire = wire;
    own.approximate = approximate;
    auto processor = preprocess::Processor::LoadMedia(own, Limits{});
    if (!processor.ok()) {
      std::cerr << processor.status() << "\n";
      std::exit(1);
    }
    processor_ = *std::move(processor);
  }
  absl::Status Run(const std::string& suffix, const Bytes& bytes) {
    absl::StatusOr<MediaFacts> facts = processor_->Probe(Medium::kImage, suffix, bytes);
    if (!facts.ok()) return facts.status();
    absl::StatusOr<ItemLengths> lengths = processor_->Measure(*facts);
    if (!lengths.ok()) return lengths.status();
    facts_ = *facts;
    std::vector<std::span<std::byte>> spans;
    const std::vector<preprocess::FieldSpec>& fields = processor_->fields(Medium::kImage);
    fields_.resize(fields.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      const size_t size = fields[i].num_bytes(*lengths);
      if (fields_[i].size() < size) fields_[i].resize(size);
      spans.push_back(std::span(fields_[i]).first(size));
    }
    pixels_ = spans[0];
    return processor_->Produce({Medium::kImage, suffix, bytes, *facts, *lengths}, spans);
  }
  std::span<const std::byte> pixels() const { return pixels_; }
  // From Qwen2-VL's grid of patches of 14.
  preprocess::ImageSize size() const {
    int64_t grid[3] = {};
    std::memcpy(grid, fields_[1].data(), sizeof(grid));
    return {static_cast<uint32_t>(grid[2] * 14), static_cast<uint32_t>(grid[1] * 14)};
  }
  const MediaFacts& facts() const { return facts_; }

 private:
  std::unique_ptr<preprocess::Processor> processor_;
  MediaFacts facts_;
  std::vector<Bytes> fields_;  // like a part's arena: reused
  std::span<const std::byte> pixels_;
};

double Psnr(std::span<const std::byte> a, std::span<const std::byte> b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::to_integer<int>(a[i]) - std::to_integer<int>(b[i]);
    squares += difference * difference;
  }
  return squares == 0 ? 99 : 10 * std::log10(255 * 255 * static_cast<double>(a.size()) / squares);
}

// Of the processor: what else runs on the machine takes none of it.
double Seconds(const std::function<void()>& run) {
  const std::clock_t begin = std::clock();
  run();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

int Main(const Arguments& arguments) {
  Path u8(arguments.spec, Wire::kU8, false), f32(arguments.spec, Wire::kF32, false);
  Path approximate(arguments.spec, Wire::kU8, true);
  std::vector<uint8_t> rgb;
  for (const std::string& file : arguments.files) {
    const Bytes bytes = ReadFile(file);
    const std::string suffix = file.substr(file.rfind('.') + 1);
    const bool jpeg = suffix == "jpg" || suffix == "jpeg";
    absl::Status status = u8.Run(suffix, bytes);
    if (!status.ok()) {
      std::cerr << file << ": " << status << "\n";
      continue;
    }
    const preprocess::ImageSize in{u8.facts().width, u8.facts().height}, out = u8.size();
    rgb.resize(std::max(rgb.size(), in.rgb_bytes()));
    std::vector<uint8_t> resized(out.rgb_bytes());
    double best[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
    for (int i = 0; i < arguments.repeat; ++i) {
      best[0] = std::min(best[0], Seconds([&] { jpeg ? DecodeAlone(bytes, rgb) : void(); }));
      best[1] = std::min(best[1], Seconds([&] { status.Update(u8.Run(suffix, bytes)); }));
      best[2] = std::min(best[2], Seconds([&] { status.Update(f32.Run(suffix, bytes)); }));
      best[3] = std::min(best[3], Seconds([&] { status.Update(approximate.Run(suffix, bytes)); }));
      best[4] =
          std::min(best[4], Seconds([&] {
                     preprocess::Resize(arguments.spec.resampler == "aten_u8" ? preprocess::Resampler::kAtenU8
                                                                              : preprocess::Resampler::kPil,
                                        preprocess::ResizeFilter::kBicubic,
                                        std::span(rgb).first(in.rgb_bytes()), in, resized, out);
                   }));
    }
    std::printf("{\"file\": \"%s\", \"width\": %u, \"height\": %u, \"bytes\": %zu, ", file.c_str(), in.width,
                in.height, bytes.size());
    std::printf("\"out_width\": %u, \"out_height\": %u, \"resize\": %.9f, ", out.width, out.height, best[4]);
    std::printf("\"decode\": %.9f, \"u8\": %.9f, \"f32\": %.9f, \"approximate\": %.9f, \"psnr\": %.2f}\n",
                best[0], best[1], best[2], best[3], Psnr(u8.pixels(), approximate.pixels()));
  }
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::Arguments arguments;
  arguments.spec.resampler = "pil";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--processor" && more) {
      arguments.spec.vision = argv[++i];
    } else if (word == "--resampler" && more) {
      arguments.spec.resampler = argv[++i];
    } else if (word == "--exif-orientation" && more) {
      arguments.spec.exif_orientation = argv[++i];
    } else if (word == "--repeat" && more) {
      arguments.repeat = std::stoi(argv[++i]);
    } else {
      arguments.files.push_back(word);
    }
  }
  if (arguments.spec.vision.empty() || arguments.files.empty()) {
    std::cerr << "bench_images --processor DIR [--resampler pil] [--exif-orientation ignore] [--repeat 3] "
                 "FILE...\n";
    return 2;
  }
  return evenkeel::Main(arguments);
}
