// Times the resizer alone, from memory to memory, one thread.
//
//   bench_resize WIDTH HEIGHT OUT_WIDTH OUT_HEIGHT TURNS pil|pil13|aten_u8 [planes]
//
// Prints the least processor time of a turn, in nanoseconds a source pixel, of interleaved RGB, or of planes,
// in bands of rows; the result goes to planes, row by row. EVENKEEL_CPU chooses the instructions.
// bench/preprocess/resize.py adds the rivals.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "preprocess/resize/row_resizer.h"

namespace evenkeel {
namespace {

// Keeps what it is given, as a caller would.
class PlaneSink : public preprocess::RowSink {
 public:
  explicit PlaneSink(preprocess::ImageSize size) : bytes_(size.rgb_bytes()) {}
  void Restart() { at_ = 0; }
  void Take(const preprocess::PlanarRow& row) override {
    for (const uint8_t* plane : row.plane) {
      std::memcpy(bytes_.data() + at_, plane, row.width);
      at_ += row.width;
    }
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t at_ = 0;
};

double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int Main(const preprocess::ResizePlan& plan, int turns, bool planes) {
  std::vector<uint8_t> rgb(plan.in.rgb_bytes());
  uint32_t state = 1;
  for (uint8_t& byte : rgb) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  const size_t width = plan.in.width, plane = width * plan.in.height;
  const preprocess::PixelBand picture =
      planes ? preprocess::PixelBand{{rgb.data(), rgb.data() + plane, rgb.data() + 2 * plane},
                                     width,
                                     plan.in.height}
             : preprocess::InterleavedBand(rgb.data(), 3 * width, plan.in.height);
  preprocess::RowResizer resizer;
  PlaneSink sink(plan.out);
  double least = 1e9;
  for (int turn = 0; turn < turns; ++turn) {
    sink.Restart();
    const double begin = ProcessorSeconds();
    resizer.Start(plan, &sink);
    resizer.Feed(picture);
    least = std::min(least, ProcessorSeconds() - begin);
  }
  std::printf("%.4f\n", least * 1e9 / static_cast<double>(plane));
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  const bool planes = argc == 8 && std::string_view(argv[7]) == "planes";
  if (argc != 7 && !planes) {
    std::fprintf(stderr, "bench_resize WIDTH HEIGHT OUT_WIDTH OUT_HEIGHT TURNS pil|pil13|aten_u8 [planes]\n");
    return 2;
  }
  auto number = [&](int i) { return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)); };
  evenkeel::preprocess::ResizePlan plan;
  plan.in = {number(1), number(2)};
  plan.out = {number(3), number(4)};
  const std::string_view resampler = argv[6];
  plan.resampler = resampler == "aten_u8" ? evenkeel::preprocess::Resampler::kAtenU8
                   : resampler == "pil13" ? evenkeel::preprocess::Resampler::kPil13
                                          : evenkeel::preprocess::Resampler::kPil;
  return evenkeel::Main(plan, static_cast<int>(number(5)), planes);
}
