// The family whose items Python processes measure and produce: keeps what they answer, and checks it.
#include "preprocess/families/python_family.h"

#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/status.h"
#include "preprocess/families/families.h"

namespace evenkeel::preprocess {
namespace {

// Answers kept, of a few dozen bytes each; data sets have a few thousand sizes of pictures.
constexpr size_t kMaxKept = 1 << 16;

using Key = std::tuple<Medium, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint64_t, uint64_t,
                       uint32_t, uint32_t>;

Key KeyOf(const MediaFacts& facts) {
  return {facts.medium,      facts.width,    facts.height,      facts.rotation,
          facts.num_frames,  facts.channels, facts.sample_rate, facts.num_samples,
          facts.duration_us, facts.fps_num,  facts.fps_den};
}

std::string TextOf(const FieldSpec& field) {
  std::string out = absl::StrCat(field.name, " ", std::string(DTypeName(field.dtype)),
                                 field.per_row ? " per row" : " per item");
  for (const uint64_t extent : field.trailing) absl::StrAppend(&out, " ", extent);
  return out;
}

// What items depend on: the code, its packages and configuration files, and the fields that it describes.
ConsumedKeys KeysOf(const PythonDescription& described) {
  ConsumedKeys out;
  out.Set("python.class", {described.name});
  for (const auto& [key, value] : described.versions) out.Set(absl::StrCat("python.", key), {value});
  for (const PythonMedium& medium : described.media) {
    const std::string prefix = absl::StrCat("python.", std::string(MediumName(medium.medium)));
    std::vector<ConsumedKeys::Value> fields;
    for (const FieldSpec& field : medium.fields) fields.emplace_back(TextOf(field));
    out.Set(absl::StrCat(prefix, ".measures_stored"), {uint64_t{medium.measures_stored}});
    out.Set(absl::StrCat(prefix, ".fields"), std::move(fields));
  }
  return out;
}

absl::Status OnlyProbed() {
  return absl::FailedPreconditionError(
      "processor.python: items are measured and produced by Python processes, and this program started none");
}

class PythonFamily final : public MediaFamily {
 public:
  PythonFamily(std::shared_ptr<PythonProcesses> python, std::span<const Medium> media)
      : python_(std::move(python)), media_(media.begin(), media.end()) {}

