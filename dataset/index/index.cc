// Opens an index, checks it against the shards of the job, and reads rows, items and texts with their
// checksums.
#include "dataset/index/index.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/address.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "core/job_syntax.h"
#include "core/no_index.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/items_of_sample.h"
#include "dataset/format/media_file.h"
#include "dataset/format/sample_parser.h"
#include "dataset/index/columns.h"
#include "dataset/index/index_folder.h"
#include "dataset/index/remaining_rows.h"
#include "dataset/index/row_selection.h"
#include "dataset/source/packed_member.h"
#include "dataset/source/unpacking_source.h"

namespace evenkeel::dataset {

namespace {

std::string RunIndex(const Job& job) { return absl::StrCat("run 'evenkeel index --job ", job.path, "'"); }

// An object of a store that has another ETag than when it was indexed is another object. The stamp of a file differs
// between machines, and proves nothing.
absl::Status CheckETag(const Job& job, const std::string& path, const ShardEntry& entry, ByteSource& source) {
  const std::string_view then = FileStamp(entry.stamp);
  if (!IsAddress(path) || !then.starts_with(kETagMark)) return absl::OkStatus();
  EVENKEEL_ASSIGN_OR_RETURN(const std::string now, source.Stamp(path));
  if (now == then || !std::string_view(now).starts_with(kETagMark)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": the object has the ETag ", now.substr(kETagMark.size()), "; it had ",
      std::string(then.substr(kETagMark.size())), " when it was indexed: restore it, or ", RunIndex(job)));
}

// A shard may be replaced while workers read it, and a file system does not report that. Every read is
// compared with its checksum, so that a stream of other bytes never has the same digest.
// `path`: for messages.
absl::Status ReadIndexedAt(const std::string& content, const std::string& path, uint64_t offset,
                           uint64_t checksum, ByteSource& source, std::span<std::byte> out) {
  absl::Status read;
  // Tried twice: the source may have a descriptor of a file that was replaced meanwhile.
  for (int i = 0; i < 2; ++i) {
    read = source.ReadAt(content, offset, out);
    if (read.ok() && ChecksumOf(out) == checksum) return absl::OkStatus();
    // What a compressed member does not decompress to is other bytes.
    const bool is_other = absl::IsDataLoss(read) && KnownKind(read) == FailureKind::kData;
    if (!read.ok() && !absl::IsOutOfRange(read) && !is_other) return WithKind(read, FailureKind::kMachine);
    source.Forget(content);
  }
  if (absl::IsOutOfRange(read)) {
    // The file is truncated or being copied at this moment, so the bytes that are there prove nothing about
    // the rest.
    return WithKind(absl::UnavailableError(absl::StrCat(
                        read.message(), "; the file is shorter than when it was indexed: restore it")),
                    FailureKind::kMachine);
  }
  ByteRange stored{.path = content, .offset = offset, .size = out.size()};
  LocatePackedMember(stored);
  return WithKind(
      absl::FailedPreconditionError(absl::StrCat(
          path, ": the ", stored.size, " bytes at byte ", stored.offset,
          " differ from the indexed ones; the file was changed: restore it, or run 'evenkeel index "
          "--verify-content' and restart the stream")),
      FailureKind::kData);
}

// `path`: of a shard, or of a file that is a medium. Every text comes along here, so nothing is copied where that is the path
// of the bytes.
absl::Status ReadIndexed(const std::string& path, bool is_shard, uint64_t offset, uint64_t checksum,
                         ByteSource& source, std::span<std::byte> out) {
  if (is_shard && IsPacked(path)) return ReadIndexedAt(ContentOf(path), path, offset, checksum, source, out);
  return ReadIndexedAt(path, path, offset, checksum, source, out);
}

struct Shard {
  std::string path;
  Digest places_file, facts_file, lengths_file;
  LengthsTotals totals;
};

struct Dataset {
  DatasetSpec spec;  // without its shards
  std::vector<Shard> shards;
  std::vector<uint64_t> first_row;  // of each shard, and the end
  RemainingRows rows;
  LeftOut left_out;
};

// The readers of a shard, opened on first use.
struct Readers {
  std::optional<PlacesReader> places;
  std::optional<FactsReader> facts;
  std::optional<LengthsReader> lengths;
};

class StoredIndex : public Index {
 public:
  StoredIndex(const Job& job, size_t cache_bytes) : folder_(job.index), cache_(cache_bytes) {}

  absl::Status Load(const Job& job, const Digest& processor, ByteSource& source);

