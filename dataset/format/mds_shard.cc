// Reads the header of an MDS shard, and writes the columns of a sample as the JSON of a row.
#include "dataset/format/mds_shard.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/json.h"
#include "dataset/format/json_text.h"
#include "dataset/source/little_endian.h"

namespace evenkeel::dataset {
namespace {

using Form = MdsColumn::Form;

constexpr uint64_t kMaxConfigBytes = 1 << 20;
constexpr uint32_t kConfigDepth = 8;
constexpr uint32_t kColumnDepth = 256;  // of a JSON column; the job's own limit holds for the row
constexpr size_t kMaxColumns = 4096;

struct Encoding {
  std::string_view name;
  Form form;
  uint32_t num_bytes;  // 0: variable
  std::string_view suffix = "";
};
constexpr std::array kEncodings = {
    Encoding{"bytes", Form::kMedium, 0},
    Encoding{"str", Form::kText, 0},
    Encoding{"int", Form::kInteger, 8},
    Encoding{"int8", Form::kInteger, 1},
    Encoding{"int16", Form::kInteger, 2},
    Encoding{"int32", Form::kInteger, 4},
    Encoding{"int64", Form::kInteger, 8},
    Encoding{"uint8", Form::kUnsigned, 1},
    Encoding{"uint16", Form::kUnsigned, 2},
    Encoding{"uint32", Form::kUnsigned, 4},
    Encoding{"uint64", Form::kUnsigned, 8},
    Encoding{"float16", Form::kFloat, 2},
    Encoding{"float32", Form::kFloat, 4},
    Encoding{"float64", Form::kFloat, 8},
    Encoding{"str_int", Form::kWrittenNumber, 0},
    Encoding{"str_float", Form::kWrittenNumber, 0},
    Encoding{"str_decimal", Form::kWrittenNumber, 0},
    Encoding{"json", Form::kJson, 0},
    Encoding{"jpeg", Form::kMedium, 0, ".jpg"},
    Encoding{"png", Form::kMedium, 0, ".png"},
    Encoding{"jpegarray", Form::kMedia, 0, ".jpg"},
    Encoding{"jpeg_array", Form::kMedia, 0, ".jpg"},
    Encoding{"list[jpeg]", Form::kListOfMedia, 0, ".jpg"},
    Encoding{"list[png]", Form::kListOfMedia, 0, ".png"},
};

absl::Status NotColumns(absl::string_view why) { return absl::InvalidArgumentError(why); }

const JsonValue* ArrayOf(const JsonValue& shard, std::string_view key) {
  const JsonValue* found = shard.Find(key);
  return found != nullptr && found->is_array() ? found : nullptr;
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::StatusOr<MdsColumn> ColumnOf(const JsonValue& name, const JsonValue& encoding, const JsonValue& size) {
  if (!name.is_string() || !encoding.is_string())
    return NotColumns("a column's name or encoding is not text");
  MdsColumn column{.name = std::string(name.text), .encoding = std::string(encoding.text)};
  const bool is_number = size.kind == JsonValue::Kind::kNumber;
  if (!size.is_null() && !(is_number && absl::SimpleAtoi(View(size.text), &column.num_bytes)))
    return NotColumns(
        absl::StrCat("column '", Printable(column.name), "': its size is not a number of bytes"));
  const auto known =
      std::ranges::find_if(kEncodings, [&](const Encoding& one) { return one.name == column.encoding; });
  if (known == kEncodings.end()) return column;
  if (known->num_bytes != column.num_bytes) {
    return NotColumns(absl::StrCat("column '", Printable(column.name), "': ", column.num_bytes,
                                   " bytes; the encoding ", column.encoding, " has ", known->num_bytes));
  }
  column.form = known->form;
  column.suffix = known->suffix;
  return column;
}

// The bytes of a sample: those that were read ahead, and others by one read each.
class SampleBytes {
 public:
  explicit SampleBytes(const MdsPlace& place) : place_(place) {}

  absl::Status ReadAhead() {
    ahead_.resize(place_.ahead_bytes);
    if (ahead_.empty()) return absl::OkStatus();
    return place_.source.ReadAt(place_.path, place_.begin, std::as_writable_bytes(std::span(ahead_)));
  }
  // Bytes [offset, offset + size) of the sample; valid until the next call.
  absl::StatusOr<std::string_view> At(uint64_t offset, uint64_t size) {
    if (offset <= ahead_.size() && size <= ahead_.size() - offset)
      return std::string_view(ahead_).substr(offset, size);
    read_.resize(size);
    EVENKEEL_RETURN_IF_ERROR(
        place_.source.ReadAt(place_.path, place_.begin + offset, std::as_writable_bytes(std::span(read_))));
    return std::string_view(read_);
  }

 private:
  const MdsPlace& place_;
  std::string ahead_, read_;
};

// IEEE 754 binary16.
double HalfOf(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25));
}

double FloatOf(std::string_view bytes) {
  if (bytes.size() == 2) return HalfOf(static_cast<uint16_t>(GetLittle(bytes.data(), 2)));
  if (bytes.size() == 4) {
    float value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  double value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// As Python writes what JSON has no word for.
void AppendFloat(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "Infinity" : "-Infinity";
  } else {
    std::array<char, 32> text;
    out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  }
}

int64_t SignedOf(std::string_view bytes) {
  const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes.size());
  return static_cast<int64_t>(GetLittle(bytes.data(), static_cast<int>(bytes.size())) << unused) >> unused;
}

bool IsJsonNumber(std::string_view text) {
  JsonDocument document;
  const absl::StatusOr<const JsonValue*> root = document.Parse(text, 1);
  return root.ok() && (*root)->kind == JsonValue::Kind::kNumber && (*root)->text.size() == text.size();
}

class RowWriter {
 public:
  RowWriter(const MdsPlace& place, uint64_t max_text_bytes, uint64_t max_media)
      : place_(place), bytes_(place), max_text_bytes_(max_text_bytes), max_media_(max_media) {}

