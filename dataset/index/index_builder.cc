// Lists the shards of a job, finds those that the previous index already has, and commits the new catalogue.
#include "dataset/index/index_builder.h"

#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "core/digest.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "dataset/format/media_file.h"
#include "dataset/index/index_folder.h"
#include "dataset/index/shard_builder.h"

namespace evenkeel::dataset {

namespace {

constexpr size_t kCacheBytes = 8 << 20;  // rows are read in order, so few pages suffice
constexpr absl::Duration kSaveEvery = absl::Seconds(30);

enum class Work : uint8_t { kNothing, kRemeasure, kRead };

struct Shard {
  const DatasetSpec* dataset = nullptr;
  std::string path;
  ShardEntry entry;
  std::optional<ShardEntry> before;  // the entry of a shard with this name and size
  Work done = Work::kNothing;
  bool built = false;  // then no thread changes the entry any more
};

}  // namespace

struct IndexBuilder::State {
  State(const Job& job, const Measurer& measurer, ByteSource& source, IndexOptions options)
      : job(job), measurer(measurer), source(source), options(options) {}

  absl::Status Build(Shard& shard);
  // The name of the job's notes of progress: of the shards' places, which other jobs in the folder do not have.
  std::string ProgressName() const;
  absl::Status Save() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Finished(size_t shard);
  absl::Status CheckBuilt() const;
  // The new catalogue, with this job's datasets as they were built.
  Catalogue Next() const;
  const Shard& at(size_t dataset, size_t i) const { return shards[first_shard[dataset] + i]; }

  const Job& job;
  const Measurer& measurer;
  ByteSource& source;
  const IndexOptions options;
  std::unique_ptr<ByteSource> files = MakeFileSource();
  PageCache cache{kCacheBytes};
  ShardBuilder builder{job, job.index, measurer, source, *files, cache};

  Catalogue catalogue;               // the previous one, then the committed one
  std::string catalogue_text;        // the text of the catalogue file; empty: there is none
  std::vector<Shard> shards;         // of all datasets, in order; BuildShard(i) alone writes element i
  std::vector<size_t> mine;          // of them, those of the part
  std::vector<size_t> first_shard;   // of each dataset
  std::vector<Digest> lengths_keys;  // of each dataset

