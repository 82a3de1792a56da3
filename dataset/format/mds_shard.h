// The layout of a shard of MosaicML Streaming (MDS), and a sample of one as a row.
//
//   u32 n, u32 offsets[n + 1] from the start of the file, the columns as JSON, samples        (little-endian)
//   a sample: u32 sizes of the columns of variable size, then the bytes of all columns
//
// A row is a JSON object with the columns in their order: texts, numbers and JSON as values, media by a name that
// RowOf makes, null for columns that cannot be read. Media are ranges of the shard. All input is untrusted.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(const MdsHeader header, ReadMdsHeader(source, path, size));
//     EVENKEEL_ASSIGN_OR_RETURN(const MdsRow row, RowOf(header.columns, {source, path, begin}, max_text_bytes, /*max_media=*/8));
//
// Thread safety: functions without state; plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataset/format/json.h"
#include "dataset/format/sample_parser.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

struct MdsColumn {
  enum class Form : uint8_t {
    kText,
    kJson,
    kWrittenNumber,  // digits as text
    kInteger,
    kUnsigned,
    kFloat,
    kMedium,
    kMedia,        // u32 count, u32 sizes, bytes
    kListOfMedia,  // the same after four bytes without a meaning
    kUnread,
  };

  std::string name;
  std::string encoding;  // as in the shard
  Form form = Form::kUnread;
  std::string suffix;      // of media, with its dot; empty: found by their bytes
  uint32_t num_bytes = 0;  // 0: variable
};

struct MdsHeader {
  uint32_t num_samples = 0;
  uint64_t samples_begin = 0;  // byte of the first sample
  std::vector<MdsColumn> columns;
};

// The columns of a shard's or index's JSON object. InvalidArgument: not columns of version 2.
absl::StatusOr<std::vector<MdsColumn>> MdsColumnsOf(const JsonValue& shard);

// `size`: of the shard; nullopt where it is known to be right. DataLoss: not an MDS shard, or a damaged one; otherwise the
// errors of the source.
absl::StatusOr<MdsHeader> ReadMdsHeader(ByteSource& source, const std::string& path,
                                        std::optional<uint64_t> size);

// The bytes of a sample, from which `ahead_bytes` are read at once.
struct MdsPlace {
  ByteSource& source;
  const std::string& path;
  uint64_t begin = 0;
  uint64_t ahead_bytes = 0;
  std::optional<uint64_t> num_bytes = std::nullopt;  // if known
};

struct MdsRow {
  std::string json;
  std::vector<SampleMember> media;  // with their names as suffixes; at most one more than were asked for
  uint64_t text_bytes = 0;          // of the sample, up to the end of what the JSON is made of
  uint64_t num_bytes = 0;           // of the sample
};

// DataLoss: sizes contradict each other. InvalidArgument: a JSON column that is not JSON. ResourceExhausted: a text
// of more than `max_text_bytes`. Otherwise the errors of the source.
absl::StatusOr<MdsRow> RowOf(const std::vector<MdsColumn>& columns, const MdsPlace& place,
                             uint64_t max_text_bytes, uint64_t max_media);

}  // namespace evenkeel::dataset
