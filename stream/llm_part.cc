#include "server/llm_part.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/scratch.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "server/attempt.h"

namespace evenkeel {
namespace {

constexpr int64_t kNoLoss = -100;

// One sample of the part.
struct Unit {
  uint32_t number = 0;  // into plan.samples
  SamplePlaces places;
  std::string sample;  // the exclude line
  uint64_t begin = 0;  // its first token, counted over rows
  uint64_t room = 0;   // tokens it may write: the aligned length (packed), the row (padded)
};

// What a thread keeps from one sample to the next.
struct Scratch {
  ConversationReader reader;
  std::vector<MediaFacts> facts;
  Sequence sequence;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

// Views of the tensors that hold a value for every token; rows follow one another.
struct Tokens {
  std::span<int64_t> ids, labels, types, mask;  // mask is empty where packed
  std::span<int64_t> positions;                 // [3][tokens]
};

std::span<int64_t> Int64(std::span<std::byte> bytes) {
  return {reinterpret_cast<int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)};
}

class LlmTask : public PartTask {
 public:
  LlmTask(const Stream& stream, std::shared_ptr<const StepPlan> plan, const PartName& name, Metrics* metrics,
          std::shared_ptr<BadData> bad_data)
      : stream_(stream),
        padded_(stream.job.phase(Phase::kLlm)->batching == Batching::kPadded),
        plan_(std::move(plan)),
        name_(name),
        metrics_(metrics),
        bad_data_(std::move(bad_data)) {}

  absl::Status Lay(std::span<const uint32_t> samples) {
    for (uint32_t sample : samples) EVENKEEL_RETURN_IF_ERROR(AddUnit(sample));
    const MicrobatchSpec& spec = stream_.job.microbatch;
    padded_ ? ShapePadded(spec) : ShapePacked(spec);
    MakeLayout();
    return absl::OkStatus();
  }

  const PartName& name() const override { return name_; }
  uint64_t num_bytes() const override { return layout_->total_bytes(); }
  size_t num_units() const override { return units_.size(); }
  uint64_t scratch_bytes() const override { return scratch_bytes_; }

  void Begin(std::span<std::byte> part) override {
    layout_->WriteHeader(part);
    if (!padded_) {
      auto* bounds = reinterpret_cast<int32_t*>(layout_->tensor(part, tensor_.cu_seqlens).data());
      std::copy(cu_seqlens_.begin(), cu_seqlens_.end(), bounds);
    }
    Int64(layout_->tensor(part, tensor_.loss_tokens))[0] = static_cast<int64_t>(loss_tokens_);
    std::span<int64_t> ids = Int64(layout_->tensor(part, tensor_.sample_ids));
    for (size_t i = 0; i < units_.size(); ++i) {
      const SampleRef& ref = plan_->samples.refs[units_[i].number];
      ids[3 * i] = static_cast<int64_t>(ref.dataset);
      ids[3 * i + 1] = static_cast<int64_t>(ref.epoch);
      ids[3 * i + 2] = static_cast<int64_t>(ref.index);
    }
    // What no sample owns: the segment of padding, or the one row of an empty microbatch.
    const uint64_t owned = units_.empty() ? 0 : units_.back().begin + units_.back().room;
    Pad(TokensOf(part), owned, rows_ * length_, /*next_position=*/0);
  }