  Mutex mutex;  // of Shard::built, while shards are being built
  absl::Time saved ABSL_GUARDED_BY(mutex) = SteadyNow();
};

IndexBuilder::IndexBuilder(const Job& job, const Measurer& measurer, ByteSource& source, IndexOptions options)
    : state_(std::make_unique<State>(job, measurer, source, options)) {}
IndexBuilder::~IndexBuilder() = default;

absl::Status IndexBuilder::Prepare() {
  State& state = *state_;
  absl::StatusOr<Catalogue> there = LoadCatalogue(state.job.index, *state.files);
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  state.catalogue_text = there.ok() ? WriteCatalogue(*there) : "";
  state.catalogue = there.ok() ? *std::move(there) : Catalogue();
  const std::vector<Catalogue> progress = LoadProgress(state.job.index, state.ProgressName(), *state.files);
  // Found by name and size in any dataset, so that a job may reorder its shards without reading them again.
  std::multimap<std::pair<std::string, uint64_t>, const ShardEntry*> known;
  const auto know = [&](const Catalogue& catalogue) {
    for (const auto& [dataset, shards] : catalogue) {
      for (const ShardEntry& shard : shards) known.insert({{shard.name, shard.size}, &shard});
    }
  };
  know(state.catalogue);
  for (const Catalogue& catalogue : progress) know(catalogue);
  state.shards.clear();
  state.mine.clear();
  state.first_shard.clear();
  state.lengths_keys.clear();
  for (const DatasetSpec& dataset : state.job.datasets) {
    state.first_shard.push_back(state.shards.size());
    state.lengths_keys.push_back(LengthsKey(state.job, dataset, state.measurer.digest()));
    const Digest facts_key = FactsKey(state.job, dataset);
    for (const std::string& path : dataset.shards) {
      Shard shard;
      shard.dataset = &dataset;
      shard.path = path;
      shard.entry.name = std::string(FileName(path));
      if (state.shards.size() % state.options.part.count != state.options.part.number) {
        state.shards.push_back(std::move(shard));
        continue;
      }
      state.mine.push_back(state.shards.size());
      EVENKEEL_ASSIGN_OR_RETURN(shard.entry.size, state.source.Size(path));
      EVENKEEL_ASSIGN_OR_RETURN(shard.entry.stamp, state.source.Stamp(path));
      auto [begin, end] = known.equal_range({shard.entry.name, shard.entry.size});
      for (auto it = begin; it != end; ++it) {
        // Of several, one that was read alike; then one of the same file.
        const bool is_alike = it->second->facts_key == facts_key;
        const bool was_alike = shard.before && shard.before->facts_key == facts_key;
        const bool is_better =
            is_alike == was_alike ? FileStamp(it->second->stamp) == shard.entry.stamp : is_alike;
        if (!shard.before || is_better) shard.before = *it->second;
      }
      state.shards.push_back(std::move(shard));
    }
  }
  return absl::OkStatus();
}

size_t IndexBuilder::num_shards() const { return state_->mine.size(); }
const std::string& IndexBuilder::shard_path(size_t i) const { return state_->shards[state_->mine[i]].path; }

absl::Status IndexBuilder::State::Build(Shard& shard) {
  const DatasetSpec& dataset = *shard.dataset;
  ShardEntry& entry = shard.entry;
  const std::string file_stamp = entry.stamp;
  const bool has_other_files = HasOtherFiles(dataset);
  const bool alike = shard.before && shard.before->facts_key == FactsKey(job, dataset) &&
                     builder.HasFiles(dataset, *shard.before, /*with_lengths=*/false);
  std::string media;  // the stamp of the other files
  if (has_other_files && alike && !options.verify_content) {
    EVENKEEL_ASSIGN_OR_RETURN(media, builder.MediaStamp(dataset, shard.path, *shard.before));
  }
  if (has_other_files)
    entry.stamp = media.empty() ? "" : absl::StrCat(file_stamp, std::string(kMediaMark), media);
  bool trusted =
      shard.before && !options.verify_content && !entry.stamp.empty() && shard.before->stamp == entry.stamp;
  if (trusted) {
    entry.content = shard.before->content;
  } else if (shard.before && !has_other_files) {
    EVENKEEL_ASSIGN_OR_RETURN(entry.content, builder.HashShard(shard.path, entry.size));
  }
  bool same = alike && (trusted || !has_other_files) && shard.before->content == entry.content;
  if (same) {
    std::string stamp = std::move(entry.stamp);
    entry = *shard.before;
    entry.stamp = std::move(stamp);
  }
  if (same && builder.HasFiles(dataset, entry, /*with_lengths=*/true)) {
    shard.done = Work::kNothing;
  } else if (same) {
    shard.done = Work::kRemeasure;
    EVENKEEL_RETURN_IF_ERROR(builder.Remeasure(dataset, shard.path, entry));
  } else {
    shard.done = Work::kRead;
    EVENKEEL_RETURN_IF_ERROR(builder.Read(dataset, shard.path, entry, &media));
    entry.stamp = has_other_files ? absl::StrCat(file_stamp, std::string(kMediaMark), media) : file_stamp;
  }
  // A shard that is written while it is read would get columns of two different contents.
  EVENKEEL_ASSIGN_OR_RETURN(uint64_t size, source.Size(shard.path));
  EVENKEEL_ASSIGN_OR_RETURN(std::string stamp, source.Stamp(shard.path));
  if (size != entry.size || stamp != file_stamp) {
    return absl::UnavailableError(absl::StrCat(shard.path, ": the shard changed while it was read"));
  }
  if (has_other_files && shard.done == Work::kRead) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string after, builder.MediaStamp(dataset, shard.path, entry));
    // Empty: media are missing, which the next run looks for again.
    if (!after.empty() && after != media) {
      return absl::UnavailableError(
          absl::StrCat(shard.path, ": another of its files changed while it was read"));
    }
  }
  return absl::OkStatus();
}

absl::Status IndexBuilder::BuildShard(size_t i) {
  const size_t shard = state_->mine[i];
  EVENKEEL_RETURN_IF_ERROR(state_->Build(state_->shards[shard]));
  state_->Finished(shard);
  return absl::OkStatus();
}

void IndexBuilder::State::Finished(size_t shard) {
  MutexLock lock(mutex);
  shards[shard].built = true;
  if (SteadyNow() - saved < kSaveEvery) return;
  (void)Save();  // a folder that cannot be written is an error of the columns, and of Commit
}

absl::Status IndexBuilder::SaveProgress() {
  MutexLock lock(state_->mutex);
  return state_->Save();
}

std::string IndexBuilder::State::ProgressName() const {
  CanonicalText text("evenkeel index progress 1");
  for (const DatasetSpec& dataset : job.datasets) {
    text.Add("dataset", std::string_view(dataset.name));
    for (const std::string& path : dataset.shards) text.Add("shard", std::string_view(path));
  }
  return text.digest().Hex();
}

absl::Status IndexBuilder::State::Save() {
  saved = SteadyNow();
  Catalogue notes;
  for (const size_t i : mine) {
    if (shards[i].built) notes[shards[i].dataset->name].push_back(shards[i].entry);
  }
  const std::string name = absl::StrCat(ProgressName(), "-", options.part.number, "-of-", options.part.count);
  return WriteFileAtomically(ProgressPath(job.index, name), WriteCatalogue(notes));
}

