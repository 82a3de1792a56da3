// Builds the columns of one shard: parses, probes and measures every sample, and records why samples are
// excluded.
#include "dataset/index/shard_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/address.h"
#include "core/failure.h"
#include "core/planned_tokens.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/items_of_sample.h"
#include "dataset/format/media_file.h"
#include "dataset/format/megatron.h"
#include "dataset/format/sample_parser.h"
#include "dataset/format/tar_reader.h"
#include "dataset/source/unpacking_source.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kStampsAtOnce = 4096;

// True for errors of the data, which are the same on every machine; false for errors of this attempt.
bool IsPermanent(const absl::Status& status) {
  if (KnownKind(status) == FailureKind::kMachine) return false;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return true;
    default:
      return false;
  }
}

std::string ProbeReason(Medium medium, const absl::Status& status) {
  std::string name(MediumName(medium));
  if (absl::IsUnimplemented(status)) return absl::StrCat("unsupported ", name);
  if (absl::IsResourceExhausted(status)) return absl::StrCat(name, " beyond a limit");
  return absl::StrCat("damaged ", name);
}

uint64_t MaxBytes(Medium medium, const Limits& limits) {
  switch (medium) {
    case Medium::kImage:
      return limits.max_image_bytes;
    case Medium::kVideo:
      return limits.max_video_bytes;
    case Medium::kAudio:
      return limits.max_audio_bytes;
    case Medium::kText:
      break;
  }
  return limits.max_text_bytes;
}

const SampleMember* FirstOf(MemberKind kind, const std::vector<SampleMember>& members) {
  const SampleMember* first = nullptr;
  for (const SampleMember& member : members) {
    if (KindOf(member.suffix) != kind) continue;
    if (first == nullptr || SuffixBefore(member.suffix, first->suffix)) first = &member;
  }
  return first;
}

// The medium of that name in the row itself; null: there is none.
const SampleMember* HeldIn(const ScannedSample& row, std::string_view name) {
  const auto held = std::find_if(row.members.begin() + 1, row.members.end(),
                                 [&](const SampleMember& member) { return member.suffix == name; });
  return held == row.members.end() ? nullptr : &*held;
}

// Pictures in rows often have a wrong suffix, and their loaders look at the bytes alone. The suffix of other media
// counts if there is one.
void SetSuffixByBytes(std::span<const std::byte> bytes, ItemPlace& item) {
  const std::string_view found = SuffixOfBytes(bytes);
  const bool is_picture =
      item.facts.medium == Medium::kImage && !found.empty() && MediumOf(found) == Medium::kImage;
  if (item.suffix.empty() || (is_picture && !(found == "jpg" && item.suffix == "jpeg"))) item.suffix = found;
}

// In place of a shard that cannot be decompressed.
class DamagedShard : public SampleScanner {
 public:
  DamagedShard(ByteSource& source, std::string path, const absl::Status& damage)
      : SampleScanner(source, std::move(path)), damage_(DamageOf(damage, "")) {}

  absl::StatusOr<std::optional<ScannedSample>> Next() override {
    return std::exchange(damage_, std::nullopt);
  }
  bool damaged() const override { return true; }

 private:
  std::optional<ScannedSample> damage_;
};

ExclusionRecord MakeExclusion(std::string_view key, std::string reason, absl::string_view detail) {
  return {Printable(key, kMaxTarName), std::move(reason),
          Printable(std::string_view(detail.data(), detail.size()), 500)};
}

// Which items are in turns of the assistant, so that a generator may learn to make them. A text without turns and a preference
// pair have no such items.
std::vector<bool> MediaOfAssistant(const Conversation& conversation, size_t num_items) {
  std::vector<bool> out(num_items, false);
  if (conversation.plain || conversation.rejected != 0) return out;
  for (const Turn& turn : conversation.turns) {
    if (turn.role != Role::kAssistant) continue;
    for (const Span& span : turn.spans) {
      if (span.medium != Medium::kText && span.item < num_items) out[span.item] = true;
    }
  }
  return out;
}

}  // namespace

void ByteBudget::Acquire(uint64_t bytes) {
  MutexLock lock(mutex_);
  while (held_ != 0 && held_ + bytes > limit_) freed_.Wait(mutex_);
  held_ += bytes;
}

void ByteBudget::Release(uint64_t bytes) {
  MutexLock lock(mutex_);
  held_ -= bytes;
  freed_.NotifyAll();
}

