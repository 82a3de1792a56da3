// Which rows of a dataset's index meet the conditions of the job and are in its split. Every row is looked at once, when
// the index is opened (docs/datasets.md has what that costs).
//
// Thread safety: none; one thread adds the shards in their order.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/job.h"
#include "dataset/index/columns.h"
#include "dataset/index/index.h"

namespace evenkeel::dataset {

class RowSelection {
 public:
  // `job` and `dataset` must outlive the selection; `rows` of the dataset's index.
  RowSelection(const Job& job, const DatasetSpec& dataset, uint64_t rows);

  // Whether nothing is left out, so that no shard needs to be added.
  bool is_all() const { return where_.empty() && split_.is_all(); }
  // DataLoss: the columns of the shard do not fit each other.
  absl::Status AddShard(std::string_view shard_file, const LengthsReader& lengths, const PlacesReader& places,
                        const FactsReader& facts);
  void Exclude(const std::vector<uint64_t>& rows);

  const LeftOut& left_out() const { return left_out_; }
  // A bit for each row: see RemainingRows::Of.
  std::vector<uint64_t> bits() && { return std::move(bits_); }

 private:
  const std::vector<Condition>& where_;
  const HashRange split_;
  const uint64_t split_seed_;
  const bool needs_items_;
  uint64_t row_ = 0;  // the next one
  std::vector<uint64_t> bits_;
  LeftOut left_out_;
};

}  // namespace evenkeel::dataset