uint64_t IndexSummary::num_excluded() const {
  uint64_t total = 0;
  for (const auto& [reason, count] : excluded) total += count;
  return total - damaged_shards;
}

absl::Status IndexBuilder::State::CheckBuilt() const {
  for (const size_t i : mine) {
    if (!shards[i].built)
      return absl::FailedPreconditionError(absl::StrCat(shards[i].path, ": the shard was not built"));
  }
  return absl::OkStatus();
}

absl::StatusOr<IndexSummary> IndexBuilder::Summarise() const {
  const State& state = *state_;
  EVENKEEL_RETURN_IF_ERROR(state.CheckBuilt());
  IndexSummary summary;
  for (const size_t i : state.mine) {
    const Shard& shard = state.shards[i];
    const size_t dataset = static_cast<size_t>(shard.dataset - state.job.datasets.data());
    const LengthsTotals& totals = shard.entry.FindLengths(state.lengths_keys[dataset])->totals;
    summary.num_samples += totals.rows;
    summary.num_items += totals.items;
    summary.llm_tokens += totals.llm_tokens;
    summary.loss_tokens += totals.loss_tokens;
    summary.damaged_shards += shard.entry.damaged;
    summary.shards_read += shard.done == Work::kRead;
    summary.shards_remeasured += shard.done == Work::kRemeasure;
    summary.shards_unchanged += shard.done == Work::kNothing;
  }
  EVENKEEL_RETURN_IF_ERROR(
      ForEachExclusion([&](const Exclusion& exclusion) { ++summary.excluded[exclusion.reason]; }));
  if (state.options.part.count > 1) return summary;
  const Catalogue next = state.Next();
  std::vector<const std::vector<ShardEntry>*> datasets;
  for (const DatasetSpec& dataset : state.job.datasets) datasets.push_back(&next.at(dataset.name));
  summary.digest = IndexDigest(state.job, datasets, state.measurer.digest());
  return summary;
}

Catalogue IndexBuilder::State::Next() const {
  // Datasets of other jobs in this folder are kept.
  Catalogue next = catalogue;
  for (size_t d = 0; d < job.datasets.size(); ++d) {
    std::vector<ShardEntry>& entries = next[job.datasets[d].name];
    entries.clear();
    for (size_t i = 0; i < job.datasets[d].shards.size(); ++i) entries.push_back(at(d, i).entry);
  }
  return next;
}

absl::Status IndexBuilder::Commit() {
  State& state = *state_;
  EVENKEEL_RETURN_IF_ERROR(state.CheckBuilt());
  if (state.options.part.count > 1) return SaveProgress();
  Catalogue next = state.Next();
  const std::string text = WriteCatalogue(next);
  if (text != state.catalogue_text) {
    EVENKEEL_RETURN_IF_ERROR(WriteFileAtomically(CurrentPath(state.job.index), text));
    state.catalogue_text = text;
  }
  state.catalogue = std::move(next);
  RemoveProgress(state.job.index, state.ProgressName());
  return absl::OkStatus();
}

absl::Status IndexBuilder::ForEachExclusion(absl::FunctionRef<void(const Exclusion&)> visit) const {
  const State& state = *state_;
  auto path = [&](FileKind kind, const Digest& file) { return ColumnPath(state.job.index, kind, file); };
  for (size_t d = 0; d < state.job.datasets.size(); ++d) {
    for (size_t i = 0; i < state.job.datasets[d].shards.size(); ++i) {
      const Shard& shard = state.at(d, i);
      if (!shard.built) continue;
      auto pass = [&](const ExclusionRecord& record) {
        visit({state.job.datasets[d].name, shard.entry.name, record.key, record.reason, record.detail});
      };
      PageCache& cache = state_->cache;
      EVENKEEL_ASSIGN_OR_RETURN(
          PlacesReader places,
          PlacesReader::Open(*state.files, cache, path(FileKind::kPlaces, shard.entry.places_file)));
      EVENKEEL_RETURN_IF_ERROR(places.ForEachExclusion(pass));
      EVENKEEL_ASSIGN_OR_RETURN(
          FactsReader facts,
          FactsReader::Open(*state.files, cache, path(FileKind::kFacts, shard.entry.facts_file)));
      EVENKEEL_RETURN_IF_ERROR(facts.ForEachExclusion(pass));
      const Digest& file = shard.entry.FindLengths(state.lengths_keys[d])->file;
      EVENKEEL_ASSIGN_OR_RETURN(LengthsReader lengths,
                                LengthsReader::Open(*state.files, cache, path(FileKind::kLengths, file)));
      EVENKEEL_RETURN_IF_ERROR(lengths.ForEachExclusion(pass));
    }
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::dataset