struct ShardBuilder::Columns {
  PlacesWriter places;
  FactsWriter facts;
  LengthsWriter lengths;
  // Of media that are files of their own, in the order of the places.
  Digester media_content;
  Digester media_stamps;
};

// A sample's text, and the conversation whose spans are views of it.
struct ShardBuilder::SampleText {
  std::string bytes;
  TextParser parser;
  const Conversation* conversation = nullptr;
};

absl::StatusOr<Digest> ShardBuilder::HashShard(const std::string& path, uint64_t size) const {
  return ShardContent(source_, path, size).Finish();
}

absl::Status ShardBuilder::FindItems(SampleScanner& scanner, const ScannedSample& sample, PlaceRecord& place,
                                     SampleText& text, Refusal& refusal) const {
  auto refuse = [&](std::string reason, absl::Status status) {
    refusal = {std::move(reason), std::move(status)};
    return absl::OkStatus();
  };
  const SampleMember* plain = FirstOf(MemberKind::kText, sample.members);
  const SampleMember* json = FirstOf(MemberKind::kJson, sample.members);
  absl::StatusOr<const ParsedText*> parsed = absl::NotFoundError("no text member");
  std::vector<size_t> items;
  for (const SampleMember* member : {json, plain}) {
    if (member == nullptr || !absl::IsNotFound(parsed.status())) continue;
    EVENKEEL_RETURN_IF_ERROR(ReadText(scanner, *member, place, text, refusal));
    if (!refusal.reason.empty()) return absl::OkStatus();
    place.text_form = member == json ? TextForm::kJson : TextForm::kPlain;
    if (member == json) {
      parsed = text.parser.ParseChat(text.bytes, limits_);
    } else if (text.bytes.empty()) {
      parsed = absl::NotFoundError(absl::StrCat("'", member->suffix, "' is empty"));
    } else {
      items = PlainItems(sample.members);
      std::vector<Medium> media;
      media.reserve(items.size());
      for (size_t i : items) media.push_back(MediumOf(sample.members[i].suffix));
      parsed = text.parser.ParsePlain(text.bytes, media, limits_);
    }
  }
  if (absl::IsNotFound(parsed.status())) return refuse("no text", parsed.status());
  if (absl::IsResourceExhausted(parsed.status())) return refuse("too many items", parsed.status());
  if (!parsed.ok()) return refuse(text.parser.is_pair() ? "bad pair" : "bad JSON", parsed.status());
  if (place.text_form == TextForm::kJson) {
    std::span<const MediaReference> references = (*parsed)->references;
    if (text.parser.is_pair()) {
      place.text_form = TextForm::kJsonPair;
      references = references.first(references.size() / 2);
    }
    absl::StatusOr<std::vector<size_t>> resolved = ResolveItems(references, sample.key, sample.members);
    if (!resolved.ok()) return refuse("media do not match the text", resolved.status());
    items = *resolved;
    if (text.parser.is_pair()) items.insert(items.end(), resolved->begin(), resolved->end());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const SampleMember& member = sample.members[items[i]];
    ItemPlace item{.offset = member.offset, .size = member.size, .suffix = member.suffix};
    item.facts.medium = (*parsed)->references[i].medium;
    place.items.push_back(std::move(item));
  }
  text.conversation = &(*parsed)->conversation;
  return absl::OkStatus();
}

absl::Status ShardBuilder::ReadText(SampleScanner& scanner, const SampleMember& member, PlaceRecord& place,
                                    SampleText& text, Refusal& refusal) const {
  const absl::StatusOr<uint64_t> size = scanner.SizeOf(member, limits_.max_text_bytes);
  if (!size.ok()) {
    if (!IsPermanent(size.status())) return size.status();
    refusal = {absl::IsResourceExhausted(size.status()) ? "text too long" : "damaged text",
               AddContext(size.status(), absl::StrCat("'", member.suffix, "'"))};
    return absl::OkStatus();
  }
  if (*size > limits_.max_text_bytes) {
    refusal = {"text too long", absl::ResourceExhaustedError(absl::StrCat(
                                    *size, " bytes; limits.max_text_bytes is ", limits_.max_text_bytes))};
    return absl::OkStatus();
  }
  text.bytes.resize(*size);
  EVENKEEL_RETURN_IF_ERROR(scanner.ReadMember(member, std::as_writable_bytes(std::span(text.bytes))));
  const size_t bad = AreTokens(place.text_form) ? text.bytes.size() : ValidUtf8Prefix(text.bytes);
  if (bad != text.bytes.size()) {
    refusal = {"not UTF-8", absl::InvalidArgumentError(absl::StrCat("'", member.suffix, "', byte ", bad))};
    return absl::OkStatus();
  }
  place.text_offset = member.offset;
  place.text_size = *size;
  place.text_checksum = ChecksumOf(std::as_bytes(std::span(text.bytes)));
  return absl::OkStatus();
}

