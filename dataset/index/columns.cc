// Encodes and decodes the three column sets of a shard. The comments before each part give its sections.
#include "dataset/index/columns.h"

#include <algorithm>
#include <array>

#include "core/status.h"
#include "dataset/source/little_endian.h"

namespace evenkeel::dataset {
namespace {

constexpr uint64_t kFactsBytes = 48, kRowBytes = 16, kItemBytes = 12;
// Of an item's length for the cost in the lengths: the item is a target.
constexpr uint32_t kTargetBit = 1u << 31;
constexpr uint32_t kOfVideoBit = 1u << 31;
// Of an item's medium in a place: the name of its file follows.
constexpr uint64_t kOwnFile = 4;
constexpr uint64_t kMaxRecordBytes = 64 << 20;  // of the record of one sample's places

void PutExclusion(const ExclusionRecord& exclusion, std::string& out) {
  PutText(exclusion.key, out);
  PutText(exclusion.reason, out);
  PutText(exclusion.detail, out);
}

absl::StatusOr<std::string> ReadText(const PagedFile& file, size_t section, uint64_t offset, uint64_t size) {
  if (offset > file.section_bytes(section) || size > file.section_bytes(section) - offset) {
    return file.Damaged("a record beyond the end of its section");
  }
  std::string text(size, '\0');
  EVENKEEL_RETURN_IF_ERROR(file.Read(section, offset, std::as_writable_bytes(std::span(text))));
  return text;
}

absl::Status VisitExclusions(const PagedFile& file, size_t section,
                             absl::FunctionRef<void(const ExclusionRecord&)> visit) {
  EVENKEEL_ASSIGN_OR_RETURN(std::string bytes, ReadText(file, section, 0, file.section_bytes(section)));
  FieldReader fields(bytes);
  while (!fields.empty()) {
    ExclusionRecord exclusion;
    exclusion.key = fields.Text();
    exclusion.reason = fields.Text();
    exclusion.detail = fields.Text();
    if (!fields.ok()) return file.Damaged("bad list of exclusions");
    visit(exclusion);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const PagedFile>> OpenChecked(
    ByteSource& source, PageCache& cache, const std::string& path, FileKind kind,
    const std::vector<std::pair<size_t, uint64_t>>& rows, size_t sections) {
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<PagedFile> file, PagedFile::Open(source, cache, path, kind));
  if (file->num_sections() != sections) return file->Damaged("wrong number of sections");
  // Section i has numbers[i] rows of rows[i] bytes.
  for (size_t i = 0; i < rows.size(); ++i) {
    auto [extra, bytes] = rows[i];
    uint64_t count = file->header().numbers[i];
    if (count > 1ull << 40 || file->section_bytes(i) % bytes != 0 ||
        file->section_bytes(i) / bytes != count + extra) {
      return file->Damaged("a section's size does not fit its number of rows");
    }
  }
  return std::shared_ptr<const PagedFile>(std::move(file));
}

std::string EncodeFacts(const std::optional<MediaFacts>& facts) {
  std::string out;
  if (!facts) return std::string(kFactsBytes, '\0');
  PutLittle(static_cast<uint8_t>(facts->medium), 1, out);
  PutLittle(1, 1, out);  // usable
  PutLittle(facts->rotation, 2, out);
  for (uint32_t value : {facts->width, facts->height, facts->num_frames, facts->sample_rate, facts->channels,
                         facts->fps_num, facts->fps_den}) {
    PutLittle(value, 4, out);
  }
  PutLittle(facts->num_samples, 8, out);
  PutLittle(facts->duration_us, 8, out);
  return out;
}

}  // namespace

// ---- places: section 0: u64 end of each record in section 1; 1: records; 2: exclusions. numbers: places

void PlacesWriter::Add(const PlaceRecord& place) {
  PutText(place.key, records_);
  PutVarint(static_cast<uint8_t>(place.text_form), records_);
  PutVarint(place.text_offset, records_);
  PutVarint(place.text_size, records_);
  PutLittle(place.text_checksum, 8, records_);
  PutVarint(place.first_item, records_);
  PutVarint(place.items.size(), records_);
  for (const ItemPlace& item : place.items) {
    PutVarint(static_cast<uint8_t>(item.facts.medium) | (item.file.empty() ? 0 : kOwnFile), records_);
    PutVarint(item.offset, records_);
    PutVarint(item.size, records_);
    PutLittle(item.checksum, 8, records_);
    PutText(item.suffix, records_);
    if (!item.file.empty()) PutText(item.file, records_);
  }
  PutLittle(records_.size(), 8, offsets_);
  ++num_places_;
}

void PlacesWriter::Exclude(const ExclusionRecord& exclusion) { PutExclusion(exclusion, exclusions_); }

std::string PlacesWriter::Finish(const Digest& key) const {
  PagedHeader header{FileKind::kPlaces, key, DigestOf(records_), {num_places_}};
  return WritePaged(header, {offsets_, records_, exclusions_});
}

absl::StatusOr<PlacesReader> PlacesReader::Open(ByteSource& source, PageCache& cache,
                                                const std::string& path) {
  PlacesReader reader;
  EVENKEEL_ASSIGN_OR_RETURN(reader.file_, OpenChecked(source, cache, path, FileKind::kPlaces, {{0, 8}}, 3));
  return reader;
}

absl::StatusOr<PlaceRecord> PlacesReader::Read(uint64_t place) const {
  if (place >= num_places()) return file_->Damaged("a place beyond the last");
  std::array<std::byte, 16> ends{};
  std::span<std::byte> wanted = place == 0 ? std::span(ends).last(8) : std::span(ends);
  EVENKEEL_RETURN_IF_ERROR(file_->Read(0, place == 0 ? 0 : 8 * (place - 1), wanted));
  uint64_t begin = GetLittle(ends.data(), 8), end = GetLittle(ends.data() + 8, 8);
  if (end < begin || end - begin > kMaxRecordBytes) return file_->Damaged("bad record");
  EVENKEEL_ASSIGN_OR_RETURN(std::string bytes, ReadText(*file_, 1, begin, end - begin));
  FieldReader fields(bytes);
  PlaceRecord out;
  out.key = fields.Text();
  uint64_t form = fields.Varint();
  out.text_offset = fields.Varint();
  out.text_size = fields.Varint();
  out.text_checksum = fields.Little(8);
  out.first_item = fields.Varint();
  uint64_t items = fields.Varint();
  if (form > static_cast<uint8_t>(kLastTextForm) || items > fields.remaining())
    return file_->Damaged("bad record");
  out.text_form = static_cast<TextForm>(form);
  for (uint64_t i = 0; i < items; ++i) {
    ItemPlace item;
    uint64_t medium = fields.Varint();
    item.offset = fields.Varint();
    item.size = fields.Varint();
    item.checksum = fields.Little(8);
    item.suffix = fields.Text();
    if ((medium & kOwnFile) != 0) item.file = fields.Text();
    medium &= ~kOwnFile;
    if (medium > static_cast<uint8_t>(Medium::kAudio)) return file_->Damaged("bad record");
    item.facts.medium = static_cast<Medium>(medium);
    out.items.push_back(std::move(item));
  }
  if (!fields.ok() || !fields.empty()) return file_->Damaged("bad record");
  return out;
}

absl::Status PlacesReader::ForEachExclusion(absl::FunctionRef<void(const ExclusionRecord&)> visit) const {
  return VisitExclusions(*file_, 2, visit);
}

// ---- facts: section 0: 48 bytes an item; 1: exclusions. numbers: items

void FactsWriter::Add(const std::optional<MediaFacts>& facts) {
  facts_ += EncodeFacts(facts);
  ++num_items_;
}

void FactsWriter::Exclude(const ExclusionRecord& exclusion) { PutExclusion(exclusion, exclusions_); }

std::string FactsWriter::Finish(const Digest& key) const {
  PagedHeader header{FileKind::kFacts, key, DigestOf(facts_), {num_items_}};
  return WritePaged(header, {facts_, exclusions_});
}

absl::StatusOr<FactsReader> FactsReader::Open(ByteSource& source, PageCache& cache, const std::string& path) {
  FactsReader reader;
  EVENKEEL_ASSIGN_OR_RETURN(reader.file_,
                            OpenChecked(source, cache, path, FileKind::kFacts, {{0, kFactsBytes}}, 2));
  return reader;
}

absl::StatusOr<std::optional<MediaFacts>> FactsReader::Read(uint64_t item) const {
  if (item >= num_items()) return file_->Damaged("an item beyond the last");
  std::array<std::byte, kFactsBytes> bytes;
  EVENKEEL_RETURN_IF_ERROR(file_->Read(0, item * kFactsBytes, bytes));
  if (GetLittle(&bytes[1], 1) == 0) return std::nullopt;
  uint64_t medium = GetLittle(&bytes[0], 1);
  if (medium == 0 || medium > static_cast<uint8_t>(Medium::kAudio)) return file_->Damaged("bad facts");
  auto u32 = [&](size_t i) { return static_cast<uint32_t>(GetLittle(&bytes[4 + 4 * i], 4)); };
  MediaFacts facts;
  facts.medium = static_cast<Medium>(medium);
  facts.rotation = static_cast<uint32_t>(GetLittle(&bytes[2], 2));
  facts.width = u32(0);
  facts.height = u32(1);
  facts.num_frames = u32(2);
  facts.sample_rate = u32(3);
  facts.channels = u32(4);
  facts.fps_num = u32(5);
  facts.fps_den = u32(6);
  facts.num_samples = GetLittle(&bytes[32], 8);
  facts.duration_us = GetLittle(&bytes[40], 8);
  return std::optional<MediaFacts>(facts);
}

absl::Status FactsReader::ForEachExclusion(absl::FunctionRef<void(const ExclusionRecord&)> visit) const {
  return VisitExclusions(*file_, 1, visit);
}

// ---- lengths: section 0: rows {u32 llm_length, u32 loss_tokens, u40 first_item, u24 place} and a last row
// that only ends the items; 1: items {u32 cost_length, u32 input_rows, u2 medium << 30 | u30 output_rows}; 2:
// exclusions. An item of medium 0 is the item before it once more, as the next phase that encodes its medium
// computes it. A first item of medium 0 is none: its cost_length is the tokens of the chosen sequence of a preference pair.
// numbers: rows, items, llm tokens, loss tokens, pairs

absl::Status LengthsWriter::Add(uint64_t place, const SampleLengths& lengths) {
  if (place >= kMaxSamplesPerShard || totals_.items + lengths.items.size() >= 1ull << 40) {
    return absl::ResourceExhaustedError(
        "a shard with more than 2^24 samples or 2^40 items; make smaller shards");
  }
  for (const SampleItem& item : lengths.items) {
    if (item.lengths.output_rows >= 1u << 30)
      return absl::InvalidArgumentError("an item of 2^30 rows or more");
    if (item.lengths.cost_length >= kTargetBit)
      return absl::InvalidArgumentError("an item whose length for the cost is 2^31 or more");
    if (item.medium == Medium::kAudio && item.lengths.input_rows >= kOfVideoBit)
      return absl::InvalidArgumentError("a clip of 2^31 rows or more");
  }
  PutLittle(lengths.llm_length, 4, rows_);
  PutLittle(lengths.loss_tokens, 4, rows_);
  PutLittle(totals_.items + pairs_, 5, rows_);
  PutLittle(place, 3, rows_);
  if (lengths.chosen_length != 0) {
    PutLittle(lengths.chosen_length, 4, items_);
    PutLittle(0, 8, items_);
    ++pairs_;
  }
  for (const SampleItem& item : lengths.items) {
    const uint32_t target = item.tower == kTargetTower ? kTargetBit : 0;
    PutLittle(target | item.lengths.cost_length, 4, items_);
    PutLittle((item.of_video ? kOfVideoBit : 0) | item.lengths.input_rows, 4, items_);
    const uint32_t medium = item.has_placeholders() ? static_cast<uint32_t>(item.medium) : 0;
    PutLittle(medium << 30 | item.lengths.output_rows, 4, items_);
  }
  ++totals_.rows;
  totals_.items += lengths.items.size();
  totals_.llm_tokens += lengths.llm_length;
  totals_.loss_tokens += lengths.loss_tokens;
  return absl::OkStatus();
}

void LengthsWriter::Exclude(const ExclusionRecord& exclusion) { PutExclusion(exclusion, exclusions_); }

std::string LengthsWriter::Finish(const Digest& key, LengthsTotals* totals) const {
  std::string rows = rows_;
  PutLittle(0, 8, rows);
  PutLittle(totals_.items + pairs_, 5, rows);
  PutLittle(0, 3, rows);
  Digester digester;
  digester.UpdateU64(rows.size());
  digester.Update(rows);
  digester.UpdateU64(items_.size());
  digester.Update(items_);
  *totals = totals_;
  totals->content = digester.Finish();
  PagedHeader header{FileKind::kLengths,
                     key,
                     totals->content,
                     {totals_.rows, totals_.items + pairs_, totals_.llm_tokens, totals_.loss_tokens, pairs_}};
  return WritePaged(header, {rows, items_, exclusions_});
}

absl::StatusOr<LengthsReader> LengthsReader::Open(ByteSource& source, PageCache& cache,
                                                  const std::string& path) {
  LengthsReader reader;
  EVENKEEL_ASSIGN_OR_RETURN(reader.file_, OpenChecked(source, cache, path, FileKind::kLengths,
                                                      {{1, kRowBytes}, {0, kItemBytes}}, 3));
  const PagedHeader& header = reader.file_->header();
  if (header.numbers[4] > header.numbers[1]) return reader.file_->Damaged("more pairs than items");
  return reader;
}

LengthsTotals LengthsReader::totals() const {
  const PagedHeader& header = file_->header();
  return {header.numbers[0], header.numbers[1] - header.numbers[4], header.numbers[2], header.numbers[3],
          header.content};
}

absl::StatusOr<SampleLengths> LengthsReader::Read(uint64_t row) const {
  if (row >= file_->header().numbers[0]) return file_->Damaged("a row beyond the last");
  std::array<std::byte, 2 * kRowBytes> rows;
  EVENKEEL_RETURN_IF_ERROR(file_->Read(0, row * kRowBytes, rows));
  uint64_t first = GetLittle(&rows[8], 5), end = GetLittle(&rows[kRowBytes + 8], 5);
  if (first > end || end > file_->header().numbers[1]) return file_->Damaged("bad row");
  SampleLengths out;
  out.llm_length = static_cast<uint32_t>(GetLittle(&rows[0], 4));
  out.loss_tokens = static_cast<uint32_t>(GetLittle(&rows[4], 4));
  EVENKEEL_ASSIGN_OR_RETURN(std::string items,
                            ReadText(*file_, 1, first * kItemBytes, (end - first) * kItemBytes));
  if (end > first && GetLittle(items.data() + 8, 4) >> 30 == 0) {
    out.chosen_length = static_cast<uint32_t>(GetLittle(items.data(), 4));
    if (out.chosen_length == 0 || out.chosen_length >= out.llm_length) return file_->Damaged("bad pair");
    items.erase(0, kItemBytes);
  }
  out.items.resize(items.size() / kItemBytes);
  for (size_t i = 0; i < out.items.size(); ++i) {
    const char* bytes = items.data() + i * kItemBytes;
    uint32_t last = static_cast<uint32_t>(GetLittle(bytes + 8, 4));
    out.items[i].medium = static_cast<Medium>(last >> 30);
    if (last >> 30 == 0) {
      if (i == 0 || out.items[i - 1].tower + 1u >= kMaxPhases) return file_->Damaged("bad item");
      out.items[i].medium = out.items[i - 1].medium;
      out.items[i].tower = static_cast<uint8_t>(out.items[i - 1].tower + 1);
    }
    const uint32_t cost_length = static_cast<uint32_t>(GetLittle(bytes, 4));
    if ((cost_length & kTargetBit) != 0) {
      if (last >> 30 == 0) return file_->Damaged("bad target");
      out.items[i].tower = kTargetTower;
    }
    out.items[i].lengths.cost_length = cost_length & ~kTargetBit;
    uint32_t input_rows = static_cast<uint32_t>(GetLittle(bytes + 4, 4));
    if (out.items[i].medium == Medium::kAudio && (input_rows & kOfVideoBit) != 0) {
      if (i == 0) return file_->Damaged("bad audio of a video");
      out.items[i].of_video = true;
      input_rows &= ~kOfVideoBit;
    }
    out.items[i].lengths.input_rows = input_rows;
    out.items[i].lengths.output_rows = last & ((1u << 30) - 1);
  }
  return out;
}

absl::StatusOr<uint32_t> LengthsReader::ReadLlmLength(uint64_t row) const {
  if (row >= file_->header().numbers[0]) return file_->Damaged("a row beyond the last");
  std::array<std::byte, 4> length;
  EVENKEEL_RETURN_IF_ERROR(file_->Read(0, row * kRowBytes, length));
  return static_cast<uint32_t>(GetLittle(length.data(), length.size()));
}

absl::StatusOr<uint64_t> LengthsReader::PlaceOf(uint64_t row) const {
  if (row >= file_->header().numbers[0]) return file_->Damaged("a row beyond the last");
  std::array<std::byte, 3> bytes;
  EVENKEEL_RETURN_IF_ERROR(file_->Read(0, row * kRowBytes + 13, bytes));
  return GetLittle(bytes.data(), 3);
}

absl::StatusOr<std::optional<uint64_t>> LengthsReader::RowOf(uint64_t place) const {
  uint64_t low = 0, high = file_->header().numbers[0];
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    EVENKEEL_ASSIGN_OR_RETURN(uint64_t found, PlaceOf(middle));
    if (found == place) return std::optional<uint64_t>(middle);
    if (found < place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return std::optional<uint64_t>();
}

absl::Status LengthsReader::ForEachExclusion(absl::FunctionRef<void(const ExclusionRecord&)> visit) const {
  return VisitExclusions(*file_, 2, visit);
}

}  // namespace evenkeel::dataset
