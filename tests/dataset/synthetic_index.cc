#include "tests/dataset/synthetic_index.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "dataset/index/index_folder.h"
#include "dataset/order/permutation.h"

namespace evenkeel::dataset {

SampleLengths SyntheticLengths(uint64_t row) {
  uint64_t mixed = MixKey({row});
  SampleLengths out;
  uint32_t patches = 4 * static_cast<uint32_t>(64 + mixed % 1000);
  out.items = {{Medium::kImage, {patches, patches, patches / 4}}};
  out.llm_length = patches / 4 + static_cast<uint32_t>((mixed >> 32) % 700);
  out.loss_tokens = static_cast<uint32_t>((mixed >> 48) % 300);
  return out;
}

absl::StatusOr<Job> WriteSyntheticIndex(const std::string& folder, uint64_t num_shards, uint64_t rows,
                                        const Digest& processor) {
  Job job;
  job.path = "job.yaml";
  job.index = folder;
  job.datasets = {{.name = "synthetic"}};
  auto files = MakeFileSource();
  Catalogue catalogue;
  for (uint64_t s = 0; s < num_shards; ++s) {
    LengthsWriter writer;
    for (uint64_t row = 0; row < rows; ++row) {
      EVENKEEL_RETURN_IF_ERROR(writer.Add(row, SyntheticLengths(s * rows + row)));
    }
    ShardEntry shard;
    shard.name = absl::StrFormat("%06d.tar", s);
    shard.size = kSyntheticShardBytes;
    shard.content = DigestOf(shard.name);
    shard.facts_key = FactsKey(job, job.datasets[0]);
    LengthsEntry lengths;
    lengths.key = LengthsKey(job, job.datasets[0], processor);
    std::string bytes = writer.Finish(lengths.key, &lengths.totals);
    EVENKEEL_ASSIGN_OR_RETURN(lengths.file, StoreColumn(folder, FileKind::kLengths, bytes, *files));
    shard.lengths.push_back(lengths);
    job.datasets[0].shards.push_back("shards/" + shard.name);
    catalogue["synthetic"].push_back(std::move(shard));
  }
  EVENKEEL_RETURN_IF_ERROR(WriteFileAtomically(CurrentPath(folder), WriteCatalogue(catalogue)));
  return job;
}

}  // namespace evenkeel::dataset
