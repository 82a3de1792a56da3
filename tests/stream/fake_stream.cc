#include "tests/stream/fake_stream.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "tests/usual_phases.h"

namespace evenkeel::stream {
namespace {

// Paths are "item SAMPLE ORDINAL" and "text SAMPLE".
class FakeSource : public dataset::ByteSource {
 public:
  explicit FakeSource(const std::vector<FakeSample>& samples) {
    for (size_t i = 0; i < samples.size(); ++i) {
      bytes_[absl::StrCat("shard-", i, ".tar")] = Content(samples[i]);
    }
  }

  static std::string Content(const FakeSample& sample) {
    std::string content = sample.text_now.empty() ? sample.text : sample.text_now;
    content.resize(sample.text.size(), ' ');
    for (const FakeItem& item : sample.items) content += item.bytes;
    return content;
  }

  absl::StatusOr<uint64_t> Size(const std::string& path) override {
    const auto found = bytes_.find(path);
    if (found == bytes_.end()) return absl::NotFoundError(path);
    return found->second.size();
  }
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    const auto found = bytes_.find(path);
    if (found == bytes_.end()) return absl::NotFoundError(absl::StrCat(path, ": no such shard"));
    if (offset + out.size() > found->second.size())
      return absl::OutOfRangeError(absl::StrCat(path, ": too short"));
    std::memcpy(out.data(), found->second.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  std::map<std::string, std::string> bytes_;
};

MediaFacts FactsOf(const FakeItem& item) {
  MediaFacts facts;
  facts.medium = item.medium;
  facts.width = item.rows;
  return facts;
}

class FakeIndex : public dataset::Index {
 public:
  FakeIndex(std::vector<FakeSample> samples, const preprocess::Processor& processor)
      : samples_(std::move(samples)), processor_(processor) {}

  Digest digest() const override { return DigestOf("fake index"); }
  uint64_t num_samples(uint32_t) const override { return samples_.size(); }

  absl::StatusOr<SampleLengths> lengths(uint32_t, uint64_t index) const override {
    const FakeSample& sample = samples_[index];
    SampleLengths out;
    uint32_t placeholders = 0;
    for (const FakeItem& item : sample.items) {
      EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, processor_.Measure(FactsOf(item)));
      out.items.push_back({.medium = item.medium, .lengths = lengths});
      placeholders += lengths.output_rows;
    }
    out.llm_length = placeholders + sample.text.size();
    out.loss_tokens = sample.text.size() - (placeholders == 0 ? 1 : 0);
    out.chosen_length = sample.chosen;
    return out;
  }

  absl::StatusOr<dataset::SamplePlaces> places(uint32_t dataset, uint64_t index) const override {
    const FakeSample& sample = samples_[index];
    dataset::SamplePlaces out;
    out.dataset = dataset;
    out.key = absl::StrCat("key-", index);
    out.shard_path = absl::StrCat("shard-", index, ".tar");
    out.text_form = dataset::TextForm::kPlain;
    out.text_size = sample.text.size();
    const std::string content = FakeSource::Content(sample);  // as it is now: nobody changed it since
    const auto bytes = std::as_bytes(std::span(content));
    out.text_checksum = ChecksumOf(bytes.first(out.text_size));
    uint64_t offset = out.text_size;
    for (const FakeItem& item : sample.items) {
      const char* suffix = item.medium == Medium::kImage   ? "jpg"
                           : item.medium == Medium::kVideo ? "mp4"
                                                           : "wav";
      out.items.push_back({.offset = offset,
                           .size = item.bytes.size(),
                           .checksum = ChecksumOf(bytes.subspan(offset, item.bytes.size())),
                           .suffix = suffix,
                           .facts = FactsOf(item)});
      offset += item.bytes.size();
    }
    return out;
  }

 private:
  const std::vector<FakeSample> samples_;
  const preprocess::Processor& processor_;
};

// Sample n of the stream is row n modulo the number of rows.
class FakeSampler : public dataset::Sampler {
 public:
  FakeSampler(uint64_t per_step, const dataset::Index& index) : per_step_(per_step), index_(index) {}
  absl::StatusOr<StepSamples> Samples(uint64_t step) const override {
    StepSamples out;
    out.step = step;
    for (uint64_t i = step * per_step_; i < (step + 1) * per_step_; ++i) {
      const uint64_t rows = index_.num_samples(0);
      out.refs.push_back({.dataset = 0, .epoch = i / rows, .index = i % rows});
      EVENKEEL_ASSIGN_OR_RETURN(SampleLengths lengths, index_.lengths(0, i % rows));
      out.lengths.push_back(std::move(lengths));
    }
    return out;
  }