  Digest digest() const override { return digest_; }
  uint64_t num_samples(uint32_t dataset) const override {
    if (dataset >= datasets_.size()) return 0;
    return datasets_[dataset].rows.size();
  }
  LeftOut left_out(uint32_t dataset) const override {
    return dataset < datasets_.size() ? datasets_[dataset].left_out : LeftOut();
  }
  absl::StatusOr<SampleLengths> lengths(uint32_t dataset, uint64_t index) const override;
  absl::StatusOr<SamplePlaces> places(uint32_t dataset, uint64_t index) const override;
  absl::StatusOr<uint32_t> llm_length(uint32_t dataset, uint64_t index) const override;

 private:
  struct Row {
    size_t shard;
    uint64_t row;  // within the shard
  };

  absl::Status LoadDataset(const Job& job, const DatasetSpec& spec, const Catalogue& catalogue,
                           const Digest& processor, ByteSource& source);
  absl::Status Exclude(const Job& job, std::vector<std::vector<uint64_t>>& rows);
  absl::Status SelectRows(const Job& job, std::vector<std::vector<uint64_t>> excluded);
  absl::Status ExcludeFrom(const std::string& line, Dataset& dataset, std::string_view file,
                           std::string_view key, std::vector<uint64_t>& rows);
  absl::StatusOr<Row> Find(uint32_t dataset, uint64_t index) const;
  // Rows are read through these. A reader costs a few hundred bytes and no descriptor.
  absl::StatusOr<LengthsReader> Lengths(const Shard& shard) const;
  absl::StatusOr<PlacesReader> Places(const Shard& shard) const;
  absl::StatusOr<FactsReader> Facts(const Shard& shard) const;

  const std::string folder_;
  std::unique_ptr<ByteSource> files_ = MakeFileSource();
  mutable PageCache cache_;
  std::vector<Dataset> datasets_;
  Digest digest_;
  mutable Mutex mutex_;
  mutable std::map<const Shard*, Readers> readers_ ABSL_GUARDED_BY(mutex_);
};

absl::Status StoredIndex::LoadDataset(const Job& job, const DatasetSpec& spec, const Catalogue& catalogue,
                                      const Digest& processor, ByteSource& source) {
  auto found = catalogue.find(spec.name);
  if (found == catalogue.end()) {
    return WithNoIndex(absl::NotFoundError(
        absl::StrCat(folder_, ": the index has no dataset '", spec.name, "'; ", RunIndex(job))));
  }
  const std::vector<ShardEntry>& entries = found->second;
  auto mismatch = [&](size_t i, const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat(
        i < spec.shards.size() ? spec.shards[i] : entries[i].name, ": ", what, "; ", RunIndex(job)));
  };
  const Digest key = LengthsKey(job, spec, processor);
  Dataset dataset;
  dataset.spec = {.name = spec.name, .format = spec.format, .media = spec.media, .fields = spec.fields};
  dataset.first_row.push_back(0);
  for (size_t i = 0; i < std::max(entries.size(), spec.shards.size()); ++i) {
    if (i >= entries.size()) return mismatch(i, "the index does not have this shard");
    if (i >= spec.shards.size()) return mismatch(i, "the index has this shard, the job does not");
    const ShardEntry& entry = entries[i];
    if (entry.name != FileName(spec.shards[i])) {
      return mismatch(i, absl::StrCat("the index has '", entry.name, "' in this place"));
    }
    // Of objects the first one is asked, which finds a wrong bucket or missing rights; each read of another one has its
    // ETag as a condition. So a worker of 10^5 objects starts without as many requests.
    if (i == 0 || !source.Assume(spec.shards[i], entry.size, FileStamp(entry.stamp))) {
      EVENKEEL_ASSIGN_OR_RETURN(uint64_t size, source.Size(spec.shards[i]));
      if (size != entry.size) {
        return mismatch(
            i, absl::StrCat("the shard has ", size, " bytes; it had ", entry.size, " when it was indexed"));
      }
      EVENKEEL_RETURN_IF_ERROR(CheckETag(job, spec.shards[i], entry, source));
    }
    const LengthsEntry* lengths = entry.FindLengths(key);
    if (lengths == nullptr) {
      return WithNoIndex(
          absl::NotFoundError(absl::StrCat(folder_, ": no lengths for this processor and these limits; ",
                                           RunIndex(job), " (media are not read again)")));
    }
    dataset.shards.push_back(
        {spec.shards[i], entry.places_file, entry.facts_file, lengths->file, lengths->totals});
    dataset.first_row.push_back(dataset.first_row.back() + lengths->totals.rows);
  }
  datasets_.push_back(std::move(dataset));
  return absl::OkStatus();
}

