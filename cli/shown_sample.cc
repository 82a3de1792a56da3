// Reads one sample as a worker does, and decodes its media once more to small pictures and waveforms.
#include "cli/shown_sample.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/sample_work.h"
#include "core/failure.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/index/index.h"
#include "preprocess/audio/audio.h"
#include "preprocess/image/image.h"
#include "preprocess/resize/resize.h"
#include "preprocess/video/video.h"

namespace evenkeel::cli {
namespace {

constexpr uint32_t kThumbnailSide = 320;
constexpr uint32_t kFrameSide = 200;
constexpr uint32_t kFramesShown = 4;
constexpr size_t kWaveformColumns = 600;
constexpr uint64_t kMaxItemBytes = 256ull << 20;
constexpr uint64_t kMaxSourceBytes = 1ull << 20;
constexpr size_t kMaxTokensOfCharacter = 8;
constexpr int64_t kNoLoss = -100;

// Keeps all rows of a picture.
class WholeFrame final : public preprocess::BandSink {
 public:
  WholeFrame(uint32_t width, uint32_t height)
      : width_(width), height_(height), rgb_(size_t{3} * width * height) {}
  void TakeBand(const preprocess::PixelBand& band) override {
    for (uint32_t row = 0; row < band.rows && taken_ < height_; ++row, ++taken_) {
      CopyInterleaved(band, row, width_, rgb_.data() + size_t{3} * width_ * taken_);
    }
  }
  const std::vector<uint8_t>& rgb() const { return rgb_; }

