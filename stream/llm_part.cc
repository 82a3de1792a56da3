// Builds llm parts: computes where each sample's tokens go, then tokenizes every sample into its place,
// padding included.
#include "stream/llm_part.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "core/attempt.h"
#include "core/failure.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "dataset/format/sample_columns.h"

namespace evenkeel::stream {
namespace {

// One sequence of the part.
struct Document {
  uint32_t sample = 0;   // into plan.samples
  uint64_t planned = 0;  // tokens, before alignment
  uint64_t aligned = 0;
  uint64_t begin = 0;  // its first token, counted over rows
  uint64_t room = 0;   // tokens that it owns: its aligned length (packed), the whole row (padded)
  // Number of tokens, from its first one, with explicit positions; 0 if its positions simply count from 0.
  uint64_t positions = 0;
  uint64_t positions_begin = 0;  // index of its first explicit position in the part
};

// One sample of the part: a document, or the two of a pair.
struct Unit {
  uint32_t number = 0;  // into plan.samples
  dataset::SamplePlaces places;
  std::string sample;   // the exclude line
  size_t document = 0;  // its first
  size_t rejected = 0;  // of a pair its second; else 0
};

// What a thread keeps from one sample to the next: memory that would otherwise be allocated per sample.
// One thread tokenizes samples up to this many tokens in a row: about two milliseconds.
constexpr uint64_t kTokensAtOnce = 1024;

struct Scratch {
  dataset::ConversationReader reader;
  std::vector<MediaFacts> facts;
  std::vector<SampleItem> items;  // those with placeholders in the sequence
  preprocess::Sequence sequence;
  std::string columns;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

// Views of the tensors with a value per token; rows follow one another.
struct Tokens {
  std::span<uint32_t> words;
  std::span<int32_t> positions;  // [3][explicit ones]
  std::span<float> weights;      // empty without processor.loss_weights
};

template <typename T>
std::span<T> As(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

constexpr int64_t kMaxPosition = 1 << 30;  // of a sample; leaves room for padding that continues to count

class LlmTask : public PartTask {
 public:
  LlmTask(const Stream& stream, std::shared_ptr<const StepPlan> plan, const PartName& name,
          PartEvents* events)
      : stream_(stream),
        padded_(stream.job.phase(Phase::kLlm)->batching == Batching::kPadded),
        plan_(std::move(plan)),
        name_(name),
        events_(events) {}

  absl::Status Lay(std::span<const uint32_t> samples) {
    for (uint32_t sample : samples) EVENKEEL_RETURN_IF_ERROR(AddUnit(sample));
    if (padded_) AddRejectedRows();
    const MicrobatchSpec& spec = stream_.job.microbatch;
    padded_ ? ShapePadded(spec) : ShapePacked(spec);
    PlaceExplicitPositions();
    MakeLayout();
    return absl::OkStatus();
  }

  const PartName& name() const override { return name_; }
  uint64_t num_bytes() const override { return layout_->total_bytes(); }
  const PartLayout* layout() const override { return &*layout_; }
  size_t num_units() const override { return units_.size(); }
  uint64_t scratch_bytes() const override { return scratch_bytes_; }
  size_t units_at_once(size_t first) const override {
    uint64_t tokens = 0;
    size_t end = first;
    while (end < units_.size() && (end == first || tokens + Length(units_[end]) <= kTokensAtOnce)) {
      tokens += Length(units_[end++]);
    }
    return end - first;
  }

  void Expect() override {
    std::vector<dataset::ByteRange> ranges;
    for (const Unit& unit : units_) {
      dataset::ByteRange& range = ranges.emplace_back(dataset::RangeOfText(unit.places));
      stream_.read_runs->AddTo(plan_->samples.refs[unit.number], unit.places.shard_path, range);
    }
    expected_ = stream_.source->Expect(std::move(ranges), name_.step);
  }

  void Begin(std::span<std::byte> part) override {
    layout_->WriteHeader(part);
    if (!padded_) {
      std::copy(cu_seqlens_.begin(), cu_seqlens_.end(),
                As<int32_t>(layout_->tensor(part, tensor_.cu_seqlens)).begin());
    }
    std::copy(spans_.begin(), spans_.end(), As<int32_t>(layout_->tensor(part, tensor_.spans)).begin());
    As<int64_t>(layout_->tensor(part, tensor_.loss_tokens))[0] = static_cast<int64_t>(loss_tokens_);
    std::span<int64_t> ids = As<int64_t>(layout_->tensor(part, tensor_.sample_ids));
    for (size_t i = 0; i < documents_.size(); ++i) {
      const SampleRef& ref = plan_->samples.refs[documents_[i].sample];
      ids[3 * i] = static_cast<int64_t>(ref.dataset);
      ids[3 * i + 1] = static_cast<int64_t>(ref.epoch);
      ids[3 * i + 2] = static_cast<int64_t>(ref.index);
    }
    // Tokens that no sample owns: the segment of padding, or the only row of an empty microbatch.
    const uint64_t owned = documents_.empty() ? 0 : documents_.back().begin + documents_.back().room;
    PadWords(TokensOf(part), owned, rows_ * length_, /*real=*/owned);
  }

  absl::Status RunUnit(size_t number, std::span<std::byte> part) override {
    const Unit& unit = units_[number];
    const absl::Time begin = SteadyNow();
    bool valid = true;
    Scratch& scratch = ThreadScratch();
    const preprocess::Sequence& sequence = scratch.sequence;
    const absl::Status built = Attempt([&] {
      return Build(unit, scratch, &valid);
    });  // an exception becomes a status, which gets the sample's name
    if (!built.ok()) {
      const absl::Status where = AddContext(built, absl::StrCat(unit.sample, ", ", DescribePart(name_)));
      return WithExcludeLine(where, unit.sample);
    }
    const absl::Status written = WriteDocuments(sequence, unit, TokensOf(part));
    if (!written.ok()) return WithExcludeLine(AddContext(written, unit.sample), unit.sample);
    WriteSampleFields(unit.document, scratch.columns, valid, part);
    if (unit.rejected != 0) WriteSampleFields(unit.rejected, scratch.columns, valid, part);
    if (events_ != nullptr) events_->OnSequence(valid, sequence.input_ids.size(), SteadyNow() - begin);
    return absl::OkStatus();
  }

 private:
  absl::Status AddUnit(uint32_t number) {
    const PlannedSample& planned = plan_->plan.samples[number];
    Unit unit{.number = number};
    const SampleRef& ref = plan_->samples.refs[number];
    EVENKEEL_ASSIGN_OR_RETURN(unit.places, stream_.index->places(ref.dataset, ref.index));
    unit.sample = dataset::SampleName(stream_.job, unit.places);
    loss_tokens_ += planned.loss_tokens;
    const std::vector<Piece>& pieces = plan_->samples.pieces;
    const uint64_t tokens = pieces.empty() ? planned.llm_length : pieces[number].text_tokens;
    scratch_bytes_ = std::max(scratch_bytes_, unit.places.text_size + 64 * tokens);
    AddDocuments(planned.llm_length, unit);
    units_.push_back(std::move(unit));
    return absl::OkStatus();
  }

  void AddDocuments(uint64_t aligned, Unit& unit) {
    const SampleLengths& lengths = plan_->samples.lengths[unit.number];
    unit.document = documents_.size();
    Document first{.sample = unit.number, .planned = lengths.llm_length, .aligned = aligned};
    if (lengths.chosen_length != 0) {
      first.planned = lengths.chosen_length;
      first.aligned = AlignedLength(first.planned, Align());
    }
    documents_.push_back(first);
    if (!padded_) AddRejected(unit);
  }

  // Nothing for a sample that is no pair.
  void AddRejected(Unit& unit) {
    const SampleLengths& lengths = plan_->samples.lengths[unit.number];
    if (lengths.chosen_length == 0) return;
    const uint64_t planned = lengths.llm_length - lengths.chosen_length;
    unit.rejected = documents_.size();
    documents_.push_back(
        {.sample = unit.number, .planned = planned, .aligned = AlignedLength(planned, Align())});
  }

  void AddRejectedRows() {
    for (Unit& unit : units_) AddRejected(unit);
  }

  uint64_t Align() const { return std::max(1u, stream_.job.microbatch.align); }

  uint64_t Length(const Unit& unit) const { return plan_->plan.samples[unit.number].llm_length; }

  // True if the sample's positions do not simply count from 0. Depends on the plan alone, so that the part's
  // size is known before any text is read.
  bool HasGrids(const Document& document) const {
    const std::vector<SampleItem>& items = plan_->samples.lengths[document.sample].items;
    return std::any_of(items.begin(), items.end(), [this](const SampleItem& item) {
      return stream_.processor->has_grid_positions(item.medium);
    });
  }

  // Masked padding has implied positions; unmasked padding continues to count after the sample, so it needs
  // explicit ones.
  void PlaceExplicitPositions() {
    for (Document& document : documents_) {
      if (!HasGrids(document)) continue;
      document.positions = padded_ ? document.planned : document.room;
      document.positions_begin = num_positions_;
      num_positions_ += document.positions;
      spans_.push_back(static_cast<int32_t>(document.begin));
      spans_.push_back(static_cast<int32_t>(document.positions));
    }
  }

  // One row: documents follow one another. Padding up to pad_to is a segment of its own.
  void ShapePacked(const MicrobatchSpec& spec) {
    uint64_t tokens = 0;
    cu_seqlens_ = {0};
    for (Document& document : documents_) {
      document.begin = tokens;
      document.room = document.aligned;
      tokens += document.room;
      cu_seqlens_.push_back(static_cast<int32_t>(tokens));
    }
    length_ = std::max<uint64_t>(tokens, spec.pad_to);
    if (length_ == 0) length_ = spec.align;
    if (length_ > tokens) cu_seqlens_.push_back(static_cast<int32_t>(length_));
  }

  // One row per sample. pad_to is the total of all rows, rounded down to the alignment per row.
  void ShapePadded(const MicrobatchSpec& spec) {
    rows_ = std::max<uint64_t>(1, documents_.size());
    length_ = documents_.empty() ? spec.align : 0;
    for (const Document& document : documents_) length_ = std::max(length_, document.aligned);
    length_ = std::max(length_, spec.pad_to / rows_ / spec.align * spec.align);
    for (size_t i = 0; i < documents_.size(); ++i) {
      documents_[i].begin = i * length_;
      documents_[i].room = length_;
    }
  }

  void MakeLayout() {
    std::vector<TensorSpec> specs;
    std::vector<std::string> keys;
    keys.resize(documents_.size());
    for (const Unit& unit : units_) {
      keys[unit.document] = unit.sample;
      if (unit.rejected != 0) keys[unit.rejected] = unit.sample;
    }
    const auto add = [&specs](std::string name, DType dtype, std::vector<uint64_t> shape) {
      specs.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
      return specs.size() - 1;
    };
    tensor_.tokens = add(std::string(kTokensName), DType::kI32, {rows_, length_});
    specs[tensor_.tokens].tokens = TokenForm{.padded = padded_};
    tensor_.spans = add(std::string(kTokenSpansName), DType::kI32, {spans_.size() / 2, 2});
    tensor_.positions = add(std::string(kTokenPositionsName), DType::kI32, {3, num_positions_});
    if (!padded_) tensor_.cu_seqlens = add(std::string(kDocumentsName), DType::kI32, {cu_seqlens_.size()});
    if (stream_.job.processor.loss_weights)
      tensor_.loss_weights = add("loss_weights", DType::kF32, {rows_, length_});
    if (!stream_.job.columns.empty()) {
      tensor_.columns = add("columns", DType::kU8, {documents_.size(), stream_.job.limits.max_column_bytes});
    }
    tensor_.loss_tokens = add("loss_tokens", DType::kI64, {1});
    tensor_.sample_ids = add("sample_ids", DType::kI64, {documents_.size(), 3});
    tensor_.sample_valid = add("sample_valid", DType::kU8, {documents_.size()});
    layout_.emplace(name_, /*num_pieces=*/1, std::move(specs), std::move(keys));
  }

  Tokens TokensOf(std::span<std::byte> part) const {
    Tokens out{.words = As<uint32_t>(layout_->tensor(part, tensor_.tokens)),
               .positions = As<int32_t>(layout_->tensor(part, tensor_.positions))};
    if (stream_.job.processor.loss_weights)
      out.weights = As<float>(layout_->tensor(part, tensor_.loss_weights));
    return out;
  }

  // Makes scratch.sequence the sample's. If its text is not what the index saw, builds a stand-in and sets
  // `valid` to false.
  absl::Status Build(const Unit& unit, Scratch& scratch, bool* valid) const {
    const SampleLengths& lengths = plan_->samples.lengths[unit.number];
    Emptied(scratch.facts);
    for (const dataset::ItemPlace& item : unit.places.items) scratch.facts.push_back(item.facts);
    Emptied(scratch.items);
    for (const SampleItem& item : lengths.items) {
      if (item.has_placeholders()) scratch.items.push_back(item);
    }
    absl::Status why = BuildFromText(unit, scratch);
    if (!why.ok() && !IsVerdict(why)) return why;
    if (why.ok()) why = CheckAgainstPlan(scratch.sequence, lengths);
    if (why.ok()) why = ReadColumns(unit, scratch);
    if (why.ok()) return why;
    *valid = false;
    if (events_ != nullptr) events_->OnBad("text", unit.sample, why);
    scratch.columns.clear();
    EVENKEEL_RETURN_IF_ERROR(dataset::AppendColumns(nullptr, stream_.job, unit.places.key, scratch.columns));
    return StandIn(lengths, scratch);
  }

  // Null: the text is not cut, or more than its ids is needed of it.
  TextCache* CacheFor(const Unit& unit) const {
    const std::vector<Piece>& pieces = plan_->samples.pieces;
    const bool is_cut = !pieces.empty() && pieces[unit.number].text_tokens > Length(unit);
    const bool ids_suffice = stream_.job.columns.empty() && !stream_.job.processor.loss_weights;
    return is_cut && ids_suffice ? stream_.texts.get() : nullptr;
  }

  absl::Status BuildFromText(const Unit& unit, Scratch& scratch) const {
    TextCache* const cache = CacheFor(unit);
    const SampleRef& ref = plan_->samples.refs[unit.number];
    if (const TextCache::Ids ids = cache == nullptr ? nullptr : cache->Find(ref)) {
      TakeIds(*ids, scratch.sequence);
    } else {
      EVENKEEL_RETURN_IF_ERROR(BuildWhole(unit, scratch));
      const std::vector<int64_t>& made = scratch.sequence.input_ids;
      if (cache != nullptr)
        cache->Keep(ref, std::make_shared<const std::vector<uint32_t>>(made.begin(), made.end()));
    }
    if (plan_->samples.pieces.empty()) return absl::OkStatus();
    return CutPiece(plan_->samples.pieces[unit.number], plan_->samples.lengths[unit.number].llm_length,
                    scratch.sequence);
  }

  // A text alone, trained whole: its labels are its ids. CutPiece makes the rest.
  static void TakeIds(const std::vector<uint32_t>& ids, preprocess::Sequence& sequence) {
    sequence.input_ids.assign(ids.begin(), ids.end());
    sequence.labels = sequence.input_ids;
    sequence.loss_weights.clear();
    sequence.token_types.assign(ids.size(), 0);
    sequence.chosen_length = 0;
  }

  absl::Status BuildWhole(const Unit& unit, Scratch& scratch) const {
    EVENKEEL_ASSIGN_OR_RETURN(const Conversation* conversation,
                              scratch.reader.Read(unit.places, stream_.job.limits, *stream_.source));
    return stream_.processor->BuildSequence(*conversation, scratch.items, scratch.facts, scratch.sequence);
  }

  // Makes the sequence of a text that of `length` of its tokens: a document of its own, whose first token nothing predicts.
  static absl::Status CutPiece(const Piece& piece, uint64_t length, preprocess::Sequence& sequence) {
    const uint64_t whole = sequence.input_ids.size();
    if (whole != piece.text_tokens || piece.begin + length > whole) {
      return absl::InvalidArgumentError(
          absl::StrCat("the text has ", whole, " tokens, the index planned ", piece.text_tokens));
    }
    const auto cut = [&](auto& values) {
      if (values.empty()) return;
      values.erase(values.begin(), values.begin() + piece.begin);
      values.resize(length);
    };
    cut(sequence.input_ids);
    cut(sequence.labels);
    cut(sequence.loss_weights);
    cut(sequence.token_types);
    sequence.labels[0] = kNoLossLabel;
    if (!sequence.loss_weights.empty()) sequence.loss_weights[0] = 0;
    sequence.positions.resize(3 * length);
    for (uint64_t axis = 0; axis < 3; ++axis)
      std::iota(sequence.positions.begin() + static_cast<ptrdiff_t>(axis * length),
                sequence.positions.begin() + static_cast<ptrdiff_t>((axis + 1) * length), 0);
    return absl::OkStatus();
  }

  absl::Status ReadColumns(const Unit& unit, Scratch& scratch) const {
    if (stream_.job.columns.empty()) return absl::OkStatus();
    EVENKEEL_ASSIGN_OR_RETURN(scratch.columns, scratch.reader.Columns(stream_.job, unit.places.key));
    return absl::OkStatus();
  }

  void WriteSampleFields(size_t number, std::string_view columns, bool valid,
                         std::span<std::byte> part) const {
    WriteColumns(number, columns, part);
    layout_->tensor(part, tensor_.sample_valid)[number] = std::byte{valid};
  }

  // The index has excluded samples whose columns are longer than their room.
  void WriteColumns(size_t number, std::string_view columns, std::span<std::byte> part) const {
    if (stream_.job.columns.empty()) return;
    const uint64_t room = stream_.job.limits.max_column_bytes;
    const std::span<char> to = As<char>(layout_->tensor(part, tensor_.columns).subspan(number * room, room));
    std::fill(std::copy(columns.begin(), columns.end(), to.begin()), to.end(), ' ');
  }

  // The lengths must be the planned ones: other ranks have computed their routes and loss from the same plan.
  static absl::Status CheckAgainstPlan(const preprocess::Sequence& sequence, const SampleLengths& lengths) {
    if (sequence.input_ids.size() != lengths.llm_length) {
      return absl::InvalidArgumentError(absl::StrCat("the sequence has ", sequence.input_ids.size(),
                                                     " tokens, the index planned ", lengths.llm_length));
    }
    if (sequence.chosen_length != lengths.chosen_length) {
      return absl::InvalidArgumentError(absl::StrCat("the chosen sequence has ", sequence.chosen_length,
                                                     " tokens, the index planned ", lengths.chosen_length));
    }
    const uint64_t loss_tokens =
        sequence.labels.size() - std::count(sequence.labels.begin(), sequence.labels.end(), kNoLossLabel);
    if (loss_tokens != lengths.loss_tokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the sequence has ", loss_tokens, " loss tokens, the index planned ", lengths.loss_tokens));
    }
    const auto last = std::max_element(sequence.positions.begin(), sequence.positions.end());
    if (last != sequence.positions.end() && *last > kMaxPosition) {
      return absl::InvalidArgumentError(
          absl::StrCat("a token has position ", *last, "; at most ", kMaxPosition, " is delivered"));
    }
    return absl::OkStatus();
  }

  // Builds a sequence of the sample's media alone, so that encoder outputs still find their placeholders. It
  // has no trained labels.
  absl::Status StandIn(const SampleLengths& lengths, Scratch& scratch) const {
    preprocess::Sequence& sequence = scratch.sequence;
    sequence = preprocess::Sequence();
    if (lengths.items.empty()) return absl::OkStatus();
    Conversation media{.plain = true, .turns = {Turn{.role = Role::kUser}}};
    uint32_t number = 0;
    for (const SampleItem& item : scratch.items) {
      if (item.begins_medium()) media.turns[0].spans.push_back({.medium = item.medium, .item = number++});
    }
    if (lengths.chosen_length != 0) {
      std::vector<Span>& spans = media.turns.emplace_back(Turn{.role = Role::kUser}).spans;
      std::vector<Span>& of_both = media.turns[0].spans;
      const auto half = of_both.begin() + static_cast<ptrdiff_t>(of_both.size() / 2);
      spans.assign(half, of_both.end());
      of_both.erase(half, of_both.end());
      media.rejected = 1;
    }
    const absl::Status built =
        stream_.processor->BuildSequence(media, scratch.items, scratch.facts, sequence);
    const uint64_t chosen = sequence.chosen_length, all = sequence.input_ids.size();
    if (!built.ok() || chosen > lengths.chosen_length ||
        all - chosen > lengths.llm_length - lengths.chosen_length) {
      return absl::InternalError(
          absl::StrCat("the text differs from what the index saw, and the planned length has no room for its "
                       "media alone: ",
                       built.message()));
    }
    std::fill(sequence.labels.begin(), sequence.labels.end(), kNoLossLabel);
    std::fill(sequence.loss_weights.begin(), sequence.loss_weights.end(), 0.0f);
    for (int64_t& position : sequence.positions) {
      position = std::min(position, kMaxPosition);
    }
    return absl::OkStatus();
  }

  absl::Status WriteDocuments(const preprocess::Sequence& sequence, const Unit& unit,
                              const Tokens& out) const {
    const Document& first = documents_[unit.document];
    if (unit.rejected == 0) return Write(sequence, 0, sequence.input_ids.size(), first, out);
    EVENKEEL_RETURN_IF_ERROR(Write(sequence, 0, sequence.chosen_length, first, out));
    return Write(sequence, sequence.chosen_length, sequence.input_ids.size(), documents_[unit.rejected], out);
  }

  // Writes the tokens [begin, end) of the sequence. Internal if the wire form cannot hold them: then the family broke its
  // own rules.
  absl::Status Write(const preprocess::Sequence& sequence, uint64_t begin, uint64_t end,
                     const Document& document, const Tokens& out) const {
    const uint64_t length = end - begin, whole = sequence.input_ids.size();
    EVENKEEL_RETURN_IF_ERROR(WriteWords(sequence, begin, out.words.subspan(document.begin, length)));
    if (!out.weights.empty() && !sequence.loss_weights.empty())
      std::copy_n(sequence.loss_weights.begin() + static_cast<ptrdiff_t>(begin), length,
                  out.weights.begin() + static_cast<ptrdiff_t>(document.begin));
    // The planned tokens of a stand-in count as the sample's, although they are padding.
    PadWords(out, document.begin + length, document.begin + document.room, document.begin + document.planned);
    if (document.positions == 0) return CheckCounted(sequence.positions, begin, length);
    int64_t next = 0;
    const uint64_t all = out.positions.size() / 3;
    for (uint64_t axis = 0; axis < 3; ++axis) {
      const int64_t* from = sequence.positions.data() + axis * whole + begin;
      for (uint64_t i = 0; i < length; ++i) next = std::max(next, from[i] + 1);
    }
    for (uint64_t axis = 0; axis < 3; ++axis) {
      const int64_t* from = sequence.positions.data() + axis * whole + begin;
      int32_t* to = out.positions.data() + axis * all + document.positions_begin;
      for (uint64_t i = 0; i < length; ++i) to[i] = static_cast<int32_t>(from[i]);
      for (uint64_t i = length; i < document.positions; ++i)
        to[i] = static_cast<int32_t>(next + static_cast<int64_t>(i - length));
    }
    return absl::OkStatus();
  }

  // Packs id, type and label of each token into one word (core/token_fields.h). The checks are accumulated,
  // not branched on, to keep the loop fast.
  static absl::Status WriteWords(const preprocess::Sequence& sequence, uint64_t begin,
                                 std::span<uint32_t> words) {
    uint64_t ids = 0;
    bool typed = true, labelled = true;
    for (size_t i = 0; i < words.size(); ++i) {
      const int64_t id = sequence.input_ids[begin + i], label = sequence.labels[begin + i];
      const uint8_t type = sequence.token_types[begin + i];
      ids |= static_cast<uint64_t>(id);
      typed &= type <= TokenWord::kMaxType + kTargetType && type != kTargetType;
      labelled &= label == kNoLossLabel || (label == id && type == 0);
      words[i] = TokenWord::Make(static_cast<uint32_t>(id), type & TokenWord::kMaxType,
                                 label == id || type > kTargetType, false);
    }
    if (ids <= TokenWord::kMaxId && typed && labelled) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the sequence has token ids above ", TokenWord::kMaxId,
                                            ", types that no medium has, labels of placeholders, or labels ",
                                            "other than the token's own id and ", kNoLossLabel));
  }