absl::Status StoredIndex::Load(const Job& job, const Digest& processor, ByteSource& source) {
  absl::StatusOr<Catalogue> catalogue = LoadCatalogue(folder_, *files_);
  if (absl::IsNotFound(catalogue.status())) {
    return WithNoIndex(
        absl::NotFoundError(absl::StrCat(folder_, ": no index in this folder; ", RunIndex(job))));
  }
  EVENKEEL_RETURN_IF_ERROR(catalogue.status());
  std::vector<const std::vector<ShardEntry>*> entries;
  datasets_.reserve(job.datasets.size());
  for (const DatasetSpec& dataset : job.datasets) {
    EVENKEEL_RETURN_IF_ERROR(LoadDataset(job, dataset, *catalogue, processor, source));
    entries.push_back(&catalogue->at(dataset.name));
  }
  digest_ = IndexDigest(job, entries, processor);
  std::vector<std::vector<uint64_t>> excluded(datasets_.size());
  EVENKEEL_RETURN_IF_ERROR(Exclude(job, excluded));
  return SelectRows(job, std::move(excluded));
}

absl::Status StoredIndex::SelectRows(const Job& job, std::vector<std::vector<uint64_t>> excluded) {
  for (size_t d = 0; d < datasets_.size(); ++d) {
    Dataset& dataset = datasets_[d];
    const uint64_t total = dataset.first_row.back();
    RowSelection selection(job, job.datasets[d], total);
    if (selection.is_all()) {
      dataset.rows = RemainingRows::Without(total, std::move(excluded[d]));
      continue;
    }
    for (const Shard& shard : dataset.shards) {
      EVENKEEL_ASSIGN_OR_RETURN(const LengthsReader lengths, Lengths(shard));
      EVENKEEL_ASSIGN_OR_RETURN(const PlacesReader places, Places(shard));
      EVENKEEL_ASSIGN_OR_RETURN(const FactsReader facts, Facts(shard));
      EVENKEEL_RETURN_IF_ERROR(
          AddContext(selection.AddShard(FileName(shard.path), lengths, places, facts), folder_));
    }
    selection.Exclude(excluded[d]);
    dataset.left_out = selection.left_out();
    dataset.rows = RemainingRows::Of(total, std::move(selection).bits());
  }
  return absl::OkStatus();
}

absl::Status StoredIndex::Exclude(const Job& job, std::vector<std::vector<uint64_t>>& rows) {
  for (const std::string& line : job.exclude) {
    size_t best = job.datasets.size();
    for (size_t d = 0; d < job.datasets.size(); ++d) {
      const std::string prefix = job.datasets[d].name + "/";
      if (line.compare(0, prefix.size(), prefix) == 0) best = d;
    }
    std::string form = "; an entry is dataset/shard-file-name/key";
    if (best == job.datasets.size()) {
      std::vector<std::string> names;
      for (const DatasetSpec& dataset : job.datasets) names.push_back(dataset.name);
      return absl::InvalidArgumentError(
          absl::StrCat(job.path, ": exclude '", line, "': no such dataset; nearest is '",
                       Nearest(line.substr(0, line.find('/')), names), "'", form));
    }
    std::string_view rest = std::string_view(line).substr(job.datasets[best].name.size() + 1);
    size_t slash = rest.find('/');
    if (slash == std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(job.path, ": exclude '", line, "': no key", form));
    }
    EVENKEEL_RETURN_IF_ERROR(AddContext(
        ExcludeFrom(line, datasets_[best], rest.substr(0, slash), rest.substr(slash + 1), rows[best]),
        job.path));
  }
  return absl::OkStatus();
}