  std::vector<MediumStyle> styles() const override {
    std::vector<MediumStyle> out;
    for (const Medium medium : media_) {
      const PythonMedium* described = Described(medium);
      if (described == nullptr || described->placeholder.empty()) continue;
      out.push_back({.medium = medium,
                     .begin = described->begin,
                     .placeholder = described->placeholder,
                     .end = described->end,
                     .in_template = described->in_template});
    }
    return out;
  }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    const PythonMedium* described = Described(medium);
    return described == nullptr ? NoFields() : described->fields;
  }
  bool measures_stored(Medium medium) const override {
    const PythonMedium* described = Described(medium);
    return described != nullptr && described->measures_stored;
  }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    // The smallest item, for ranks that need one where there is nothing: the facts decide no other lengths.
    if (measures_stored(facts.medium)) return ItemLengths{1, 1, 1};
    EVENKEEL_ASSIGN_OR_RETURN(const PythonLengths known, OfFacts(facts));
    return known.lengths;
  }
  absl::StatusOr<ItemLengths> MeasureStored(const MediaFacts& facts, std::string_view suffix,
                                            std::span<const std::byte> bytes) const override {
    if (!measures_stored(facts.medium)) return Measure(facts);
    EVENKEEL_ASSIGN_OR_RETURN(const PythonLengths made, python_->Measure(facts, suffix, bytes));
    EVENKEEL_RETURN_IF_ERROR(CheckLengths(facts.medium, made.lengths));
    return made.lengths;
  }
  absl::Status PlannedPlaceholders(const MediaFacts& facts, const ItemLengths& planned,
                                   std::vector<PlaceholderRun>& runs) const override {
    runs.clear();
    PythonLengths known;
    if (!measures_stored(facts.medium)) {
      EVENKEEL_ASSIGN_OR_RETURN(known, OfFacts(facts));
    }
    if (known.runs.empty()) runs.push_back({.rows = planned.output_rows});
    for (PythonRun& run : known.runs) runs.push_back({.rows = run.rows, .ids = std::move(run.ids)});
    return absl::OkStatus();
  }

  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    if (python_ == nullptr) return OnlyProbed();
    return python_->Produce(request, field_bytes);
  }
  // Python produces all fields together.
  absl::Status WriteFacts(const ItemRequest&, std::span<const std::span<std::byte>>) const override {
    return absl::OkStatus();
  }
  // The integers of an item of these facts, such as a grid, and zeros for all other values. Where lengths
  // depend on the bytes, all are zeros.
  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    for (const std::span<std::byte> field : field_bytes) {
      if (!field.empty()) std::memset(field.data(), 0, field.size());
    }
    if (python_ == nullptr) return OnlyProbed();
    if (measures_stored(request.medium)) return absl::OkStatus();
    return python_->ProduceBlank(request, field_bytes);
  }
  MediaFacts DummyFacts() const override {
    constexpr uint32_t kSide = 224, kSecond = 16000;
    MediaFacts facts;
    facts.medium = media_.empty() ? Medium::kImage : media_.front();
    if (facts.medium == Medium::kAudio) {
      facts.sample_rate = kSecond;
      facts.num_samples = kSecond;
      facts.channels = 1;
      facts.duration_us = 1'000'000;
    } else {
      facts.width = facts.height = kSide;
    }
    if (facts.medium == Medium::kVideo) {
      facts.num_frames = 64;  // of 8 seconds; processors that take a fixed number need this many
      facts.fps_num = 8;
      facts.fps_den = 1;
      facts.duration_us = 8'000'000;
    }
    return facts;
  }

 private:
  const PythonMedium* Described(Medium medium) const {
    if (python_ == nullptr) return nullptr;
    for (const PythonMedium& described : python_->description().media) {
      if (described.medium == medium) return &described;
    }
    return nullptr;
  }

  absl::Status CheckLengths(Medium medium, const ItemLengths& lengths) const {
    uint64_t bytes = 0;
    for (const FieldSpec& field : fields(medium)) {
      if (field.num_bytes(lengths) > kMaxPieceBytes) bytes = kMaxPieceBytes;
      bytes += field.num_bytes(lengths);
    }
    if (bytes <= kMaxPieceBytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("an item of ", lengths.input_rows, " rows is larger than ", kMaxPieceBytes, " bytes"));
  }

  absl::StatusOr<PythonLengths> OfFacts(const MediaFacts& facts) const {
    if (python_ == nullptr) return OnlyProbed();
    const Key key = KeyOf(facts);
    {
      MutexLock lock(mutex_);
      if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
    }
    EVENKEEL_ASSIGN_OR_RETURN(PythonLengths made, python_->Measure(facts, "", {}));
    EVENKEEL_RETURN_IF_ERROR(CheckLengths(facts.medium, made.lengths));
    MutexLock lock(mutex_);
    if (kept_.size() >= kMaxKept) kept_.clear();
    kept_.emplace(key, made);
    return made;
  }

  const std::shared_ptr<PythonProcesses> python_;
  const std::vector<Medium> media_;
  mutable Mutex mutex_;
  mutable std::map<Key, PythonLengths> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<MediaFamily>> MakePythonFamily(std::shared_ptr<PythonProcesses> python,
                                                              std::span<const Medium> media) {
  if (python != nullptr) {
    for (const Medium medium : media) {
      bool known = false;
      for (const PythonMedium& described : python->description().media) known |= described.medium == medium;
      if (known) continue;
      return absl::InvalidArgumentError(absl::StrCat("processor.python: ", python->description().name,
                                                     " takes no ", std::string(MediumName(medium)),
                                                     " items"));
    }
  }
  ConsumedKeys keys;
  if (python != nullptr) keys = KeysOf(python->description());
  auto family = std::make_unique<PythonFamily>(std::move(python), media);
  family->Keep(std::move(keys));
  return family;
}

}  // namespace evenkeel::preprocess
