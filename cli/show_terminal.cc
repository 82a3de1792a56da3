// Draws a sample with characters. A half block shows two pixels: its own colour is the upper one, the background the lower one.
#include "cli/show_terminal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::cli {
namespace {

constexpr uint32_t kMaxPictureColumns = 60;
constexpr uint32_t kMaxPictureRows = 24;
constexpr uint32_t kWaveformRows = 4;
constexpr size_t kMaxTokens = 2000;  // of a run
constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kCyan = "\x1b[36m";
constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kUnderlined = "\x1b[4m";

class Lines {
 public:
  explicit Lines(const TerminalStyle& style) : style_(style) {}

  std::string Take() { return std::move(out_); }

  void Add(std::string_view colour, std::string_view text) {
    Begin(colour);
    out_ += text;
    End();
    out_ += '\n';
  }

  void Picture(const Thumbnail& picture) {
    if (!style_.colour) return;
    // A character is about twice as high as wide, so a pixel of a half block is a square.
    uint32_t width = std::max(1u, std::min({picture.width, style_.width - 4, kMaxPictureColumns}));
    uint32_t height = std::max(1u, static_cast<uint32_t>(uint64_t{picture.height} * width / picture.width));
    if (height > 2 * kMaxPictureRows) {
      height = 2 * kMaxPictureRows;
      width = std::max(1u, static_cast<uint32_t>(uint64_t{picture.width} * height / picture.height));
    }
    std::vector<uint8_t> small(size_t{3} * width * height);
    preprocess::Resize(preprocess::Resampler::kPil, preprocess::ResizeFilter::kBilinear, picture.rgb,
                       {picture.width, picture.height}, small, {width, height});
    for (uint32_t y = 0; y < height; y += 2) {
      out_ += "    ";
      for (uint32_t x = 0; x < width; ++x) {
        const uint8_t* upper = &small[size_t{3} * (size_t{y} * width + x)];
        absl::StrAppendFormat(&out_, "\x1b[38;2;%d;%d;%dm", upper[0], upper[1], upper[2]);
        if (y + 1 < height) {
          const uint8_t* lower = upper + size_t{3} * width;
          absl::StrAppendFormat(&out_, "\x1b[48;2;%d;%d;%dm", lower[0], lower[1], lower[2]);
        }
        out_ += "\u2580";
      }
      out_ += kReset;
      out_ += '\n';
    }
  }

  // The swings around the middle line, as bars of eighths of a character; the upper half is drawn.
  void Waveform(std::span<const Swing> swings) {
    constexpr std::array<std::string_view, 9> kBars = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const size_t columns = std::min<size_t>(swings.size(), style_.width - 4);
    if (columns == 0) return;
    std::vector<float> height(columns);
    float top = 1e-6f;
    for (size_t i = 0; i < columns; ++i) {
      for (size_t k = i * swings.size() / columns; k < (i + 1) * swings.size() / columns; ++k) {
        height[i] = std::max({height[i], swings[k].high, -swings[k].low});
      }
      top = std::max(top, height[i]);
    }
    for (uint32_t row = kWaveformRows; row > 0; --row) {
      out_ += "    ";
      Begin(kCyan);
      for (const float value : height) {
        const float eighths = value / top * 8 * kWaveformRows - 8.0f * static_cast<float>(row - 1);
        out_ += kBars[static_cast<size_t>(std::clamp(eighths, 0.0f, 8.0f))];
      }
      End();
      out_ += '\n';
    }
    Add(kDim, absl::StrFormat("    loudest %.3f of full scale", top));
  }

  // Neighbouring tokens differ by an underline.
  void Run(const ShownRun& run) {
    const bool is_text = run.medium == Medium::kText;
    const std::string kind = !is_text      ? std::string(MediumName(run.medium))
                             : run.trained ? "trained"
                                           : "no loss";
    const std::string_view colour = !is_text ? kCyan : run.trained ? kGreen : std::string_view();
    out_ += "  ";
    Begin(colour);
    absl::StrAppendFormat(&out_, "%-8s %5d  ", kind, run.num_tokens);
    if (!is_text) {
      absl::StrAppend(&out_, run.tokens.empty() ? "" : Visible(run.tokens.front().text), " x ",
                      run.num_tokens);
      End();
      out_ += '\n';
      return;
    }
    for (size_t i = 0; i < std::min(run.tokens.size(), kMaxTokens); ++i) {
      if (style_.colour && i % 2 == 1) out_ += kUnderlined;
      out_ += Visible(run.tokens[i].text);
      if (style_.colour && i % 2 == 1) absl::StrAppend(&out_, "\x1b[24m");
    }
    if (run.tokens.size() > kMaxTokens)
      absl::StrAppend(&out_, " ... ", run.tokens.size() - kMaxTokens, " more");
    End();
    out_ += '\n';
  }

 private:
  void Begin(std::string_view colour) {
    if (style_.colour) out_ += colour;
  }
  void End() {
    if (style_.colour) out_ += kReset;
  }

  const TerminalStyle& style_;
  std::string out_;
};

}  // namespace

std::string DescribePlace(const ShownPlace& place) {
  return absl::StrFormat("%s: rank %d, microbatch %d, position %d", place.phase, place.rank, place.microbatch,
                         place.position);
}

std::string DescribeItem(const ShownItem& item) {
  const MediaFacts& facts = item.facts;
  std::string out = absl::StrCat(std::string(MediumName(item.medium)), " ", Visible(item.suffix), " ");
  if (item.medium == Medium::kAudio) {
    absl::StrAppendFormat(&out, "%.2f s, %d Hz, %d channels", static_cast<double>(facts.duration_us) / 1e6,
                          facts.sample_rate, facts.channels);
  } else {
    absl::StrAppendFormat(&out, "%dx%d", facts.width, facts.height);
    if (item.medium == Medium::kVideo) {
      absl::StrAppendFormat(&out, ", %d frames, %.2f s", facts.num_frames,
                            static_cast<double>(facts.duration_us) / 1e6);
    }
  }
  return out;
}

std::string SampleLines(const ShownSample& sample, const TerminalStyle& style) {
  Lines lines(style);
  lines.Add(kBold, absl::StrCat("sample ", sample.number, "  ", Visible(sample.name)));
  lines.Add("",
            absl::StrFormat("  %s; %d tokens (%d with padding), %d with loss", DescribePlace(sample.place),
                            sample.tokens, sample.llm_length, sample.loss_tokens));
  if (!sample.error.empty())
    lines.Add(kRed, absl::StrCat("  text cannot be delivered: ", Visible(sample.error)));
  if (!sample.columns.empty()) lines.Add("", absl::StrCat("  columns ", Visible(sample.columns)));
  for (size_t i = 0; i < sample.items.size(); ++i) {
    const ShownItem& item = sample.items[i];
    lines.Add(kCyan, absl::StrCat("  item ", i, "  ", DescribeItem(item)));
    for (const ShownPlace& place : item.places) {
      lines.Add("", absl::StrFormat("    %s; %d rows in, %d rows out", DescribePlace(place),
                                    place.lengths.input_rows, place.lengths.output_rows));
    }
    if (!item.error.empty()) lines.Add(kRed, absl::StrCat("    cannot be decoded: ", Visible(item.error)));
    for (const Thumbnail& picture : item.pictures) lines.Picture(picture);
    lines.Waveform(item.waveform);
  }
  for (const ShownRun& run : sample.runs) lines.Run(run);
  return lines.Take();
}

}  // namespace evenkeel::cli