absl::Status ShardBuilder::FindTokens(SampleScanner& scanner, const ScannedSample& sample, PlaceRecord& place,
                                      SampleText& text, Refusal& refusal) const {
  place.text_form = sample.tokens;
  EVENKEEL_RETURN_IF_ERROR(ReadText(scanner, sample.members[0], place, text, refusal));
  if (!refusal.reason.empty()) return absl::OkStatus();
  const absl::StatusOr<const ParsedText*> parsed = text.parser.ParseTokens(text.bytes, sample.tokens);
  if (parsed.ok()) {
    text.conversation = &(*parsed)->conversation;
  } else {
    refusal = {"bad tokens", parsed.status()};
  }
  return absl::OkStatus();
}

absl::Status ShardBuilder::FindRow(const DatasetSpec& dataset, const std::string& shard_path,
                                   SampleScanner& scanner, const ScannedSample& sample, PlaceRecord& place,
                                   SampleText& text, Refusal& refusal) const {
  EVENKEEL_RETURN_IF_ERROR(ReadText(scanner, sample.members[0], place, text, refusal));
  if (!refusal.reason.empty()) return absl::OkStatus();
  place.text_form = TextForm::kRow;
  const absl::StatusOr<const ParsedText*> parsed = text.parser.ParseRow(text.bytes, dataset.fields, limits_);
  if (!parsed.ok()) {
    refusal = {absl::IsNotFound(parsed.status())            ? "no text"
               : absl::IsResourceExhausted(parsed.status()) ? "too many items"
               : text.parser.is_pair()                      ? "bad pair"
                                                            : "bad JSON",
               parsed.status()};
    return absl::OkStatus();
  }
  if (text.parser.is_pair()) place.text_form = TextForm::kRowPair;
  for (const MediaReference& reference : (*parsed)->references) {
    ItemPlace& item = place.items.emplace_back();
    item.facts.medium = reference.medium;
    const SampleMember* held = reference.name.has_value() ? HeldIn(sample, *reference.name) : nullptr;
    if (held == nullptr) {
      EVENKEEL_RETURN_IF_ERROR(FindFile(dataset, shard_path, reference, item, refusal));
      if (!refusal.reason.empty()) return absl::OkStatus();
    } else {
      item.offset = held->offset;
      item.size = held->size;
      item.suffix = SuffixOfName(held->suffix);
    }
    CheckSuffix(*reference.name, item, refusal);
    if (!refusal.reason.empty()) return absl::OkStatus();
  }
  text.conversation = &(*parsed)->conversation;
  return absl::OkStatus();
}

void ShardBuilder::CheckSuffix(std::string_view name, ItemPlace& item, Refusal& refusal) {
  if (KindOf(item.suffix) != MemberKind::kMedia) {
    item.suffix.clear();  // found by the bytes
  } else if (!MayBe(item.facts.medium, MediumOf(item.suffix))) {
    refusal = {"media do not match the text",
               absl::InvalidArgumentError(absl::StrCat("the text names '", Printable(name),
                                                       "' as a medium that does not fit its suffix"))};
  }
}

