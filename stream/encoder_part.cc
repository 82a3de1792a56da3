// Builds encoder parts: computes where every item's fields go, then reads and decodes each item into its
// place.
#include "stream/encoder_part.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/attempt.h"
#include "core/failure.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel::stream {
namespace {

constexpr int kNumMedia = 4;
// An upper bound on the alignment gaps between the tensors of a part, in bytes.
constexpr uint64_t kMaxGaps = 16 * kPartAlignment;

uint64_t ItemBytes(const preprocess::Processor& processor, const PlannedItem& item) {
  uint64_t bytes = sizeof(uint8_t) + sizeof(int64_t);  // item_valid, item_rows
  for (const preprocess::FieldSpec& field : processor.FieldsIn(item.tower, item.medium))
    bytes += field.num_bytes(item.lengths);
  return bytes;
}

// One item of the part, and where its fields go.
struct Unit {
  const PlannedItem* item = nullptr;
  std::optional<dataset::ItemPlace> place;  // nullopt for a dummy
  std::string shard;
  std::string sample;                 // the exclude line; empty for a dummy
  std::vector<uint64_t> field_begin;  // byte offset into each field's tensor
};

// The tensors of one medium: its field i is the part's tensor `first_tensor + i`. Items are concatenated
// along axis 0.
struct Column {
  size_t first_tensor = 0;
  std::vector<uint64_t> extent;  // per field: length of axis 0 so far
  std::vector<uint64_t> bytes;   // per field: bytes so far
  bool used = false;
  uint8_t tower = 0;  // the same for all items of a medium in one phase
};

class EncoderTask : public PartTask {
 public:
  EncoderTask(const Stream& stream, std::shared_ptr<const StepPlan> plan, const PartName& name,
              PartEvents* events)
      : stream_(stream), plan_(std::move(plan)), name_(name), events_(events) {}

  // First pass: assigns offsets in the order of the items. Second pass: declares the tensors, media in the
  // order of their numbers, then item_valid and item_rows.
  absl::Status Lay(uint32_t num_pieces, std::span<const uint32_t> items) {
    std::vector<std::string> keys;
    for (uint32_t item : items) {
      EVENKEEL_RETURN_IF_ERROR(AddUnit(plan_->plan.items[item]));
      keys.push_back(units_.back().sample);
    }
    std::vector<TensorSpec> tensors;
    for (int medium = 0; medium < kNumMedia; ++medium) {
      Column& column = columns_[medium];
      if (!column.used) continue;
      column.first_tensor = tensors.size();
      const std::vector<preprocess::FieldSpec>& fields =
          stream_.processor->FieldsIn(column.tower, static_cast<Medium>(medium));
      for (size_t i = 0; i < fields.size(); ++i) {
        TensorSpec spec{.name = fields[i].name,
                        .dtype = fields[i].dtype,
                        .shape = {column.extent[i]},
                        .expansion = fields[i].expansion};
        spec.shape.insert(spec.shape.end(), fields[i].trailing.begin(), fields[i].trailing.end());
        tensors.push_back(std::move(spec));
      }
    }
    valid_tensor_ = tensors.size();
    tensors.push_back({.name = "item_valid", .dtype = DType::kU8, .shape = {units_.size()}});
    tensors.push_back({.name = "item_rows", .dtype = DType::kI64, .shape = {units_.size()}});
    layout_.emplace(name_, num_pieces, std::move(tensors), std::move(keys));
    return absl::OkStatus();
  }

  const PartName& name() const override { return name_; }
  uint64_t num_bytes() const override { return layout_->total_bytes(); }
  const PartLayout* layout() const override { return &*layout_; }
  size_t num_units() const override { return units_.size(); }
  uint64_t scratch_bytes() const override { return scratch_bytes_; }
  bool is_shared() const override {
    return std::any_of(units_.begin(), units_.end(), [this](const Unit& unit) { return IsIsolated(unit); });
  }

  void Expect() override {
    std::vector<dataset::ByteRange> ranges;
    for (const Unit& unit : units_) {
      if (!unit.place.has_value()) continue;
      dataset::ByteRange& range = ranges.emplace_back(dataset::RangeOf(unit.shard, *unit.place));
      stream_.read_runs->AddTo(plan_->samples.refs[unit.item->sample], unit.shard, range);
    }
    expected_ = stream_.source->Expect(std::move(ranges), name_.step);
  }

  void Begin(std::span<std::byte> part) override {
    layout_->WriteHeader(part);
    auto* rows = reinterpret_cast<int64_t*>(layout_->tensor(part, valid_tensor_ + 1).data());
    for (const Unit& unit : units_) *rows++ = unit.item->lengths.output_rows;
  }

  absl::Status RunUnit(size_t number, std::span<std::byte> part) override {
    const Unit& unit = units_[number];
    std::vector<std::span<std::byte>> fields;
    const std::vector<preprocess::FieldSpec>& specs = FieldsOf(*unit.item);
    const Column& column = columns_[static_cast<size_t>(unit.item->medium)];
    for (size_t i = 0; i < specs.size(); ++i) {
      fields.push_back(layout_->tensor(part, column.first_tensor + i)
                           .subspan(unit.field_begin[i], specs[i].num_bytes(unit.item->lengths)));
    }
    bool valid = false;
    const absl::Status made = Attempt([&] {
      return Make(unit, fields, &valid);
    });  // an exception becomes a status, which gets the sample's name
    if (!made.ok()) {
      const std::string place = absl::StrCat(unit.sample, ", ", std::string(MediumName(unit.item->medium)),
                                             " ", unit.item->ordinal, ", ", DescribePart(name_));
      return WithExcludeLine(AddContext(made, place), unit.sample);
    }
    layout_->tensor(part, valid_tensor_)[number] = std::byte{valid};
    if (events_ != nullptr) events_->OnItem(name_.phase, valid, unit.item->lengths.input_rows);
    return absl::OkStatus();
  }

