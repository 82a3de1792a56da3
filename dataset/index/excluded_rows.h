// The rows of a dataset that the job excludes, and the numbering of the remaining ones.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <vector>

namespace evenkeel::dataset {

class ExcludedRows {
 public:
  ExcludedRows() = default;
  // Rows in any order; repetitions are allowed.
  explicit ExcludedRows(std::vector<uint64_t> rows);

  uint64_t size() const { return rows_.size(); }
  // The row with number `index` among the remaining ones.
  uint64_t RowOf(uint64_t index) const;

 private:
  std::vector<uint64_t> rows_;  // ascending, distinct
};

}  // namespace evenkeel::dataset