absl::Status ShardBuilder::FindFile(const DatasetSpec& dataset, const std::string& shard_path,
                                    const MediaReference& reference, ItemPlace& item,
                                    Refusal& refusal) const {
  if (!reference.name) {
    refusal = {"media do not match the text",
               absl::InvalidArgumentError(absl::StrCat("a placeholder for ",
                                                       std::string(MediumName(reference.medium)),
                                                       " without a file; no field names one"))};
    return absl::OkStatus();
  }
  const std::string folder = MediaFolder(dataset, shard_path);
  absl::StatusOr<std::string> name = RelativeMediaName(*reference.name, folder);
  if (!name.ok()) {
    refusal = {std::string(kUnusableName), name.status()};
    return absl::OkStatus();
  }
  const absl::StatusOr<uint64_t> size = source_.Size(MediaPath(folder, *name));
  if (absl::IsNotFound(size.status()) || absl::IsInvalidArgument(size.status())) {
    // Without the folder: it is no part of the index.
    const absl::string_view why =
        absl::IsNotFound(size.status()) ? "no such file" : "not a file inside the folder";
    refusal = {std::string(absl::IsNotFound(size.status()) ? kMissingMedia : kUnusableName),
               absl::InvalidArgumentError(absl::StrCat("'", Printable(*name), "': ", why))};
    return absl::OkStatus();
  }
  EVENKEEL_RETURN_IF_ERROR(size.status());
  item.suffix = SuffixOfName(*name);
  item.file = *std::move(name);
  item.size = *size;
  return absl::OkStatus();
}

absl::StatusOr<MediaFacts> ShardBuilder::ProbeItem(SampleScanner& scanner, bool is_row, ItemPlace& item,
                                                   Refusal& refusal) {
  Medium medium = item.facts.medium;
  if (item.file.empty()) {
    const absl::StatusOr<uint64_t> size =
        scanner.SizeOf({item.suffix, item.offset, item.size}, MaxBytes(medium, limits_));
    if (!size.ok()) {
      if (!IsPermanent(size.status())) return size.status();
      refusal = {ProbeReason(medium, size.status()),
                 AddContext(size.status(), absl::StrCat("'", item.suffix, "'"))};
      return size.status();
    }
    item.size = *size;
  }
  if (item.size > MaxBytes(medium, limits_)) {
    refusal.status = absl::ResourceExhaustedError(
        absl::StrCat("'", item.suffix, "': ", item.size, " bytes; limits.max_",
                     std::string(MediumName(medium)), "_bytes is ", MaxBytes(medium, limits_)));
    refusal.reason = ProbeReason(medium, refusal.status);
    return refusal.status;
  }
  media_.Acquire(item.size);
  absl::Cleanup release = [&] { media_.Release(item.size); };
  std::string bytes(item.size, '\0');
  const std::span<std::byte> out = std::as_writable_bytes(std::span(bytes));
  EVENKEEL_RETURN_IF_ERROR(item.file.empty() ? scanner.ReadMember({item.suffix, item.offset, item.size}, out)
                                             : source_.ReadAt(item.file, item.offset, out));
  item.checksum = ChecksumOf(std::as_bytes(std::span(bytes)));
  if (is_row) SetSuffixByBytes(std::as_bytes(std::span(bytes)), item);
  if (item.suffix.empty()) {
    refusal.status =
        absl::UnimplementedError("neither the name nor the first bytes of a medium tell its format");
    refusal.reason = ProbeReason(medium, refusal.status);
    return refusal.status;
  }
  absl::StatusOr<MediaFacts> facts = measurer_.Probe(medium, item.suffix, std::as_bytes(std::span(bytes)));
  if (facts.ok()) {
    facts->medium = medium;
  } else if (IsPermanent(facts.status())) {
    refusal.status = AddContext(facts.status(), absl::StrCat("'", item.suffix, "'"));
    refusal.reason = ProbeReason(medium, facts.status());
  }
  return facts;
}

absl::StatusOr<ItemLengths> ShardBuilder::MeasureItem(const std::string& shard_path, const ItemPlace& item,
                                                      uint8_t tower) const {
  if (tower != 0 || !measurer_.measures_stored(item.facts.medium))
    return measurer_.MeasureIn(tower, item.facts);
  std::vector<std::byte> bytes(item.size);
  EVENKEEL_RETURN_IF_ERROR(ReadItem(shard_path, item, source_, bytes));
  return measurer_.MeasureStored(item.facts, item.suffix, bytes);
}

absl::Status ShardBuilder::MeasureTowers(const std::string& shard_path, const ItemPlace& item,
                                         SampleItem like, SampleLengths& out, Refusal& refusal) const {
  const bool is_target = like.tower == kTargetTower;
  const uint8_t num_towers =
      is_target ? 1 : std::max<uint8_t>(1, measurer_.num_towers(like.medium));  // with none, it is refused
  for (uint8_t number = 0; number < num_towers; ++number) {
    if (!is_target) like.tower = number;
    absl::StatusOr<ItemLengths> lengths = MeasureItem(shard_path, item, like.tower);
    if (!lengths.ok()) {
      if (IsPermanent(lengths.status())) {
        refusal.reason = absl::StrCat(std::string(MediumName(like.medium)), " refused by the processor");
        refusal.status = AddContext(lengths.status(), absl::StrCat("'", item.suffix, "'"));
      }
      return lengths.status();
    }
    like.lengths = *lengths;
    out.items.push_back(like);
  }
  return absl::OkStatus();
}

