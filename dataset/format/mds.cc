// Scans MDS shards, and reads the texts of their rows by address.
#include "dataset/format/mds.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/mds_shard.h"
#include "dataset/source/little_endian.h"
#include "dataset/source/mds_address.h"
#include "dataset/source/source_over.h"

namespace evenkeel::dataset {
namespace {

// Of a text whose bytes are read at once; of a longer one the columns alone, since most of it will be media.
constexpr uint64_t kMaxAheadBytes = 1 << 20;
constexpr uint64_t kOffsetsAtOnce = 1 << 14;
constexpr size_t kMaxShardsKept = 4096;  // their columns, some hundred bytes each

ByteRange TextAt(uint64_t address) {
  ByteRange range{.path = "", .offset = address};
  LocateText(range);
  return range;
}

// A member of rows: under the name that the job gives, else under one of two.
struct Member {
  const std::string FieldNames::*given;
  std::string_view one, other;
  bool is_text;  // not looked for where the job gives another one
};
constexpr Member kMembers[] = {
    {&FieldNames::messages, "messages", "conversations", true},
    {&FieldNames::text, "text", "text", true},
    {&FieldNames::image, "image", "images", false},
    {&FieldNames::audio, "audio", "audios", false},
    {&FieldNames::video, "video", "videos", false},
};

// Whether rows are made of it, by its name. job.columns may name others, which are null if they cannot be read.
bool IsUsed(const MdsColumn& column, const FieldNames& fields) {
  const std::string& name = column.name;
  const bool gives_text =
      !fields.prompt.empty() || !fields.messages.empty() || !fields.text.empty() || !fields.chosen.empty();
  for (const std::string* given : {&fields.prompt, &fields.answer, &fields.chosen, &fields.rejected})
    if (!given->empty() && name == *given) return true;
  if (name == "system" || name == "tools") return true;
  return std::ranges::any_of(kMembers, [&](const Member& member) {
    const std::string& given = fields.*member.given;
    if (!given.empty()) return name == given;
    return !(member.is_text && gives_text) && (name == member.one || name == member.other);
  });
}

absl::Status CheckColumns(const std::string& path, const std::vector<MdsColumn>& columns,
                          const FieldNames& fields) {
  for (const MdsColumn& column : columns) {
    if (column.form != MdsColumn::Form::kUnread || !IsUsed(column, fields)) continue;
    const bool is_pickle = column.encoding == "pkl";
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": column '", Printable(column.name), "' has the encoding '", Printable(column.encoding), "', ",
        is_pickle ? "a pickle, which can run any code when it is read" : "which is not read",
        "; write media as jpeg, png or bytes and other values as str or json, or name another column in the "
        "dataset's "
        "fields"));
  }
  return absl::OkStatus();
}

class MdsScanner : public RowScanner {
 public:
  MdsScanner(const DatasetSpec& dataset, ByteSource& source, const std::string& path, uint64_t size,
             const Limits& limits)
      : RowScanner(source, path),
        fields_(dataset.fields),
        size_(size),
        max_text_bytes_(limits.max_text_bytes),
        max_members_(MaxMembers(limits)) {}

  absl::Status ReadMember(const SampleMember& member, std::span<std::byte> out) override {
    if (!IsMdsAddress(member.offset)) return source_.ReadAt(path_, member.offset, out);
    if (member.offset != text_address_) {
      const ByteRange text = TextAt(member.offset);
      EVENKEEL_ASSIGN_OR_RETURN(MdsRow row,
                                RowOf(header_->columns, {source_, path_, text.offset}, max_text_bytes_, 0));
      text_ = std::move(row.json);
      text_address_ = member.offset;
    }
    if (text_.size() != out.size()) return absl::DataLossError("a row that changed while it was read");
    std::memcpy(out.data(), text_.data(), out.size());
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<std::optional<ScannedSample>> Read() override {
    if (!header_.has_value()) {
      EVENKEEL_ASSIGN_OR_RETURN(MdsHeader header, ReadMdsHeader(source_, path_, size_));
      EVENKEEL_RETURN_IF_ERROR(CheckColumns(path_, header.columns, fields_));
      header_ = std::move(header);
      end_ = header_->samples_begin;
    }
    if (row_ == header_->num_samples) {
      if (end_ == size_) return std::optional<ScannedSample>();
      return absl::DataLossError(absl::StrCat("data after the last sample, at byte ", end_));
    }
    const uint64_t begin = end_;
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t end, EndOf(row_));
    if (end < begin || end > size_) {
      return absl::DataLossError(
          absl::StrCat("sample ", row_, " is at bytes ", begin, " to ", end, " of ", size_));
    }
    ScannedSample sample;
    sample.key = absl::StrCat(row_);
    sample.is_row = true;
    absl::StatusOr<MdsRow> row =
        RowOf(header_->columns, {source_, path_, begin, 0, end - begin}, max_text_bytes_, max_members_);
    if (absl::IsDataLoss(row.status())) return AddContext(row.status(), absl::StrCat("sample ", row_));
    if (absl::IsInvalidArgument(row.status()) || absl::IsResourceExhausted(row.status())) {
      sample.reason = absl::IsInvalidArgument(row.status()) ? "bad JSON" : "text too long";
      sample.detail = std::string(row.status().message());
    } else {
      EVENKEEL_RETURN_IF_ERROR(row.status());
      text_ = std::move(row->json);
      text_address_ = MdsAddress(begin, row->text_bytes);
      sample.members.push_back({"json", text_address_, text_.size()});
      for (SampleMember& medium : row->media) sample.members.push_back(std::move(medium));
      if (sample.members.size() > max_members_) {
        sample.reason = "too many members";
        sample.detail = absl::StrCat("more than ", max_members_);
      }
    }
    end_ = end;
    ++row_;
    return std::optional<ScannedSample>(std::move(sample));
  }

