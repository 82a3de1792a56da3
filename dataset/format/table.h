// Rows of a Parquet file, and the addresses by which the index finds their texts and media.
//
// A value of a compressed column has no place in the file that could be read by itself, so the places of rows hold
// addresses instead: row, column of media, element of a list. MakeTableSource gives a ByteSource that reads them like
// offsets.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<TableReader> table, TableReader::Open(source, path, size));
//     for (uint64_t row = 0; row < table->num_rows(); ++row) {
//       EVENKEEL_RETURN_IF_ERROR(table->Text(row).status());   // {"image": "image.0.jpg", ...}
//       EVENKEEL_RETURN_IF_ERROR(table->Media(row).status());  // image.0.jpg: its address and size
//     }
//
// Thread safety: a reader belongs to one thread; the source may be used from many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "dataset/format/sample_scanner.h"
#include "dataset/source/byte_source.h"
#include "dataset/source/disk_cache.h"
#include "dataset/source/fetch_ahead.h"
#include "dataset/source/unpacking_source.h"

namespace evenkeel::dataset {

// The top bit of an offset, and not the next one, which MDS has (dataset/format/mds.h): the rest is a row (38 bits), a
// column of media from 1 or 0 for the text (8), an element (16).
inline constexpr uint64_t kTableAddress = 1ull << 63;
inline bool IsTableAddress(uint64_t offset) { return offset >> 62 == 2; }

uint64_t TextAddress(uint64_t row);

struct TableMedium {
  std::string name;  // as the row's text has it
  uint64_t address = 0;
  uint64_t size = 0;  // bytes
};

class TableReader {
 public:
  // Reads the footer. `source` must outlive the reader. DataLoss: not a Parquet file, or a damaged one; otherwise the
  // errors of the source. The same holds for all members.
  static absl::StatusOr<std::unique_ptr<TableReader>> Open(ByteSource& source, const std::string& path,
                                                           uint64_t size);
  ~TableReader();

  uint64_t num_rows() const;
  // First row and end of the row group of an address, whose values are cheap after the first; none: no such row.
  std::pair<uint64_t, uint64_t> GroupOf(uint64_t address) const;
  // About the memory that is kept for further rows.
  uint64_t kept_bytes() const;
  // The row as a JSON object, in which media are names. Valid until the next call.
  absl::StatusOr<std::string_view> Text(uint64_t row);
  // The media that the row itself has.
  absl::StatusOr<std::vector<TableMedium>> Media(uint64_t row);
  // The first out.size() bytes of the value at an address. OutOfRange: it is shorter.
  absl::Status ReadAt(uint64_t address, std::span<std::byte> out);

 private:
  struct State;
  explicit TableReader(std::unique_ptr<State> state);
  absl::Status StatusOf(int32_t code) const;

  const std::unique_ptr<State> state_;
};

// Samples of a table: the key is the number of the row, from 0.
std::unique_ptr<SampleScanner> MakeTableScanner(ByteSource& source, const std::string& path, uint64_t size,
                                                const Limits& limits);

// `files`, and in addition values of tables by their addresses. Tables stay open with the row group that was read last,
// a number of them within about `max_bytes`; threads that read rows of one group take turns.
std::unique_ptr<ByteSource> MakeTableSource(std::unique_ptr<ByteSource> files,
                                            uint64_t max_bytes = 512 << 20);

// How objects of stores are read: by default when they are needed, without a cache.
struct FarReading {
  FetchAheadOptions ahead = {.budget_bytes = 0};
  std::unique_ptr<DiskCache> cache;
  UnpackOptions unpack;  // of compressed shards, wherever they are
};

// What a job's shards are read through: files, stores as `stores` has it, tables, MDS shards, compressed shards and members in both.
std::unique_ptr<ByteSource> MakeShardSource(std::vector<StoreSpec> stores, FarReading reading = {});

}  // namespace evenkeel::dataset
