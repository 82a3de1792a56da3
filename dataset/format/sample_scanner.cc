// Chooses the scanner of a format.
#include "dataset/format/sample_scanner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "dataset/format/line_scanner.h"
#include "dataset/format/mds.h"
#include "dataset/format/megatron.h"
#include "dataset/format/shard_scanner.h"
#include "dataset/format/table.h"

namespace evenkeel::dataset {

ScannedSample SampleScanner::DamageOf(const absl::Status& status, std::string key) const {
  ScannedSample damage;
  damage.key = std::move(key);
  damage.reason = kShardDamaged;
  // Without the path, which is no part of the index.
  std::string_view detail(status.message().data(), status.message().size());
  if (detail.starts_with(path_ + ": ")) detail.remove_prefix(path_.size() + 2);
  damage.detail = std::string(detail);
  return damage;
}

absl::StatusOr<std::optional<ScannedSample>> RowScanner::Next() {
  if (damaged_) return std::optional<ScannedSample>();
  absl::StatusOr<std::optional<ScannedSample>> sample = Read();
  if (!absl::IsDataLoss(sample.status()) || KnownKind(sample.status()) == FailureKind::kMachine)
    return sample;
  damaged_ = true;
  return std::optional<ScannedSample>(DamageOf(sample.status(), is_open() ? absl::StrCat(row_) : ""));
}

std::unique_ptr<SampleScanner> MakeScanner(const DatasetSpec& dataset, ByteSource& source,
                                           const std::string& path, uint64_t size, const Limits& limits) {
  switch (dataset.format) {
    case DataFormat::kJson:
      return MakeJsonScanner(source, path, size);
    case DataFormat::kText:
      return MakeTextScanner(source, path, size);
    case DataFormat::kParquet:
      return MakeTableScanner(source, path, size, limits);
    case DataFormat::kMds:
      return MakeMdsScanner(dataset, source, path, size, limits);
    case DataFormat::kMegatron:
      return MakeMegatronScanner(source, source, path, size);
    case DataFormat::kWebDataset:
      break;
  }
  return std::make_unique<ShardScanner>(source, path, size, limits);
}

}  // namespace evenkeel::dataset