absl::StatusOr<SampleLengths> ShardBuilder::Measure(const std::string& shard_path,
                                                    const Conversation& conversation,
                                                    const std::vector<ItemPlace>& items,
                                                    Refusal& refusal) const {
  SampleLengths out;
  std::vector<MediaFacts> facts;
  const std::vector<bool> by_assistant = MediaOfAssistant(conversation, items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const ItemPlace& item = items[i];
    const Medium medium = item.facts.medium;
    const bool is_target = by_assistant[i] && measurer_.generates(medium);
    const SampleItem like{.medium = medium, .tower = is_target ? kTargetTower : uint8_t{0}};
    EVENKEEL_RETURN_IF_ERROR(MeasureTowers(shard_path, item, like, out, refusal));
    facts.push_back(item.facts);
    if (is_target || !item.facts.has_audio()) continue;
    ItemPlace audio = item;
    audio.facts = AudioOf(item.facts);
    EVENKEEL_RETURN_IF_ERROR(
        MeasureTowers(shard_path, audio, {.medium = Medium::kAudio, .of_video = true}, out, refusal));
  }
  std::vector<SampleItem> in_sequence;
  for (const SampleItem& item : out.items) {
    if (item.has_placeholders()) in_sequence.push_back(item);
  }
  absl::StatusOr<SequenceLengths> sequence = measurer_.MeasureSequence(conversation, in_sequence, facts);
  if (sequence.ok()) {
    out.llm_length = sequence->llm_length;
    out.chosen_length = sequence->chosen_length;
    // A microbatch must have room for the padding between the sequences of a pair.
    const uint64_t align = out.chosen_length == 0 ? 1 : std::max(1u, job_.microbatch.align);
    const PhaseSpec* const llm = job_.phase(Phase::kLlm);
    const Batching batching = llm == nullptr ? Batching::kPacked : llm->batching;
    const uint64_t tokens = PlannedTokens(out, align, batching).tokens;
    if (tokens > limits_.max_llm_length) {
      sequence = absl::ResourceExhaustedError(
          absl::StrCat(tokens, " tokens; limits.max_llm_length is ", limits_.max_llm_length));
    }
  }
  if (!sequence.ok()) {
    if (IsPermanent(sequence.status())) {
      refusal.reason =
          absl::IsResourceExhausted(sequence.status()) ? "too long" : "text refused by the processor";
      refusal.status = sequence.status();
    }
    return sequence.status();
  }
  out.loss_tokens = sequence->loss_tokens;
  return out;
}

void ShardBuilder::CheckColumns(const absl::Status& columns, Refusal& refusal) {
  if (!columns.ok()) refusal = {"columns too long", columns};
}