  absl::StatusOr<MdsRow> Write(const std::vector<MdsColumn>& columns) {
    EVENKEEL_RETURN_IF_ERROR(bytes_.ReadAhead());
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<uint32_t> sizes, Sizes(columns));
    row_.json += '{';
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) row_.json += ", ";
      AppendStringAsPython(columns[i].name, row_.json);
      row_.json += ": ";
      EVENKEEL_RETURN_IF_ERROR(AppendValue(columns[i], row_.num_bytes, sizes[i]));
      if (row_.json.size() > max_text_bytes_) return TooLong(row_.json.size());
      row_.num_bytes += sizes[i];
    }
    row_.json += '}';
    return std::move(row_);
  }

 private:
  absl::Status TooLong(uint64_t bytes) const {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", bytes, " bytes of text; limits.max_text_bytes is ", max_text_bytes_));
  }

  // Of all columns, from the front of the sample.
  absl::StatusOr<std::vector<uint32_t>> Sizes(const std::vector<MdsColumn>& columns) {
    const auto num_variable = static_cast<uint64_t>(
        std::ranges::count_if(columns, [](const MdsColumn& column) { return column.num_bytes == 0; }));
    row_.num_bytes = row_.text_bytes = 4 * num_variable;
    const auto contradiction = [this](uint64_t num_bytes) {
      return absl::DataLossError(absl::StrCat("its columns have ", num_bytes,
                                              " bytes, by its offsets it has ",
                                              place_.num_bytes.value_or(num_bytes)));
    };
    if (row_.num_bytes > place_.num_bytes.value_or(row_.num_bytes)) return contradiction(row_.num_bytes);
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view head, bytes_.At(0, row_.num_bytes));
    std::vector<uint32_t> sizes;
    uint64_t at = 0, total = row_.num_bytes;
    for (const MdsColumn& column : columns) {
      sizes.push_back(column.num_bytes);
      if (column.num_bytes == 0) {
        sizes.back() = static_cast<uint32_t>(GetLittle(head.data() + at, 4));
        at += 4;
      }
      total += sizes.back();
    }
    if (total != place_.num_bytes.value_or(total)) return contradiction(total);
    return sizes;
  }

  // A column's bytes of which the JSON is made.
  absl::StatusOr<std::string_view> Text(uint64_t offset, uint64_t size) {
    if (size > max_text_bytes_) return TooLong(size);
    row_.text_bytes = std::max(row_.text_bytes, offset + size);
    return bytes_.At(offset, size);
  }

  absl::Status AppendValue(const MdsColumn& column, uint64_t offset, uint32_t size) {
    if (column.form == Form::kUnread || (column.form == Form::kMedium && size == 0)) {
      row_.json += "null";
      return absl::OkStatus();
    }
    if (column.form == Form::kMedium) {
      AppendMedium(column, offset, size);
      return absl::OkStatus();
    }
    if (column.form == Form::kMedia || column.form == Form::kListOfMedia)
      return AppendMedia(column, offset, size);
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view bytes, Text(offset, size));
    switch (column.form) {
      case Form::kJson:
        return AppendJson(column, bytes);
      case Form::kInteger:
        absl::StrAppend(&row_.json, SignedOf(bytes));
        break;
      case Form::kUnsigned:
        absl::StrAppend(&row_.json, GetLittle(bytes.data(), static_cast<int>(bytes.size())));
        break;
      case Form::kFloat:
        AppendFloat(FloatOf(bytes), row_.json);
        break;
      case Form::kWrittenNumber:
        if (IsJsonNumber(bytes)) {
          row_.json.append(bytes);
          break;
        }
        [[fallthrough]];
      default:
        AppendStringAsPython(bytes, row_.json);
    }
    return absl::OkStatus();
  }

  // As it is, once it is known to be one value.
  absl::Status AppendJson(const MdsColumn& column, std::string_view bytes) {
    JsonDocument document;
    const absl::StatusOr<const JsonValue*> value = document.Parse(bytes, kColumnDepth);
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("column '", Printable(column.name), "': ", value.status().message()));
    }
    row_.json.append(bytes);
    return absl::OkStatus();
  }

  void AppendMedium(const MdsColumn& column, uint64_t offset, uint32_t size) {
    std::string name = absl::StrCat(column.name, ".0", column.suffix);
    AppendStringAsPython(name, row_.json);
    AddMember(std::move(name), offset, size);
  }

  void AddMember(std::string name, uint64_t offset, uint64_t size) {
    if (row_.media.size() <= max_media_) row_.media.push_back({std::move(name), place_.begin + offset, size});
  }

  absl::Status AppendMedia(const MdsColumn& column, uint64_t offset, uint32_t size) {
    const uint64_t skipped = column.form == Form::kListOfMedia ? 4 : 0;
    const auto contradiction = [&] {
      return absl::DataLossError(
          absl::StrCat("column '", Printable(column.name), "': its sizes exceed the column"));
    };
    if (size < skipped + 4) return contradiction();
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view head, Text(offset + skipped, 4));
    const uint64_t count = GetLittle(head.data(), 4);
    const uint64_t sizes_at = offset + skipped + 4;
    uint64_t at = sizes_at + 4 * count;
    const uint64_t end = offset + size;
    if (at > end) return contradiction();
    std::string sizes;
    if (count <= max_media_) {
      EVENKEEL_ASSIGN_OR_RETURN(sizes, bytes_.At(sizes_at, 4 * count));
    }
    row_.json += '[';
    for (uint64_t i = 0; i < count; ++i) {
      std::string name = absl::StrCat(column.name, ".", i, column.suffix);
      if (i > 0) row_.json += ", ";
      AppendStringAsPython(name, row_.json);
      if (row_.json.size() > max_text_bytes_) return TooLong(row_.json.size());
      const uint64_t num_bytes = sizes.empty() ? 0 : GetLittle(sizes.data() + 4 * i, 4);
      if (num_bytes > end - at) return contradiction();
      AddMember(std::move(name), at, num_bytes);
      at += num_bytes;
    }
    row_.json += ']';
    return absl::OkStatus();
  }

  const MdsPlace& place_;
  SampleBytes bytes_;
  const uint64_t max_text_bytes_;
  const uint64_t max_media_;
  MdsRow row_;
};

}  // namespace