  // A sample without explicit positions must have positions 0, 1, 2, ... on every axis.
  static absl::Status CheckCounted(std::span<const int64_t> positions, uint64_t begin, uint64_t length) {
    bool counted = true;
    for (uint64_t axis = 0; axis < 3; ++axis) {
      const int64_t* row = positions.data() + axis * (positions.size() / 3) + begin;
      for (uint64_t i = 0; i < length; ++i) counted &= row[i] == static_cast<int64_t>(i);
    }
    if (counted) return absl::OkStatus();
    return absl::InternalError("a sample without media on a grid has positions that do not count its tokens");
  }

  // Padding from token `begin` to `end`. Tokens before `real` still belong to a sample.
  void PadWords(const Tokens& out, uint64_t begin, uint64_t end, uint64_t real) const {
    const auto pad = static_cast<uint32_t>(stream_.processor->pad_token());
    for (uint64_t i = begin; i < end; ++i) {
      out.words[i] = TokenWord::Make(pad, /*type=*/0, /*trained=*/false, /*masked=*/padded_ && i >= real);
    }
    if (!out.weights.empty()) std::fill(out.weights.begin() + begin, out.weights.begin() + end, 0.0f);
  }

  struct TensorNumbers {
    size_t tokens = 0, spans = 0, positions = 0, cu_seqlens = 0;
    size_t loss_weights = 0, columns = 0, loss_tokens = 0, sample_ids = 0, sample_valid = 0;
  };

  const Stream& stream_;
  const bool padded_;
  const std::shared_ptr<const StepPlan> plan_;
  const PartName name_;
  PartEvents* const events_;

  std::vector<Unit> units_;
  std::vector<Document> documents_;  // of the units, in order
  uint64_t rows_ = 1;
  uint64_t length_ = 0;  // tokens of a row
  std::vector<int32_t> cu_seqlens_;
  std::vector<int32_t> spans_;  // [n][2]: first token and number of explicit positions
  uint64_t num_positions_ = 0;  // explicit positions per axis
  uint64_t loss_tokens_ = 0;
  uint64_t scratch_bytes_ = 0;
  std::unique_ptr<dataset::Expected> expected_;
  TensorNumbers tensor_;
  std::optional<PartLayout> layout_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PartTask>> MakeLlmTask(const Stream& stream,
                                                      std::shared_ptr<const StepPlan> plan,
                                                      const PartName& name, std::span<const uint32_t> samples,
                                                      PartEvents* events) {
  auto task = std::make_unique<LlmTask>(stream, std::move(plan), name, events);
  EVENKEEL_RETURN_IF_ERROR(task->Lay(samples));
  return task;
}

}  // namespace evenkeel::stream
