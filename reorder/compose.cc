// Checks rearrangements, and composes them by one merge over their sorted runs.
#include "reorder/compose.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::reorder {
namespace {

void SortBySource(std::vector<RowRun>& runs) {
  std::sort(runs.begin(), runs.end(), [](const RowRun& a, const RowRun& b) {
    return std::tie(a.from, a.from_row) < std::tie(b.from, b.from_row);
  });
}

void SortByTarget(std::vector<RowRun>& runs) {
  std::sort(runs.begin(), runs.end(), [](const RowRun& a, const RowRun& b) {
    return std::tie(a.to, a.to_row) < std::tie(b.to, b.to_row);
  });
}

std::vector<RowRun> WithoutEmpty(std::vector<RowRun> runs) {
  std::erase_if(runs, [](const RowRun& run) { return run.rows == 0; });
  return runs;
}

// Sorted by source; runs that follow each other on both sides become one.
Rearrangement Canonical(uint32_t num_ranks, std::vector<RowRun> runs) {
  SortBySource(runs);
  Rearrangement canonical{.num_ranks = num_ranks};
  for (const RowRun& run : runs) {
    if (!canonical.runs.empty()) {
      RowRun& last = canonical.runs.back();
      if (last.from == run.from && last.to == run.to && last.from_row + last.rows == run.from_row &&
          last.to_row + last.rows == run.to_row) {
        last.rows += run.rows;
        continue;
      }
    }
    canonical.runs.push_back(run);
  }
  return canonical;
}

absl::Status Twice(const char* side, uint32_t rank, uint64_t row) {
  return absl::InvalidArgumentError(
      absl::StrCat("rearrangement: row ", row, " of rank ", rank, " is ", side, " of two runs"));
}

}  // namespace

absl::Status CheckRearrangement(const Rearrangement& rearrangement) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  for (size_t i = 0; i < rearrangement.runs.size(); ++i) {
    const RowRun& run = rearrangement.runs[i];
    if (run.from >= rearrangement.num_ranks || run.to >= rearrangement.num_ranks) {
      return absl::InvalidArgumentError(absl::StrCat("rearrangement: run ", i, " leads from rank ", run.from,
                                                     " to rank ", run.to, ", but there are only ",
                                                     rearrangement.num_ranks));
    }
    if (run.from_row > kMost || run.to_row > kMost || run.rows > kMost) {
      return absl::InvalidArgumentError(absl::StrCat("rearrangement: run ", i, " has rows beyond 2^62"));
    }
  }
  std::vector<RowRun> runs = WithoutEmpty(rearrangement.runs);
  SortBySource(runs);
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].from == runs[i - 1].from && runs[i].from_row < runs[i - 1].from_row + runs[i - 1].rows) {
      return Twice("the source", runs[i].from, runs[i].from_row);
    }
  }
  SortByTarget(runs);
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].to == runs[i - 1].to && runs[i].to_row < runs[i - 1].to_row + runs[i - 1].rows) {
      return Twice("the target", runs[i].to, runs[i].to_row);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Rearrangement> Inverse(const Rearrangement& rearrangement) {
  EVENKEEL_RETURN_IF_ERROR(CheckRearrangement(rearrangement));
  std::vector<RowRun> runs = WithoutEmpty(rearrangement.runs);
  for (RowRun& run : runs) {
    std::swap(run.from, run.to);
    std::swap(run.from_row, run.to_row);
  }
  return Canonical(rearrangement.num_ranks, std::move(runs));
}

absl::StatusOr<Rearrangement> Compose(const Rearrangement& first, const Rearrangement& second) {
  EVENKEEL_RETURN_IF_ERROR(CheckRearrangement(first));
  EVENKEEL_RETURN_IF_ERROR(CheckRearrangement(second));
  if (first.num_ranks != second.num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rearrangements of ", first.num_ranks, " and of ",
                                                   second.num_ranks, " ranks cannot be composed"));
  }
  // Both in the order of the place between them: their overlaps are found in one sweep.
  std::vector<RowRun> in = WithoutEmpty(first.runs), out = WithoutEmpty(second.runs);
  SortByTarget(in);
  SortBySource(out);
  std::vector<RowRun> runs;
  for (size_t i = 0, o = 0; i < in.size() && o < out.size();) {
    const RowRun &a = in[i], &b = out[o];
    if (a.to != b.from) {
      ++(a.to < b.from ? i : o);
      continue;
    }
    const uint64_t a_end = a.to_row + a.rows, b_end = b.from_row + b.rows;
    const uint64_t begin = std::max(a.to_row, b.from_row), end = std::min(a_end, b_end);
    if (begin < end) {
      runs.push_back(
          {a.from, a.from_row + (begin - a.to_row), b.to, b.to_row + (begin - b.from_row), end - begin});
    }
    ++(a_end <= b_end ? i : o);
  }
  return Canonical(first.num_ranks, std::move(runs));
}

}  // namespace evenkeel::reorder
