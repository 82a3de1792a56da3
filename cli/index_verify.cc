// Decodes and tokenizes all samples of an index in parallel, in runs of samples, and compares them with their
// lengths.
#include "cli/index_verify.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/progress.h"
#include "cli/sample_work.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "core/status.h"
#include "dataset/index/index.h"

namespace evenkeel::cli {
namespace {

constexpr uint64_t kPieceSamples = 64;

bool OfTheItem(const absl::Status& status) {
  if (KnownKind(status) == FailureKind::kMachine) return false;
  return absl::IsInvalidArgument(status) || absl::IsDataLoss(status) || absl::IsResourceExhausted(status) ||
         absl::IsUnimplemented(status);
}

class Verifier {
 public:
  Verifier(const Job& job, const preprocess::Processor& processor, dataset::ByteSource& source,
           const dataset::Index& index)
      : job_(job), processor_(processor), source_(source), index_(index) {}

  absl::Status Check(uint32_t dataset, uint64_t sample) {
    EVENKEEL_ASSIGN_OR_RETURN(dataset::SamplePlaces places, index_.places(dataset, sample));
    EVENKEEL_ASSIGN_OR_RETURN(SampleLengths lengths, index_.lengths(dataset, sample));
    SampleWork work(job_.limits, processor_, source_);
    absl::Status status =
        ForEachItem(places, lengths, [&](const dataset::ItemPlace& place, const SampleItem& item) {
          return work.Produce(places.shard_path, place, item);
        });
    if (status.ok()) status = CheckSequence(work, places, lengths);
    std::string name = dataset::SampleName(job_, places);
    if (status.ok()) return status;
    if (!OfTheItem(status)) return AddContext(status, name);
    MutexLock lock(mutex_);
    bad_[{dataset, sample}] = {std::move(name), std::string(status.message())};
    return absl::OkStatus();
  }

  std::vector<BadSample> bad() {
    MutexLock lock(mutex_);
    std::vector<BadSample> out;
    for (const auto& [position, sample] : bad_) out.push_back(sample);
    return out;
  }

 private:
  static absl::Status CheckSequence(SampleWork& work, const dataset::SamplePlaces& places,
                                    const SampleLengths& lengths) {
    EVENKEEL_ASSIGN_OR_RETURN(const preprocess::Sequence* sequence, work.BuildSequence(places, lengths));
    if (sequence->input_ids.size() == lengths.llm_length) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the sequence has ", sequence->input_ids.size(),
                                            " tokens; the index has ", lengths.llm_length));
  }

  const Job& job_;
  const preprocess::Processor& processor_;
  dataset::ByteSource& source_;
  const dataset::Index& index_;
  Mutex mutex_;
  std::map<std::pair<uint32_t, uint64_t>, BadSample> bad_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::vector<BadSample>> VerifyIndex(const Job& job, const preprocess::Processor& processor,
                                                   dataset::ByteSource& source, size_t threads,
                                                   const dataset::IndexPart& part) {
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<dataset::Index> index,
                            dataset::Index::Open(job, processor.digest(), source));
  Verifier verifier(job, processor, source, *index);
  std::vector<uint64_t> first_piece = {0};  // first piece of each dataset, and the end
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    first_piece.push_back(first_piece.back() + (index->num_samples(d) + kPieceSamples - 1) / kPieceSamples);
  }
  auto work = [&](size_t number) {
    const size_t piece = number * part.count + part.number;
    auto after = std::upper_bound(first_piece.begin(), first_piece.end(), piece);
    uint32_t dataset = static_cast<uint32_t>(after - first_piece.begin()) - 1;
    uint64_t begin = (piece - first_piece[dataset]) * kPieceSamples;
    uint64_t end = std::min(begin + kPieceSamples, index->num_samples(dataset));
    for (uint64_t sample = begin; sample < end; ++sample) {
      EVENKEEL_RETURN_IF_ERROR(verifier.Check(dataset, sample));
    }
    return absl::OkStatus();
  };
  const size_t pieces = (first_piece.back() + part.count - 1 - part.number) / part.count;
  EVENKEEL_RETURN_IF_ERROR(RunInParallel(pieces, threads, "runs of samples verified", work));
  return verifier.bad();
}

}  // namespace evenkeel::cli