 private:
  absl::Status AddUnit(const PlannedItem& item) {
    Unit unit{.item = &item};
    if (item.sample != kDummy) {
      const SampleRef& ref = plan_->samples.refs[item.sample];
      EVENKEEL_ASSIGN_OR_RETURN(dataset::SamplePlaces places, stream_.index->places(ref.dataset, ref.index));
      unit.sample = dataset::SampleName(stream_.job, places);
      if (item.ordinal >= places.items.size()) {
        return absl::InternalError(absl::StrCat("the index has ", places.items.size(), " items of ",
                                                unit.sample, ", but the plan has item ", item.ordinal));
      }
      unit.shard = std::move(places.shard_path);
      unit.place = std::move(places.items[item.ordinal]);
      scratch_bytes_ = std::max(scratch_bytes_, unit.place->size);
    }
    const std::vector<preprocess::FieldSpec>& fields = FieldsOf(item);
    Column& column = columns_[static_cast<size_t>(item.medium)];
    column.used = true;
    column.tower = item.tower;
    column.extent.resize(fields.size());
    column.bytes.resize(fields.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      unit.field_begin.push_back(column.bytes[i]);
      column.extent[i] += fields[i].extent(item.lengths);
      column.bytes[i] += fields[i].num_bytes(item.lengths);
    }
    units_.push_back(std::move(unit));
    return absl::OkStatus();
  }

  const std::vector<preprocess::FieldSpec>& FieldsOf(const PlannedItem& item) const {
    return stream_.processor->FieldsIn(item.tower, item.medium);
  }
  bool IsIsolated(const Unit& unit) const { return stream_.processor->is_isolated(unit.item->medium); }

  // Reads the item's stored bytes and decodes them into `fields`. Bad data fills the fields with zeros and is
  // not an error; failures of the machine are errors.
  absl::Status Make(const Unit& unit, std::span<const std::span<std::byte>> fields, bool* valid) {
    const preprocess::Processor& processor = *stream_.processor;
    preprocess::ItemNotes notes;
    preprocess::ItemRequest request{.medium = unit.item->medium,
                                    .planned = unit.item->lengths,
                                    .notes = &notes,
                                    .tower = unit.item->tower};
    if (!unit.place.has_value()) {
      request.facts = stream_.dummy_facts[name_.phase.number()];
      return processor.FillInvalid(request, fields);
    }
    const dataset::ItemPlace& place = *unit.place;
    const absl::Time begin = SteadyNow();
    EVENKEEL_ASSIGN_OR_RETURN(const preprocess::StoredBytes stored,
                              processor.AllocateStored(unit.item->medium, place.size));
    EVENKEEL_RETURN_IF_ERROR(dataset::ReadItem(unit.shard, place, *stream_.source, stored.bytes));
    const absl::Time read = SteadyNow();
    request.suffix = place.suffix;
    request.bytes = stored.bytes;
    const bool is_of_video = unit.item->medium == Medium::kAudio && place.facts.medium == Medium::kVideo;
    request.facts = is_of_video ? AudioOf(place.facts) : place.facts;
    absl::Status made = processor.Produce(request, fields);
    *valid = made.ok();
    if (!made.ok() && IsVerdict(made)) {
      if (events_ != nullptr) events_->OnBad(MediumName(unit.item->medium), unit.sample, made);
      made = processor.FillInvalid(request, fields);
    }
    if (events_ != nullptr) events_->OnProduced(read - begin, SteadyNow() - read, notes);
    return made;
  }

  const Stream& stream_;
  const std::shared_ptr<const StepPlan> plan_;
  const PartName name_;
  PartEvents* const events_;

  std::vector<Unit> units_;
  std::array<Column, kNumMedia> columns_;
  std::optional<PartLayout> layout_;
  size_t valid_tensor_ = 0;
  uint64_t scratch_bytes_ = 0;
  std::unique_ptr<dataset::Expected> expected_;
};

}  // namespace

std::vector<std::pair<size_t, size_t>> CutPieces(const preprocess::Processor& processor, const Plan& plan,
                                                 std::span<const uint32_t> items) {
  std::vector<std::pair<size_t, size_t>> pieces;
  uint64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const uint64_t added = ItemBytes(processor, plan.items[items[i]]);
    if (pieces.empty() || bytes + added > kMaxPieceBytes) {
      pieces.emplace_back(i, i);
      bytes = kMaxGaps;
    }
    bytes += added;
    pieces.back().second = i + 1;
  }
  return pieces;
}

absl::StatusOr<std::unique_ptr<PartTask>> MakeEncoderTask(const Stream& stream,
                                                          std::shared_ptr<const StepPlan> plan,
                                                          const PartName& name, uint32_t num_pieces,
                                                          std::span<const uint32_t> items,
                                                          PartEvents* events) {
  auto task = std::make_unique<EncoderTask>(stream, std::move(plan), name, events);
  EVENKEEL_RETURN_IF_ERROR(task->Lay(num_pieces, items));
  return task;
}

}  // namespace evenkeel::stream