absl::Status ShardBuilder::AddSample(const DatasetSpec& dataset, const std::string& shard_path,
                                     SampleScanner& scanner, const ScannedSample& sample, Columns& columns) {
  if (!sample.reason.empty()) {
    columns.places.Exclude(MakeExclusion(sample.key, sample.reason, sample.detail));
    return absl::OkStatus();
  }
  PlaceRecord place;
  SampleText text;
  Refusal refusal;
  if (sample.is_row) {
    EVENKEEL_RETURN_IF_ERROR(FindRow(dataset, shard_path, scanner, sample, place, text, refusal));
  } else if (AreTokens(sample.tokens)) {
    EVENKEEL_RETURN_IF_ERROR(FindTokens(scanner, sample, place, text, refusal));
  } else {
    EVENKEEL_RETURN_IF_ERROR(FindItems(scanner, sample, place, text, refusal));
  }
  if (!refusal.reason.empty()) {
    columns.places.Exclude(MakeExclusion(sample.key, refusal.reason, refusal.status.message()));
    return absl::OkStatus();
  }
  if (columns.places.num_places() >= kMaxSamplesPerShard) {
    return absl::ResourceExhaustedError(
        absl::StrCat(shard_path, ": more than 2^24 samples; make smaller shards"));
  }
  place.key = sample.key;
  place.first_item = columns.facts.num_items();
  const std::string folder = MediaFolder(dataset, shard_path);
  for (ItemPlace& item : place.items) {
    absl::StatusOr<MediaFacts> facts = absl::InvalidArgumentError("an item before this one cannot be used");
    const std::string name = item.file;
    if (!name.empty()) {
      item.file = MediaPath(folder, name);
      // Before it is read: a file that changes meanwhile gets another stamp.
      EVENKEEL_ASSIGN_OR_RETURN(const std::string stamp, source_.Stamp(item.file));
      columns.media_stamps.Update(absl::StrCat(stamp, "\n"));
    }
    if (refusal.reason.empty()) facts = ProbeItem(scanner, sample.is_row, item, refusal);
    if (!name.empty()) columns.media_content.Update(absl::StrCat(item.size, " ", item.checksum, "\n"));
    item.file = name;
    if (!facts.ok() && refusal.reason.empty()) {
      return AddContext(facts.status(), absl::StrCat(shard_path, ": sample '", Printable(sample.key), "'"));
    }
    columns.facts.Add(facts.ok() ? std::optional<MediaFacts>(*facts) : std::nullopt);
    if (facts.ok()) item.facts = *facts;
  }
  columns.places.Add(place);
  if (!refusal.reason.empty()) {
    columns.facts.Exclude(MakeExclusion(sample.key, refusal.reason, refusal.status.message()));
    return absl::OkStatus();
  }
  CountPicturesOfSample(place.text_form, place.items);
  LocateFiles(folder, place.items);
  CheckColumns(text.parser.Columns(job_, sample.key).status(), refusal);
  absl::StatusOr<SampleLengths> lengths = absl::ResourceExhaustedError("its columns are too long");
  if (refusal.reason.empty()) lengths = Measure(shard_path, *text.conversation, place.items, refusal);
  if (lengths.ok()) return columns.lengths.Add(columns.places.num_places() - 1, *lengths);
  if (refusal.reason.empty())
    return AddContext(lengths.status(), absl::StrCat(shard_path, ": sample '", Printable(sample.key), "'"));
  columns.lengths.Exclude(MakeExclusion(sample.key, refusal.reason, refusal.status.message()));
  return absl::OkStatus();
}

absl::Status ShardBuilder::StoreLengths(const DatasetSpec& dataset, const LengthsWriter& lengths,
                                        ShardEntry& entry) const {
  LengthsEntry stored;
  stored.key = LengthsKey(job_, dataset, measurer_.digest());
  std::string bytes = lengths.Finish(stored.key, &stored.totals);
  EVENKEEL_ASSIGN_OR_RETURN(stored.file, StoreColumn(folder_, FileKind::kLengths, bytes, files_));
  std::erase_if(entry.lengths, [&](const LengthsEntry& old) { return old.key == stored.key; });
  entry.lengths.push_back(stored);
  return absl::OkStatus();
}

std::vector<std::string> ShardBuilder::FilesOf(const DatasetSpec& dataset, const std::string& shard_path,
                                               SampleScanner& scanner, const ScannedSample& sample) const {
  std::vector<std::string> paths;
  PlaceRecord place;
  SampleText text;
  Refusal refusal;
  if (!sample.reason.empty() || !sample.is_row ||
      !ReadText(scanner, sample.members[0], place, text, refusal).ok() || !refusal.reason.empty()) {
    return paths;
  }
  const absl::StatusOr<const ParsedText*> parsed = text.parser.ParseRow(text.bytes, dataset.fields, limits_);
  if (!parsed.ok()) return paths;
  const std::string folder = MediaFolder(dataset, shard_path);
  for (const MediaReference& reference : (*parsed)->references) {
    if (!reference.name || HeldIn(sample, *reference.name) != nullptr) continue;
    const absl::StatusOr<std::string> name = RelativeMediaName(*reference.name, folder);
    if (name.ok()) paths.push_back(MediaPath(folder, *name));
  }
  return paths;
}