  absl::Status RunUnit(size_t number, std::span<std::byte> part) override {
    const Unit& unit = units_[number];
    const absl::Time begin = SteadyNow();
    bool valid = true;
    Scratch& scratch = ThreadScratch();
    const Sequence& sequence = scratch.sequence;
    const absl::Status built = Attempt([&] { return Build(unit, scratch, &valid); });  // so that it is named
    if (!built.ok()) {
      const absl::Status where = AddContext(built, absl::StrCat(unit.sample, ", ", DescribePart(name_)));
      return WithExcludeLine(where, unit.sample);
    }
    Write(sequence, unit, TokensOf(part));
    layout_->tensor(part, tensor_.sample_valid)[number] = std::byte{valid};
    if (metrics_ != nullptr) {
      metrics_->ObserveStage(Stage::kText, SteadyNow() - begin);
      metrics_->CountSample(valid);
      metrics_->CountTokens(Phase::kLlm, sequence.input_ids.size());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddUnit(uint32_t number) {
    const PlannedSample& planned = plan_->plan.samples[number];
    Unit unit{.number = number};
    const SampleRef& ref = plan_->samples.refs[number];
    EVENKEEL_ASSIGN_OR_RETURN(unit.places, stream_.index->places(ref.dataset, ref.index));
    unit.sample = SampleName(stream_.job, unit.places);
    loss_tokens_ += planned.loss_tokens;
    scratch_bytes_ = std::max(scratch_bytes_, unit.places.text_size + 64 * uint64_t{planned.llm_length});
    units_.push_back(std::move(unit));
    return absl::OkStatus();
  }

  uint64_t Length(const Unit& unit) const { return plan_->plan.samples[unit.number].llm_length; }

  void ShapePacked(const MicrobatchSpec& spec) {
    uint64_t tokens = 0;
    cu_seqlens_ = {0};
    for (Unit& unit : units_) {
      unit.begin = tokens;
      unit.room = Length(unit);
      tokens += unit.room;
      cu_seqlens_.push_back(static_cast<int32_t>(tokens));
    }
    length_ = std::max<uint64_t>(tokens, spec.pad_to);
    if (length_ == 0) length_ = spec.align;
    if (length_ > tokens) cu_seqlens_.push_back(static_cast<int32_t>(length_));
  }

  void ShapePadded(const MicrobatchSpec& spec) {
    rows_ = std::max<uint64_t>(1, units_.size());
    length_ = units_.empty() ? spec.align : 0;
    for (const Unit& unit : units_) length_ = std::max(length_, Length(unit));
    length_ = std::max(length_, spec.pad_to / rows_ / spec.align * spec.align);
    for (size_t i = 0; i < units_.size(); ++i) {
      units_[i].begin = i * length_;
      units_[i].room = length_;
    }
  }

  void MakeLayout() {
    std::vector<TensorSpec> specs;
    std::vector<std::string> keys;
    for (const Unit& unit : units_) keys.push_back(unit.sample);
    const auto add = [&specs](std::string name, DType dtype, std::vector<uint64_t> shape) {
      specs.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
      return specs.size() - 1;
    };
    tensor_.ids = add("input_ids", DType::kI64, {rows_, length_});
    tensor_.labels = add("labels", DType::kI64, {rows_, length_});
    if (padded_) tensor_.mask = add("attention_mask", DType::kI64, {rows_, length_});
    tensor_.positions = add("position_ids", DType::kI64, {3, rows_, length_});
    tensor_.types = add("mm_token_type_ids", DType::kI64, {rows_, length_});
    if (!padded_) tensor_.cu_seqlens = add("cu_seqlens", DType::kI32, {cu_seqlens_.size()});
    tensor_.loss_tokens = add("loss_tokens", DType::kI64, {1});
    tensor_.sample_ids = add("sample_ids", DType::kI64, {units_.size(), 3});
    tensor_.sample_valid = add("sample_valid", DType::kU8, {units_.size()});
    layout_.emplace(name_, /*num_pieces=*/1, std::move(specs), std::move(keys));
  }

  Tokens TokensOf(std::span<std::byte> part) const {
    Tokens out{.ids = Int64(layout_->tensor(part, tensor_.ids)),
               .labels = Int64(layout_->tensor(part, tensor_.labels)),
               .types = Int64(layout_->tensor(part, tensor_.types)),
               .positions = Int64(layout_->tensor(part, tensor_.positions))};
    if (padded_) out.mask = Int64(layout_->tensor(part, tensor_.mask));
    return out;
  }

  // Makes scratch.sequence the sample's; where its text is not what the index saw, a stand-in, and `valid`
  // becomes false.
  absl::Status Build(const Unit& unit, Scratch& scratch, bool* valid) const {
    const SampleLengths& lengths = plan_->samples.lengths[unit.number];
    Emptied(scratch.facts);
    for (const ItemPlace& item : unit.places.items) scratch.facts.push_back(item.facts);
    absl::Status why = BuildFromText(unit, lengths, scratch);
    if (!why.ok() && !BadData::IsVerdict(why)) return why;
    if (why.ok()) why = CheckAgainstPlan(scratch.sequence, lengths);
    if (why.ok()) return why;
    *valid = false;
    bad_data_->Report("text", unit.sample, why);
    return StandIn(lengths, scratch);
  }

  absl::Status BuildFromText(const Unit& unit, const SampleLengths& lengths, Scratch& scratch) const {
    EVENKEEL_ASSIGN_OR_RETURN(const Conversation* conversation,
                              scratch.reader.Read(unit.places, stream_.job.limits, *stream_.source));
    return stream_.processor->BuildSequence(*conversation, lengths.items, scratch.facts, scratch.sequence);
  }

  static absl::Status CheckAgainstPlan(const Sequence& sequence, const SampleLengths& lengths) {
    if (sequence.input_ids.size() != lengths.llm_length) {
      return absl::InvalidArgumentError(absl::StrCat("the sequence has ", sequence.input_ids.size(),
                                                     " tokens, the index planned ", lengths.llm_length));
    }
    const uint64_t loss_tokens =
        sequence.labels.size() - std::count(sequence.labels.begin(), sequence.labels.end(), kNoLoss);
    if (loss_tokens != lengths.loss_tokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the sequence has ", loss_tokens, " loss tokens, the index planned ", lengths.loss_tokens));
    }
    return absl::OkStatus();
  }

  // The sample's media alone, so that encoder outputs still find their placeholders. Never trained.
  absl::Status StandIn(const SampleLengths& lengths, Scratch& scratch) const {
    Sequence& sequence = scratch.sequence;
    sequence = Sequence();
    if (lengths.items.empty()) return absl::OkStatus();
    Conversation media{.plain = true, .turns = {Turn{.role = Role::kUser}}};
    for (size_t i = 0; i < lengths.items.size(); ++i) {
      media.turns[0].spans.push_back({.medium = lengths.items[i].medium, .item = static_cast<uint32_t>(i)});
    }
    const absl::Status built =
        stream_.processor->BuildSequence(media, lengths.items, scratch.facts, sequence);
    if (!built.ok() || sequence.input_ids.size() > lengths.llm_length) {
      return absl::InternalError(
          absl::StrCat("the text is not what the index saw, and there is no room for its "
                       "media alone: ",
                       built.message()));
    }
    std::fill(sequence.labels.begin(), sequence.labels.end(), kNoLoss);
    return absl::OkStatus();
  }

  void Write(const Sequence& sequence, const Unit& unit, const Tokens& out) const {
    const uint64_t length = sequence.input_ids.size();
    std::copy(sequence.input_ids.begin(), sequence.input_ids.end(), out.ids.begin() + unit.begin);
    std::copy(sequence.labels.begin(), sequence.labels.end(), out.labels.begin() + unit.begin);
    std::copy(sequence.token_types.begin(), sequence.token_types.end(), out.types.begin() + unit.begin);
    int64_t next = 0;
    for (uint64_t axis = 0; axis < 3; ++axis) {
      const auto from = sequence.positions.begin() + axis * length;
      std::copy(from, from + length, out.positions.begin() + axis * rows_ * length_ + unit.begin);
      for (uint64_t i = 0; i < length; ++i) next = std::max(next, from[i] + 1);
    }
    // The planned tokens of a stand-in count as tokens of the sample.
    const uint64_t real = plan_->samples.lengths[unit.number].llm_length;
    if (padded_) std::fill_n(out.mask.begin() + unit.begin, std::max(length, real), 1);
    Pad(out, unit.begin + length, unit.begin + unit.room, next, unit.begin + real);
  }

  // Padding from token `begin` to `end`. Before `real` it still belongs to a sample.
  void Pad(const Tokens& out, uint64_t begin, uint64_t end, int64_t next_position, uint64_t real = 0) const {
    for (uint64_t i = begin; i < end; ++i) {
      const bool masked = padded_ && i >= real;
      out.ids[i] = stream_.processor->pad_token();
      out.labels[i] = kNoLoss;
      out.types[i] = 0;
      if (masked) out.mask[i] = 0;
      for (uint64_t axis = 0; axis < 3; ++axis) {
        out.positions[axis * rows_ * length_ + i] = masked ? 1 : next_position;
      }
      ++next_position;
    }
  }

  struct TensorNumbers {
    size_t ids = 0, labels = 0, mask = 0, positions = 0, types = 0, cu_seqlens = 0;
    size_t loss_tokens = 0, sample_ids = 0, sample_valid = 0;
  };

  const Stream& stream_;
  const bool padded_;
  const std::shared_ptr<const StepPlan> plan_;
  const PartName name_;
  Metrics* const metrics_;
  const std::shared_ptr<BadData> bad_data_;

  std::vector<Unit> units_;
  uint64_t rows_ = 1;
  uint64_t length_ = 0;  // tokens of a row
  std::vector<int32_t> cu_seqlens_;
  uint64_t loss_tokens_ = 0;
  uint64_t scratch_bytes_ = 0;
  TensorNumbers tensor_;
  std::optional<PartLayout> layout_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PartTask>> MakeLlmTask(const Stream& stream,
                                                      std::shared_ptr<const StepPlan> plan,
                                                      const PartName& name, std::span<const uint32_t> samples,
                                                      Metrics* metrics, std::shared_ptr<BadData> bad_data) {
  auto task = std::make_unique<LlmTask>(stream, std::move(plan), name, metrics, std::move(bad_data));
  EVENKEEL_RETURN_IF_ERROR(task->Lay(samples));
  return task;
}

}  // namespace evenkeel