  bool is_open() const override { return header_.has_value(); }

 private:
  // The end of a sample, which is the next offset of the header.
  absl::StatusOr<uint64_t> EndOf(uint64_t row) {
    const uint64_t within = row % kOffsetsAtOnce;
    if (within == 0) {
      const uint64_t count = std::min<uint64_t>(kOffsetsAtOnce, header_->num_samples - row);
      offsets_.resize(4 * count);
      EVENKEEL_RETURN_IF_ERROR(
          source_.ReadAt(path_, 4 + 4 * (row + 1), std::as_writable_bytes(std::span(offsets_))));
    }
    return GetLittle(offsets_.data() + 4 * within, 4);
  }

  const FieldNames fields_;
  const uint64_t size_;
  const uint64_t max_text_bytes_;
  const uint64_t max_members_;
  std::optional<MdsHeader> header_;
  std::string offsets_;  // of some rows
  uint64_t end_ = 0;     // of the sample before
  std::string text_;     // of the row that was read last
  uint64_t text_address_ = 0;
};

class MdsSource : public SourceOver {
 public:
  explicit MdsSource(std::unique_ptr<ByteSource> files) : SourceOver(*files), files_(std::move(files)) {}

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    if (!IsMdsAddress(offset)) return files_->ReadAt(path, offset, out);
    EVENKEEL_ASSIGN_OR_RETURN(const Columns columns, ColumnsOf(path));
    const ByteRange text = TextAt(offset);
    const uint64_t ahead_bytes = text.size <= kMaxAheadBytes ? text.size : 0;
    const absl::StatusOr<MdsRow> row = RowOf(*columns, {*files_, path, text.offset, ahead_bytes},
                                             /*max_text_bytes=*/out.size(), /*max_media=*/0);
    const bool is_other = absl::IsDataLoss(row.status()) || absl::IsInvalidArgument(row.status()) ||
                          absl::IsResourceExhausted(row.status());
    if (!row.ok() && (!is_other || KnownKind(row.status()).has_value())) return row.status();
    if (!row.ok() || row->json.size() != out.size()) {
      return WithKind(
          absl::OutOfRangeError(absl::StrCat(path, ": the sample at byte ", text.offset,
                                             " is not the row of ", out.size(), " bytes that was expected")),
          FailureKind::kMachine);
    }
    if (!out.empty()) std::memcpy(out.data(), row->json.data(), out.size());
    return absl::OkStatus();
  }

  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t turn) override {
    std::vector<ByteRange> wanted;
    for (ByteRange& range : ranges) {
      const bool is_text = IsMdsAddress(range.offset);
      LocateText(range);
      if (!is_text || range.size <= kMaxAheadBytes) wanted.push_back(std::move(range));
    }
    return files_->Expect(std::move(wanted), turn);
  }

  void Forget(const std::string& path) override {
    {
      MutexLock lock(mutex_);
      kept_.erase(path);
    }
    files_->Forget(path);
  }

 private:
  using Columns = std::shared_ptr<const std::vector<MdsColumn>>;

  // Two threads may read those of one shard; either counts.
  absl::StatusOr<Columns> ColumnsOf(const std::string& path) {
    {
      MutexLock lock(mutex_);
      if (const auto found = kept_.find(path); found != kept_.end()) return found->second;
    }
    EVENKEEL_ASSIGN_OR_RETURN(MdsHeader header, ReadMdsHeader(*files_, path, std::nullopt));
    auto columns = std::make_shared<const std::vector<MdsColumn>>(std::move(header.columns));
    MutexLock lock(mutex_);
    if (kept_.size() >= kMaxShardsKept) kept_.clear();
    kept_.insert_or_assign(path, columns);
    return columns;
  }

  const std::unique_ptr<ByteSource> files_;
  Mutex mutex_;
  std::unordered_map<std::string, Columns> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<SampleScanner> MakeMdsScanner(const DatasetSpec& dataset, ByteSource& source,
                                              const std::string& path, uint64_t size, const Limits& limits) {
  return std::make_unique<MdsScanner>(dataset, source, path, size, limits);
}

std::unique_ptr<ByteSource> MakeMdsSource(std::unique_ptr<ByteSource> files) {
  return std::make_unique<MdsSource>(std::move(files));
}

}  // namespace evenkeel::dataset