absl::Status StoredIndex::ExcludeFrom(const std::string& line, Dataset& dataset, std::string_view file,
                                      std::string_view key, std::vector<uint64_t>& rows) {
  std::vector<std::string> names;
  std::vector<std::string> keys;  // for the error message only
  bool found = false, shard_found = false;
  for (size_t i = 0; i < dataset.shards.size(); ++i) {
    const Shard& shard = dataset.shards[i];
    std::string_view name = FileName(shard.path);
    names.emplace_back(name);
    if (name != file) continue;
    shard_found = true;
    EVENKEEL_ASSIGN_OR_RETURN(PlacesReader places, Places(shard));
    EVENKEEL_ASSIGN_OR_RETURN(LengthsReader lengths, Lengths(shard));
    for (uint64_t place = 0; place < places.num_places(); ++place) {
      EVENKEEL_ASSIGN_OR_RETURN(PlaceRecord record, places.Read(place));
      if (record.key != key) {
        if (keys.size() < 20000) keys.push_back(record.key);
        continue;
      }
      found = true;  // also if the index itself excludes it: then nothing is left to do
      EVENKEEL_ASSIGN_OR_RETURN(std::optional<uint64_t> row, lengths.RowOf(place));
      if (row) rows.push_back(dataset.first_row[i] + *row);
    }
    auto excluded = [&](const ExclusionRecord& record) { found = found || record.key == key; };
    EVENKEEL_RETURN_IF_ERROR(places.ForEachExclusion(excluded));
  }
  if (found) return absl::OkStatus();
  if (!shard_found) {
    return absl::InvalidArgumentError(
        absl::StrCat("exclude '", line, "': no such shard; nearest is '", Nearest(file, names), "'"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("exclude '", line, "': no such sample; ",
                   keys.empty() ? "its shard has no usable sample"
                                : absl::StrCat("nearest is '", Printable(Nearest(key, keys)), "'")));
}

absl::StatusOr<StoredIndex::Row> StoredIndex::Find(uint32_t dataset, uint64_t index) const {
  if (index >= num_samples(dataset)) {
    return absl::OutOfRangeError(absl::StrCat("no sample ", index, " in dataset ", dataset, " of the index"));
  }
  const Dataset& rows = datasets_[dataset];
  uint64_t row = rows.rows.RowOf(index);
  // The last shard that begins at or before the row. A shard without rows begins where the next one does, so
  // it is skipped.
  auto after = std::upper_bound(rows.first_row.begin(), rows.first_row.end(), row);
  size_t shard = static_cast<size_t>(after - rows.first_row.begin()) - 1;
  return Row{shard, row - rows.first_row[shard]};
}

absl::StatusOr<LengthsReader> StoredIndex::Lengths(const Shard& shard) const {
  {
    MutexLock lock(mutex_);
    auto found = readers_.find(&shard);
    if (found != readers_.end() && found->second.lengths) return *found->second.lengths;
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      LengthsReader reader,
      LengthsReader::Open(*files_, cache_, ColumnPath(folder_, FileKind::kLengths, shard.lengths_file)));
  if (reader.totals().rows != shard.totals.rows || reader.totals().content != shard.totals.content) {
    return absl::DataLossError(absl::StrCat(folder_, ": the lengths of ", shard.path,
                                            " differ from those in the catalogue; remove the index"));
  }
  MutexLock lock(mutex_);
  readers_[&shard].lengths = reader;
  return reader;
}

absl::StatusOr<PlacesReader> StoredIndex::Places(const Shard& shard) const {
  {
    MutexLock lock(mutex_);
    auto found = readers_.find(&shard);
    if (found != readers_.end() && found->second.places) return *found->second.places;
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      PlacesReader reader,
      PlacesReader::Open(*files_, cache_, ColumnPath(folder_, FileKind::kPlaces, shard.places_file)));
  MutexLock lock(mutex_);
  readers_[&shard].places = reader;
  return reader;
}

absl::StatusOr<FactsReader> StoredIndex::Facts(const Shard& shard) const {
  {
    MutexLock lock(mutex_);
    auto found = readers_.find(&shard);
    if (found != readers_.end() && found->second.facts) return *found->second.facts;
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      FactsReader reader,
      FactsReader::Open(*files_, cache_, ColumnPath(folder_, FileKind::kFacts, shard.facts_file)));
  MutexLock lock(mutex_);
  readers_[&shard].facts = reader;
  return reader;
}

absl::StatusOr<SampleLengths> StoredIndex::lengths(uint32_t dataset, uint64_t index) const {
  EVENKEEL_ASSIGN_OR_RETURN(Row row, Find(dataset, index));
  EVENKEEL_ASSIGN_OR_RETURN(LengthsReader reader, Lengths(datasets_[dataset].shards[row.shard]));
  return reader.Read(row.row);
}

absl::StatusOr<uint32_t> StoredIndex::llm_length(uint32_t dataset, uint64_t index) const {
  EVENKEEL_ASSIGN_OR_RETURN(Row row, Find(dataset, index));
  EVENKEEL_ASSIGN_OR_RETURN(LengthsReader reader, Lengths(datasets_[dataset].shards[row.shard]));
  return reader.ReadLlmLength(row.row);
}

absl::StatusOr<SamplePlaces> StoredIndex::places(uint32_t dataset, uint64_t index) const {
  EVENKEEL_ASSIGN_OR_RETURN(Row row, Find(dataset, index));
  const Shard& shard = datasets_[dataset].shards[row.shard];
  EVENKEEL_ASSIGN_OR_RETURN(LengthsReader lengths, Lengths(shard));
  EVENKEEL_ASSIGN_OR_RETURN(PlacesReader places, Places(shard));
  EVENKEEL_ASSIGN_OR_RETURN(FactsReader facts, Facts(shard));
  EVENKEEL_ASSIGN_OR_RETURN(uint64_t place, lengths.PlaceOf(row.row));
  EVENKEEL_ASSIGN_OR_RETURN(PlaceRecord record, places.Read(place));
  SamplePlaces out;
  out.dataset = dataset;
  out.key = std::move(record.key);
  out.shard_path = shard.path;
  out.text_form = record.text_form;
  out.text_offset = record.text_offset;
  out.text_size = record.text_size;
  out.text_checksum = record.text_checksum;
  out.items = std::move(record.items);
  for (size_t i = 0; i < out.items.size(); ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(std::optional<MediaFacts> item, facts.Read(record.first_item + i));
    if (!item)
      return absl::DataLossError(absl::StrCat(folder_, ": a usable sample without facts; remove the index"));
    out.items[i].facts = *item;
  }
  CountPicturesOfSample(out.text_form, out.items);
  const DatasetSpec& spec = datasets_[dataset].spec;
  if (MediaAreFiles(spec)) LocateFiles(MediaFolder(spec, shard.path), out.items);
  out.fields = &spec.fields;
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Index>> Index::Open(const Job& job, const Digest& processor,
                                                   ByteSource& source, size_t cache_bytes) {
  auto index = std::make_unique<StoredIndex>(job, cache_bytes);
  EVENKEEL_RETURN_IF_ERROR(index->Load(job, processor, source));
  return std::unique_ptr<Index>(std::move(index));
}

ByteRange RangeOf(const std::string& shard_path, const ItemPlace& item) {
  return {.path = item.file.empty() ? ContentOf(shard_path) : item.file,
          .offset = item.offset,
          .size = item.size};
}

ByteRange RangeOfText(const SamplePlaces& places) {
  return {.path = ContentOf(places.shard_path), .offset = places.text_offset, .size = places.text_size};
}

absl::Status ReadItem(const std::string& shard_path, const ItemPlace& item, ByteSource& source,
                      std::span<std::byte> out) {
  const bool is_in_shard = item.file.empty();
  return ReadIndexed(is_in_shard ? shard_path : item.file, is_in_shard, item.offset, item.checksum, source,
                     out);
}

struct ConversationReader::Kept {
  std::string text;
  TextParser parser;
};

ConversationReader::ConversationReader() : kept_(std::make_unique<Kept>()) {}
ConversationReader::~ConversationReader() = default;

absl::StatusOr<const Conversation*> ConversationReader::Read(const SamplePlaces& places, const Limits& limits,
                                                             ByteSource& source) {
  const auto where = [&places] {
    return absl::StrCat(places.shard_path, ": sample '", Printable(places.key), "'");
  };
  if (places.text_size > limits.max_text_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        where(), ": ", places.text_size, " bytes of text; limits.max_text_bytes is ", limits.max_text_bytes));
  }
  std::string& text = Emptied(kept_->text);
  text.resize(places.text_size);
  EVENKEEL_RETURN_IF_ERROR(ReadIndexed(places.shard_path, /*is_shard=*/true, places.text_offset,
                                       places.text_checksum, source,
                                       std::as_writable_bytes(std::span(text))));
  absl::StatusOr<const Conversation*> conversation = kept_->parser.ParseRecorded(places, text, limits);
  if (!conversation.ok()) return AddContext(conversation.status(), where());
  return conversation;
}

absl::StatusOr<std::string_view> ConversationReader::Columns(const Job& job, std::string_view key) {
  return kept_->parser.Columns(job, key);
}

std::string SampleName(const Job& job, const SamplePlaces& places) {
  return absl::StrCat(places.dataset < job.datasets.size() ? job.datasets[places.dataset].name : "?", "/",
                      std::string(FileName(places.shard_path)), "/", places.key);
}

std::string SampleName(const Job& job, const Index& index, const SampleRef& ref) {
  const absl::StatusOr<SamplePlaces> places = index.places(ref.dataset, ref.index);
  if (places.ok()) return SampleName(job, *places);
  return absl::StrCat(job.datasets[ref.dataset].name, ", sample ", ref.index);
}

}  // namespace evenkeel::dataset