 private:
  const uint64_t per_step_;
  const dataset::Index& index_;
};

}  // namespace

FakeProcessor::FakeProcessor() {
  fields_[Medium::kImage] = {{.name = "pixel_values", .dtype = DType::kF32, .per_row = true, .trailing = {6}},
                             {.name = "image_grid_thw", .dtype = DType::kI64, .trailing = {3}}};
  fields_[Medium::kVideo] = {
      {.name = "pixel_values_videos", .dtype = DType::kU8, .per_row = true, .trailing = {5}},
      {.name = "video_grid_thw", .dtype = DType::kI64, .trailing = {3}}};
  fields_[Medium::kAudio] = {{.name = "input_features", .dtype = DType::kF32, .trailing = {2, 3}}};
  fields_[Medium::kText] = {};
}

const std::vector<preprocess::FieldSpec>& FakeProcessor::fields(Medium medium) const {
  return fields_.at(medium);
}

absl::StatusOr<MediaFacts> FakeProcessor::Probe(Medium, std::string_view, std::span<const std::byte>) const {
  return absl::UnimplementedError("not here");
}

absl::StatusOr<ItemLengths> FakeProcessor::Measure(const MediaFacts& facts) const {
  return ItemLengths{
      .cost_length = facts.width, .input_rows = facts.width, .output_rows = std::max(1u, facts.width / 4)};
}

absl::StatusOr<SequenceLengths> FakeProcessor::MeasureSequence(const Conversation&,
                                                               std::span<const SampleItem>,
                                                               std::span<const MediaFacts>) const {
  return absl::UnimplementedError("not here");
}

absl::Status FakeProcessor::Produce(const preprocess::ItemRequest& request,
                                    std::span<const std::span<std::byte>> fields) const {
  ++produced;
  const char first = request.bytes.empty() ? 'X' : static_cast<char>(request.bytes[0]);
  if (first == 'U') return absl::UnavailableError("the decoder is away");
  if (first == 'T') throw std::runtime_error("the decoder threw");
  for (const std::span<std::byte>& field : fields) {
    for (size_t i = 0; i < field.size(); ++i) field[i] = std::byte(first + i % 7);
  }
  // A verdict may come after bytes were written.
  if (first == 'X') return absl::DataLossError("not a picture");
  if (first == 'R') return absl::ResourceExhaustedError("beyond a limit");
  return absl::OkStatus();
}

absl::Status FakeProcessor::FillInvalid(const preprocess::ItemRequest&,
                                        std::span<const std::span<std::byte>> fields) const {
  for (const std::span<std::byte>& field : fields) std::fill(field.begin(), field.end(), std::byte{0});
  return absl::OkStatus();
}

MediaFacts FakeProcessor::DummyFacts(const Phase& phase) const {
  return FactsOf({.medium = phase == kVisionPhase ? Medium::kImage : Medium::kAudio, .rows = 4});
}

absl::Status FakeProcessor::BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                                          std::span<const MediaFacts>, preprocess::Sequence& out) const {
  out = preprocess::Sequence{};
  for (const Turn& turn : conversation.turns) {
    if (conversation.rejected != 0 && &turn == &conversation.turns[conversation.rejected])
      out.chosen_length = static_cast<uint32_t>(out.input_ids.size());
    for (const Span& span : turn.spans) {
      if (span.medium == Medium::kText) {
        if (span.text.find('#') != std::string::npos) return absl::InvalidArgumentError("'#' is no text");
        for (unsigned char c : span.text) {
          out.input_ids.push_back(c);
          out.labels.push_back(out.input_ids.size() == 1 ? -100 : c);
          out.token_types.push_back(0);
        }
      } else {
        for (uint32_t i = 0; i < items[span.item].lengths.output_rows; ++i) {
          out.input_ids.push_back(kFakePlaceholder + static_cast<int>(span.medium));
          out.labels.push_back(-100);
          out.token_types.push_back(static_cast<uint8_t>(span.medium));
        }
      }
    }
  }
  for (int axis = 0; axis < 3; ++axis) {
    for (size_t i = 0; i < out.input_ids.size(); ++i) out.positions.push_back(i);
  }
  return absl::OkStatus();
}

Job FakeJob(uint32_t ranks, uint64_t samples) {
  Job job;
  job.name = "fake";
  job.datasets = {{.name = "a"}};
  job.batch.samples = samples;
  for (Phase phase : kUsualPhases) {
    PhaseSpec spec{.phase = phase};
    for (uint32_t rank = 0; rank < ranks; ++rank) spec.ranks.push_back(rank);
    job.phases.push_back(spec);
  }
  return job;
}

std::unique_ptr<Stream> MakeFakeStream(Job job, std::vector<FakeSample> samples) {
  auto stream = std::make_unique<Stream>();
  stream->job = std::move(job);
  stream->source = std::make_unique<FakeSource>(samples);
  stream->processor = std::make_unique<FakeProcessor>();
  stream->index = std::make_unique<FakeIndex>(std::move(samples), *stream->processor);
  if (stream->job.batch.samples > 0) {
    stream->sampler = std::make_unique<FakeSampler>(stream->job.batch.samples, *stream->index);
  } else {
    stream->sampler = *dataset::Sampler::Make(stream->job, *stream->index);
  }
  const absl::Status finished = FinishStream(*stream);
  if (!finished.ok()) throw std::runtime_error(finished.ToString());
  return stream;
}

std::vector<FakeSample> MixedSamples(size_t count) {
  std::vector<FakeSample> samples;
  for (size_t i = 0; i < count; ++i) {
    FakeSample sample{.text = std::string(3 + (i * 7) % 23, static_cast<char>('a' + i % 26))};
    for (size_t item = 0; item < i % 4; ++item) {
      const Medium medium = (i + item) % 3 == 0   ? Medium::kAudio
                            : (i + item) % 3 == 1 ? Medium::kVideo
                                                  : Medium::kImage;
      sample.items.push_back({.medium = medium,
                              .rows = static_cast<uint32_t>(4 * (1 + (i + item) % 9)),
                              .bytes = std::string(1 + i % 5, static_cast<char>('a' + (i + item) % 20))});
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace evenkeel::stream