absl::StatusOr<std::vector<ScannedSample>> ShardBuilder::NextRows(const DatasetSpec& dataset,
                                                                  const std::string& shard_path,
                                                                  SampleScanner& scanner,
                                                                  std::unique_ptr<Expected>& held) const {
  const bool are_far = MediaAreFiles(dataset) && IsAddress(MediaFolder(dataset, shard_path));
  std::vector<ScannedSample> rows;
  std::vector<std::string> paths;
  while (rows.size() < (are_far ? MediaSource::kRowsAtOnce : 1)) {
    EVENKEEL_ASSIGN_OR_RETURN(std::optional<ScannedSample> sample, scanner.Next());
    if (!sample) break;
    if (are_far) {
      for (std::string& path : FilesOf(dataset, shard_path, scanner, *sample))
        paths.push_back(std::move(path));
    }
    rows.push_back(*std::move(sample));
  }
  if (!paths.empty()) held = source_.Hold(paths);
  return rows;
}

absl::StatusOr<std::unique_ptr<SampleScanner>> ShardBuilder::OpenShard(const DatasetSpec& dataset,
                                                                       const std::string& path,
                                                                       ShardContent& shard) {
  const std::string content = ContentOf(path);
  EVENKEEL_ASSIGN_OR_RETURN(const uint64_t packed_size, shard.Size(path));
  if (dataset.format == DataFormat::kMegatron) return MakeMegatronScanner(shard, source_, path, packed_size);
  if (content == path) return MakeScanner(dataset, shard, path, packed_size, limits_);
  const absl::StatusOr<uint64_t> size = source_.Size(content);
  if (absl::IsDataLoss(size.status()) && KnownKind(size.status()) != FailureKind::kMachine)
    return std::make_unique<DamagedShard>(source_, path, size.status());
  EVENKEEL_RETURN_IF_ERROR(size.status());
  return MakeScanner(dataset, source_, content, *size, limits_);
}

absl::Status ShardBuilder::Read(const DatasetSpec& dataset, const std::string& path, ShardEntry& entry,
                                std::string* media) {
  ShardContent shard(source_, path, entry.size);
  EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<SampleScanner> scanner, OpenShard(dataset, path, shard));
  Columns columns;
  if (dataset.format == DataFormat::kMegatron) {
    // The .idx has a part of what the shard contains. Its stamp is that of before it is read.
    const std::string index = MegatronIndexPath(path);
    EVENKEEL_ASSIGN_OR_RETURN(const std::string stamp, MegatronIndexStamp(path));
    columns.media_stamps.Update(absl::StrCat(stamp, "\n"));
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, source_.Size(index));
    EVENKEEL_ASSIGN_OR_RETURN(const Digest content, HashShard(index, size));
    columns.media_content.Update(absl::StrCat(size, " ", content.Hex(), "\n"));
  }
  for (;;) {
    std::unique_ptr<Expected> held;
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<ScannedSample> samples,
                              NextRows(dataset, path, *scanner, held));
    if (samples.empty()) break;
    for (const ScannedSample& sample : samples)
      EVENKEEL_RETURN_IF_ERROR(AddSample(dataset, path, *scanner, sample, columns));
  }
  EVENKEEL_ASSIGN_OR_RETURN(entry.content, shard.Finish());
  if (HasOtherFiles(dataset)) {
    Digester content;
    content.Update(absl::StrCat(entry.content.Hex(), " ", columns.media_content.Finish().Hex()));
    entry.content = content.Finish();
    *media = columns.media_stamps.Finish().Hex();
  }
  entry.damaged = scanner->damaged();
  entry.facts_key = FactsKey(job_, dataset);
  entry.lengths.clear();
  EVENKEEL_ASSIGN_OR_RETURN(entry.places_file, StoreColumn(folder_, FileKind::kPlaces,
                                                           columns.places.Finish(entry.facts_key), files_));
  EVENKEEL_ASSIGN_OR_RETURN(entry.facts_file, StoreColumn(folder_, FileKind::kFacts,
                                                          columns.facts.Finish(entry.facts_key), files_));
  return StoreLengths(dataset, columns.lengths, entry);
}

absl::StatusOr<std::string> ShardBuilder::MegatronIndexStamp(const std::string& path) const {
  absl::StatusOr<std::string> stamp = source_.Stamp(MegatronIndexPath(path));
  return absl::IsNotFound(stamp.status()) ? NoMegatronIndex(path) : stamp;
}