absl::StatusOr<std::vector<MdsColumn>> MdsColumnsOf(const JsonValue& shard) {
  const JsonValue* version = shard.Find("version");
  if (version == nullptr || version->text != "2") return NotColumns("not of version 2");
  const JsonValue* format = shard.Find("format");
  if (format == nullptr || format->text != "mds") return NotColumns("its format is not mds");
  const JsonValue* names = ArrayOf(shard, "column_names");
  const JsonValue* encodings = ArrayOf(shard, "column_encodings");
  const JsonValue* sizes = ArrayOf(shard, "column_sizes");
  if (names == nullptr || encodings == nullptr || sizes == nullptr)
    return NotColumns("column_names, column_encodings or column_sizes is missing");
  std::vector<MdsColumn> columns;
  std::set<std::string> seen;
  auto encoding = encodings->values().begin();
  auto size = sizes->values().begin();
  for (const JsonValue& name : names->values()) {
    if (encoding == encodings->values().end() || size == sizes->values().end())
      return NotColumns("fewer encodings or sizes than columns");
    EVENKEEL_ASSIGN_OR_RETURN(MdsColumn column, ColumnOf(name, *encoding, *size));
    if (!seen.insert(column.name).second)
      return NotColumns(absl::StrCat("two columns '", Printable(column.name), "'"));
    columns.push_back(std::move(column));
    if (columns.size() > kMaxColumns) return NotColumns(absl::StrCat("more than ", kMaxColumns, " columns"));
    ++encoding;
    ++size;
  }
  if (!(encoding == encodings->values().end()) || !(size == sizes->values().end()))
    return NotColumns("more encodings or sizes than columns");
  return columns;
}

