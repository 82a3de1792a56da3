// Chooses the scanner of a format.
#include "dataset/format/sample_scanner.h"

#include "dataset/format/line_scanner.h"
#include "dataset/format/mds.h"
#include "dataset/format/shard_scanner.h"
#include "dataset/format/table.h"

namespace evenkeel::dataset {

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
    case DataFormat::kWebDataset:
      break;
  }
  return std::make_unique<ShardScanner>(source, path, size, limits);
}

}  // namespace evenkeel::dataset