absl::StatusOr<std::string> ShardBuilder::MediaStamp(const DatasetSpec& dataset, const std::string& path,
                                                     const ShardEntry& entry) const {
  if (dataset.format == DataFormat::kMegatron) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string stamp, MegatronIndexStamp(path));
    Digester stamps;
    stamps.Update(absl::StrCat(stamp, "\n"));
    return stamps.Finish().Hex();
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      PlacesReader places,
      PlacesReader::Open(files_, cache_, ColumnPath(folder_, FileKind::kPlaces, entry.places_file)));
  bool missing = false;
  EVENKEEL_RETURN_IF_ERROR(places.ForEachExclusion([&](const ExclusionRecord& exclusion) {
    missing = missing || exclusion.reason == kMissingMedia || exclusion.reason == kUnusableName;
  }));
  if (missing) return std::string();
  const std::string folder = MediaFolder(dataset, path);
  Digester stamps;
  std::vector<std::string> paths;
  for (uint64_t i = 0; i < places.num_places(); ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(PlaceRecord place, places.Read(i));
    LocateFiles(folder, place.items);
    for (ItemPlace& item : place.items) {
      if (!item.file.empty()) paths.push_back(std::move(item.file));
    }
    if (paths.size() < kStampsAtOnce && i + 1 < places.num_places()) continue;
    for (const absl::StatusOr<std::string>& stamp : source_.StampsOf(paths)) {
      if (absl::IsNotFound(stamp.status()) || absl::IsInvalidArgument(stamp.status())) return std::string();
      EVENKEEL_RETURN_IF_ERROR(stamp.status());
      stamps.Update(absl::StrCat(*stamp, "\n"));
    }
    paths.clear();
  }
  return stamps.Finish().Hex();
}

absl::Status ShardBuilder::Remeasure(const DatasetSpec& dataset, const std::string& path,
                                     ShardEntry& entry) const {
  EVENKEEL_ASSIGN_OR_RETURN(
      PlacesReader places,
      PlacesReader::Open(files_, cache_, ColumnPath(folder_, FileKind::kPlaces, entry.places_file)));
  EVENKEEL_ASSIGN_OR_RETURN(
      FactsReader facts,
      FactsReader::Open(files_, cache_, ColumnPath(folder_, FileKind::kFacts, entry.facts_file)));
  LengthsWriter writer;
  ConversationReader reader;
  for (uint64_t i = 0; i < places.num_places(); ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(PlaceRecord place, places.Read(i));
    bool usable = true;
    for (size_t j = 0; j < place.items.size(); ++j) {
      EVENKEEL_ASSIGN_OR_RETURN(std::optional<MediaFacts> item, facts.Read(place.first_item + j));
      if (item) place.items[j].facts = *item;
      usable = usable && item.has_value();
    }
    if (!usable) continue;  // excluded by the facts, whatever the processor
    CountPicturesOfSample(place.text_form, place.items);
    LocateFiles(MediaFolder(dataset, path), place.items);
    const SamplePlaces sample{.key = place.key,
                              .shard_path = path,
                              .text_form = place.text_form,
                              .text_offset = place.text_offset,
                              .text_size = place.text_size,
                              .text_checksum = place.text_checksum,
                              .items = place.items,
                              .fields = &dataset.fields};
    EVENKEEL_ASSIGN_OR_RETURN(const Conversation* conversation, reader.Read(sample, limits_, source_));
    Refusal refusal;
    CheckColumns(reader.Columns(job_, place.key).status(), refusal);
    absl::StatusOr<SampleLengths> lengths = absl::ResourceExhaustedError("its columns are too long");
    if (refusal.reason.empty()) lengths = Measure(path, *conversation, place.items, refusal);
    if (lengths.ok()) {
      EVENKEEL_RETURN_IF_ERROR(writer.Add(i, *lengths));
    } else if (!refusal.reason.empty()) {
      writer.Exclude(MakeExclusion(place.key, refusal.reason, refusal.status.message()));
    } else {
      return AddContext(lengths.status(), absl::StrCat(path, ": sample '", Printable(place.key), "'"));
    }
  }
  return StoreLengths(dataset, writer, entry);
}

bool ShardBuilder::HasFiles(const DatasetSpec& dataset, const ShardEntry& entry, bool with_lengths) const {
  auto there = [&](FileKind kind, const Digest& file) {
    return files_.Size(ColumnPath(folder_, kind, file)).ok();
  };
  if (!there(FileKind::kPlaces, entry.places_file) || !there(FileKind::kFacts, entry.facts_file))
    return false;
  const LengthsEntry* lengths = entry.FindLengths(LengthsKey(job_, dataset, measurer_.digest()));
  return !with_lengths || (lengths != nullptr && there(FileKind::kLengths, lengths->file));
}

}  // namespace evenkeel::dataset