absl::StatusOr<MdsHeader> ReadMdsHeader(ByteSource& source, const std::string& path,
                                        std::optional<uint64_t> size) {
  const auto damaged = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(path, ": not an MDS shard: ", why));
  };
  std::string numbers(8, '\0');
  if (size.has_value() && *size < numbers.size()) return damaged("shorter than its header");
  EVENKEEL_RETURN_IF_ERROR(source.ReadAt(path, 0, std::as_writable_bytes(std::span(numbers))));
  MdsHeader header;
  header.num_samples = static_cast<uint32_t>(GetLittle(numbers.data(), 4));
  header.samples_begin = GetLittle(numbers.data() + 4, 4);
  const uint64_t config_begin = 4 + 4 * (uint64_t{header.num_samples} + 1);
  if (header.samples_begin < config_begin) return damaged("its first sample is inside the header");
  if (header.samples_begin - config_begin > kMaxConfigBytes) return damaged("its columns exceed 1 MiB");
  if (size.has_value() && header.samples_begin > *size) return damaged("its first sample is beyond the end");
  std::string config(header.samples_begin - config_begin, '\0');
  EVENKEEL_RETURN_IF_ERROR(source.ReadAt(path, config_begin, std::as_writable_bytes(std::span(config))));
  JsonDocument document;
  const absl::StatusOr<const JsonValue*> root = document.Parse(config, kConfigDepth);
  if (!root.ok()) return damaged(absl::StrCat("its columns: ", root.status().message()));
  absl::StatusOr<std::vector<MdsColumn>> columns = MdsColumnsOf(**root);
  if (!columns.ok()) return damaged(absl::StrCat("its columns: ", columns.status().message()));
  header.columns = *std::move(columns);
  return header;
}

absl::StatusOr<MdsRow> RowOf(const std::vector<MdsColumn>& columns, const MdsPlace& place,
                             uint64_t max_text_bytes, uint64_t max_media) {
  return RowWriter(place, max_text_bytes, max_media).Write(columns);
}

}  // namespace evenkeel::dataset