 private:
  const uint32_t width_, height_;
  uint32_t taken_ = 0;
  std::vector<uint8_t> rgb_;
};

// A picture reduced to at most `side` pixels on its longer side.
Thumbnail Reduced(std::span<const uint8_t> rgb, uint32_t width, uint32_t height, uint32_t side) {
  const uint32_t longer = std::max(width, height);
  Thumbnail out{.width = width, .height = height, .rgb = {}};
  if (longer > side) {
    out.width = std::max<uint32_t>(1, static_cast<uint32_t>(uint64_t{width} * side / longer));
    out.height = std::max<uint32_t>(1, static_cast<uint32_t>(uint64_t{height} * side / longer));
  }
  out.rgb.resize(size_t{3} * out.width * out.height);
  preprocess::Resize(preprocess::Resampler::kPil, preprocess::ResizeFilter::kBilinear, rgb, {width, height},
                     out.rgb, {out.width, out.height});
  return out;
}

absl::Status DecodeInto(const Job& job, std::span<const std::byte> bytes, ShownItem& item) {
  const MediaFacts& facts = item.facts;
  if (item.medium == Medium::kImage) {
    EVENKEEL_ASSIGN_OR_RETURN(const preprocess::ImageHeader header,
                              preprocess::ReadImageHeader(item.suffix, bytes, job.limits));
    std::vector<uint8_t> rgb(header.rgb_bytes());
    EVENKEEL_RETURN_IF_ERROR(preprocess::DecodeImage(item.suffix, bytes, job.limits, header, rgb));
    item.pictures.push_back(Reduced(rgb, header.width, header.height, kThumbnailSide));
    if (bytes.size() <= kMaxSourceBytes) item.source.assign(bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  if (item.medium == Medium::kAudio) {
    EVENKEEL_ASSIGN_OR_RETURN(
        const preprocess::DecodedAudio sound,
        preprocess::DecodeSpeech(item.suffix, bytes, job.limits, facts, preprocess::SpeechSamples(facts)));
    const size_t columns = std::min(kWaveformColumns, sound.samples.size());
    for (size_t i = 0; i < columns; ++i) {
      const auto column =
          sound.samples.subspan(i * sound.samples.size() / columns, (i + 1) * sound.samples.size() / columns -
                                                                        i * sound.samples.size() / columns);
      const auto [low, high] = std::minmax_element(column.begin(), column.end());
      item.waveform.push_back({*low, *high});
    }
    return absl::OkStatus();
  }
  EVENKEEL_ASSIGN_OR_RETURN(const preprocess::FrameLoader loader,
                            preprocess::FrameLoaderOf(job.processor.frames));
  std::vector<uint32_t> chosen;
  const uint32_t count = std::min(kFramesShown, facts.num_frames);
  for (uint32_t i = 0; i < count; ++i)
    chosen.push_back(static_cast<uint32_t>(uint64_t{facts.num_frames} * i / count));
  uint64_t repeated = 0;
  return preprocess::DecodeVideo(
      item.suffix, bytes, job.limits, facts, chosen, loader,
      [&](size_t, preprocess::FrameRows rows) {
        WholeFrame frame(facts.width, facts.height);
        EVENKEEL_RETURN_IF_ERROR(rows(frame));
        item.pictures.push_back(Reduced(frame.rgb(), facts.width, facts.height, kFrameSide));
        return absl::OkStatus();
      },
      &repeated);
}

// Groups tokens into runs and gives each its text.
class RunMaker {
 public:
  RunMaker(const preprocess::Sequence& sequence, const preprocess::Tokenizer& tokenizer)
      : sequence_(sequence), tokenizer_(tokenizer) {}

  std::vector<ShownRun> Make() {
    std::vector<ShownRun> runs;
    for (size_t begin = 0; begin < sequence_.input_ids.size();) {
      size_t end = begin + 1;
      while (end < sequence_.input_ids.size() && Kind(end) == Kind(begin)) ++end;
      ShownRun run{.trained = Kind(begin).second,
                   .medium = Kind(begin).first,
                   .num_tokens = end - begin,
                   .tokens = {}};
      const size_t shown = run.medium == Medium::kText ? end : begin + 1;
      while (begin < shown) run.tokens.push_back(Take(begin, shown));
      runs.push_back(std::move(run));
      begin = end;
    }
    return runs;
  }

 private:
  std::pair<Medium, bool> Kind(size_t i) const {
    return {static_cast<Medium>(sequence_.token_types[i] % kTargetType), sequence_.labels[i] != kNoLoss};
  }
  std::string Decode(size_t begin, size_t end) const {
    std::vector<uint32_t> ids(sequence_.input_ids.begin() + static_cast<ptrdiff_t>(begin),
                              sequence_.input_ids.begin() + static_cast<ptrdiff_t>(end));
    absl::StatusOr<std::string> text = tokenizer_.Decode(ids);
    return text.ok() ? *std::move(text) : absl::StrCat("?", ids.front());
  }
  // The token at `begin`, and those after it that complete its last character. Moves `begin` after them. Texts are decoded
  // together with the token before, since some tokenizers leave out the space at the beginning of a text.
  ShownToken Take(size_t& begin, size_t limit) const {
    const size_t before = begin == 0 ? 0 : begin - 1;
    const std::string prefix = before == begin ? "" : Decode(before, begin);
    ShownToken token;
    for (size_t end = begin + 1; end <= limit; ++end) {
      const std::string text = Decode(before, end);
      token.text =
          text.compare(0, prefix.size(), prefix) == 0 ? text.substr(prefix.size()) : Decode(begin, end);
      const bool is_whole =
          token.text.size() < 3 || token.text.compare(token.text.size() - 3, 3, "\xef\xbf\xbd") != 0;
      if (!is_whole && end < limit && end - begin < kMaxTokensOfCharacter) continue;
      token.ids.assign(sequence_.input_ids.begin() + static_cast<ptrdiff_t>(begin),
                       sequence_.input_ids.begin() + static_cast<ptrdiff_t>(end));
      begin = end;
      break;
    }
    return token;
  }

  const preprocess::Sequence& sequence_;
  const preprocess::Tokenizer& tokenizer_;
};

absl::Status AddText(const stream::Stream& stream, const dataset::SamplePlaces& places,
                     const SampleLengths& lengths, const preprocess::Tokenizer& tokenizer, ShownSample& out) {
  SampleWork work(stream.job.limits, *stream.processor, *stream.source);
  EVENKEEL_ASSIGN_OR_RETURN(const preprocess::Sequence* sequence, work.BuildSequence(places, lengths));
  out.runs = RunMaker(*sequence, tokenizer).Make();
  if (!stream.job.columns.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(out.columns, work.Columns(stream.job, places));
  }
  return absl::OkStatus();
}

ShownPlace PlaceOf(const Plan& plan, size_t phase, const Place& place, const ItemLengths& lengths = {}) {
  const PhasePlan& in = plan.phases[phase];
  return {.phase = std::string(in.phase.name()),
          .rank = in.ranks[place.rank],
          .microbatch = place.microbatch,
          .position = place.position,
          .lengths = lengths};
}

absl::Status ShowItem(const stream::Stream& stream, const dataset::SamplePlaces& places,
                      const dataset::ItemPlace& place, ShownItem& out) {
  if (place.size > kMaxItemBytes) {
    out.error = absl::StrCat("too large to be shown: ", place.size, " bytes");
    return absl::OkStatus();
  }
  std::vector<std::byte> bytes(place.size);
  absl::Status status = dataset::ReadItem(places.shard_path, place, *stream.source, bytes);
  if (!status.ok() && KnownKind(status) == FailureKind::kMachine) return status;
  if (status.ok()) status = DecodeInto(stream.job, bytes, out);
  if (!status.ok()) out.error = std::string(status.message());
  return absl::OkStatus();
}

// Scalars that act on a terminal or reorder what is read.
bool IsHarmful(uint32_t scalar) {
  return scalar < 0x20 || (scalar >= 0x7f && scalar < 0xa0) || scalar == 0x61c ||
         (scalar >= 0x200e && scalar <= 0x200f) || (scalar >= 0x2028 && scalar <= 0x202e) ||
         (scalar >= 0x2066 && scalar <= 0x2069) || scalar == 0xfeff;
}

// The scalar at the begin of valid UTF-8, and its bytes.
std::pair<uint32_t, size_t> FirstScalar(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xe0) return {(byte(0) & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (byte(0) < 0xf0) return {(byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

}  // namespace

absl::StatusOr<ShownSample> ShowSample(const stream::Stream& stream, const stream::StepPlan& plan,
                                       const preprocess::Tokenizer& tokenizer, uint64_t number) {
  const SampleRef& ref = plan.samples.refs[number];
  EVENKEEL_ASSIGN_OR_RETURN(const dataset::SamplePlaces places, stream.index->places(ref.dataset, ref.index));
  const SampleLengths& lengths = plan.samples.lengths[number];
  const PlannedSample& planned = plan.plan.samples[number];
  ShownSample out;
  out.number = number;
  out.name = dataset::SampleName(stream.job, places);
  out.place = PlaceOf(plan.plan, Phase::kLlm.number(), planned.place);
  out.llm_length = planned.llm_length;
  out.tokens = lengths.llm_length;
  out.loss_tokens = planned.loss_tokens;
  const absl::Status text = AddText(stream, places, lengths, tokenizer, out);
  if (!text.ok() && KnownKind(text) == FailureKind::kMachine) return text;
  if (!text.ok()) out.error = std::string(text.message());
  for (const dataset::ItemPlace& place : places.items) {
    ShownItem item{.medium = place.facts.medium,
                   .suffix = place.suffix,
                   .facts = place.facts,
                   .places = {},
                   .pictures = {},
                   .waveform = {},
                   .source = {},
                   .error = {}};
    const size_t ordinal = out.items.size();
    for (uint32_t i = 0; i < planned.num_items; ++i) {
      const PlannedItem& unit = plan.plan.items[planned.first_item + i];
      if (unit.ordinal == ordinal)
        item.places.push_back(PlaceOf(plan.plan, unit.phase, unit.place, unit.lengths));
    }
    EVENKEEL_RETURN_IF_ERROR(ShowItem(stream, places, place, item));
    out.items.push_back(std::move(item));
  }
  return out;
}

std::string Visible(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    for (std::string_view rest = text.substr(0, valid); !rest.empty();) {
      const auto [scalar, size] = FirstScalar(rest);
      if (scalar == '\n') {
        out += "\\n";
      } else if (scalar == '\t') {
        out += "\\t";
      } else if (IsHarmful(scalar)) {
        out += scalar < 0x100 ? absl::StrFormat("\\x%02x", scalar) : absl::StrFormat("\\u%04x", scalar);
      } else {
        out += rest.substr(0, size);
      }
      rest.remove_prefix(size);
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\xef\xbf\xbd";
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace evenkeel::cli
