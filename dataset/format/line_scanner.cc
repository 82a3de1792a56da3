// Finds the bounds of lines and of the elements of a JSON list in a buffer that moves through the file.
#include "dataset/format/line_scanner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kJsonSpace = " \t\r\n";

bool IsSpace(char c) { return kJsonSpace.find(c) != std::string_view::npos; }

// The bytes of a file, one after another.
class Cursor {
 public:
  Cursor(ByteSource& source, std::string path, uint64_t size)
      : source_(source), path_(std::move(path)), size_(size) {}

  uint64_t at() const { return at_; }
  bool ended() const { return at_ == size_; }
  void Skip(uint64_t count) { at_ += count; }  // at most to the end

  // The bytes from here on: at least one unless the file has ended. Valid until the next call.
  absl::StatusOr<std::string_view> Rest() {
    if (at_ < begin_ || at_ >= begin_ + buffer_.size()) {
      buffer_.resize(std::min<uint64_t>(kBufferBytes, size_ - at_));
      begin_ = at_;
      const absl::Status read = source_.ReadAt(path_, at_, std::as_writable_bytes(std::span(buffer_)));
      if (!read.ok()) {
        buffer_.clear();
        return read;
      }
    }
    return std::string_view(buffer_).substr(at_ - begin_);
  }

  absl::Status SkipByteOrderMark() {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view rest, Rest());
    if (rest.substr(0, kByteOrderMark.size()) == kByteOrderMark) Skip(kByteOrderMark.size());
    return absl::OkStatus();
  }

  absl::Status SkipSpace() {
    while (!ended()) {
      EVENKEEL_ASSIGN_OR_RETURN(const std::string_view rest, Rest());
      const size_t count = std::min(rest.find_first_not_of(kJsonSpace), rest.size());
      Skip(count);
      if (count < rest.size()) break;
    }
    return absl::OkStatus();
  }

 private:
  ByteSource& source_;
  const std::string path_;
  const uint64_t size_;
  uint64_t at_ = 0;
  uint64_t begin_ = 0;  // of the buffer
  std::string buffer_;
};

class LineScanner : public SampleScanner {
 public:
  LineScanner(ByteSource& source, const std::string& path, uint64_t size, bool is_json)
      : SampleScanner(source, path), cursor_(source, path, size), is_json_(is_json) {}

  absl::StatusOr<std::optional<ScannedSample>> Next() override {
    if (number_ == 0 && !cursor_.ended()) EVENKEEL_RETURN_IF_ERROR(cursor_.SkipByteOrderMark());
    while (!cursor_.ended()) {
      EVENKEEL_ASSIGN_OR_RETURN(const SampleMember line, ReadLine());
      if (line.size == 0) continue;
      ScannedSample sample;
      sample.key = absl::StrCat(number_);
      sample.is_row = is_json_;
      sample.members.push_back(line);
      return std::optional<ScannedSample>(std::move(sample));
    }
    return std::optional<ScannedSample>();
  }
  bool damaged() const override { return false; }

 private:
  // The next line without what surrounds it: the line break, and around JSON all space.
  absl::StatusOr<SampleMember> ReadLine() {
    ++number_;
    std::optional<uint64_t> begin;
    uint64_t end = cursor_.at();
    for (bool ended = false; !ended && !cursor_.ended();) {
      EVENKEEL_ASSIGN_OR_RETURN(std::string_view rest, cursor_.Rest());
      const size_t line_break = rest.find('\n');
      ended = line_break != std::string_view::npos;
      rest = rest.substr(0, line_break);
      const std::string_view space = is_json_ ? kJsonSpace : "\r";
      // Of text, only the carriage return of the line break is not part of the line.
      const size_t first = is_json_       ? rest.find_first_not_of(space)
                           : rest.empty() ? std::string_view::npos
                                          : 0;
      const size_t last = rest.find_last_not_of(space);
      if (first != std::string_view::npos && !begin) begin = cursor_.at() + first;
      if (last != std::string_view::npos) end = cursor_.at() + last + 1;
      cursor_.Skip(rest.size() + (ended ? 1 : 0));
    }
    if (!begin) return SampleMember{is_json_ ? "json" : "txt", end, 0};
    return SampleMember{is_json_ ? "json" : "txt", *begin, end > *begin ? end - *begin : 0};
  }

  Cursor cursor_;
  const bool is_json_;
  uint64_t number_ = 0;  // of the latest line
};

class ListScanner : public SampleScanner {
 public:
  // The file begins with '[', perhaps after a byte order mark and space.
  ListScanner(ByteSource& source, const std::string& path, uint64_t size)
      : SampleScanner(source, path), cursor_(source, path, size) {}

  absl::StatusOr<std::optional<ScannedSample>> Next() override {
    if (at_ == At::kStart) EVENKEEL_RETURN_IF_ERROR(Begin());
    if (at_ == At::kTail) return Tail();
    if (at_ == At::kEnd) return std::optional<ScannedSample>();
    EVENKEEL_RETURN_IF_ERROR(cursor_.SkipSpace());
    ScannedSample sample;
    sample.key = absl::StrCat(number_++);
    sample.is_row = true;
    SampleMember& element = sample.members.emplace_back(SampleMember{"json", cursor_.at(), 0});
    char end = 0;
    EVENKEEL_ASSIGN_OR_RETURN(element.size, ReadElement(&end));
    if (end == 0) return Damage(std::move(sample.key), "the list is not closed");
    if (end == ']') at_ = At::kTail;
    return std::optional<ScannedSample>(std::move(sample));
  }
  bool damaged() const override { return damaged_; }

 private:
  enum class At : uint8_t { kStart, kElements, kTail, kEnd };

  absl::Status Begin() {
    EVENKEEL_RETURN_IF_ERROR(cursor_.SkipByteOrderMark());
    EVENKEEL_RETURN_IF_ERROR(cursor_.SkipSpace());
    cursor_.Skip(1);
    EVENKEEL_RETURN_IF_ERROR(cursor_.SkipSpace());
    at_ = At::kElements;
    if (cursor_.ended()) return absl::OkStatus();
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view rest, cursor_.Rest());
    if (rest[0] != ']') return absl::OkStatus();
    cursor_.Skip(1);
    at_ = At::kTail;
    return absl::OkStatus();
  }

  // Reads up to the comma or bracket after the element and returns the element's size without the space around it;
  // *end is that byte, 0 at the end of the file.
  absl::StatusOr<uint64_t> ReadElement(char* end) {
    const uint64_t begin = cursor_.at();
    uint64_t last = begin;  // after the last byte that is not space
    uint64_t depth = 0;
    bool in_string = false, escaped = false;
    while (*end == 0 && !cursor_.ended()) {
      EVENKEEL_ASSIGN_OR_RETURN(const std::string_view rest, cursor_.Rest());
      size_t i = 0;
      for (; i < rest.size() && *end == 0; ++i) {
        const char c = rest[i];
        if (in_string) {
          in_string = escaped || c != '"';
          escaped = !escaped && c == '\\';
        } else if (depth == 0 && (c == ',' || c == ']')) {
          *end = c;
          continue;
        } else {
          in_string = c == '"';
          depth += c == '{' || c == '[';
          depth -= depth > 0 && (c == '}' || c == ']');
          if (IsSpace(c)) continue;
        }
        last = cursor_.at() + i + 1;
      }
      cursor_.Skip(i);
    }
    return last - begin;
  }

  absl::StatusOr<std::optional<ScannedSample>> Tail() {
    EVENKEEL_RETURN_IF_ERROR(cursor_.SkipSpace());
    at_ = At::kEnd;
    if (!cursor_.ended()) return Damage("", "data after the list");
    return std::optional<ScannedSample>();
  }

  absl::StatusOr<std::optional<ScannedSample>> Damage(std::string key, const char* why) {
    at_ = At::kEnd;
    damaged_ = true;
    ScannedSample damage;
    damage.key = std::move(key);
    damage.reason = kShardDamaged;
    damage.detail = absl::StrCat("at byte ", cursor_.at(), ": ", why);
    return std::optional<ScannedSample>(std::move(damage));
  }

  Cursor cursor_;
  At at_ = At::kStart;
  uint64_t number_ = 0;  // of the next element
  bool damaged_ = false;
};

// Looks at the first byte before it chooses.
class JsonScanner : public SampleScanner {
 public:
  JsonScanner(ByteSource& source, std::string path, uint64_t size)
      : SampleScanner(source, std::move(path)), size_(size) {}

  absl::StatusOr<std::optional<ScannedSample>> Next() override {
    if (scanner_ == nullptr) EVENKEEL_RETURN_IF_ERROR(Choose());
    return scanner_->Next();
  }
  bool damaged() const override { return scanner_ != nullptr && scanner_->damaged(); }

 private:
  absl::Status Choose() {
    bool is_list = !absl::EndsWithIgnoreCase(path_, ".jsonl") && !absl::EndsWithIgnoreCase(path_, ".ndjson");
    if (is_list) {
      Cursor cursor(source_, path_, size_);
      if (!cursor.ended()) EVENKEEL_RETURN_IF_ERROR(cursor.SkipByteOrderMark());
      EVENKEEL_RETURN_IF_ERROR(cursor.SkipSpace());
      absl::StatusOr<std::string_view> rest = std::string_view();
      if (!cursor.ended()) rest = cursor.Rest();
      EVENKEEL_RETURN_IF_ERROR(rest.status());
      is_list = rest->substr(0, 1) == "[";
    }
    if (is_list) {
      scanner_ = std::make_unique<ListScanner>(source_, path_, size_);
    } else {
      scanner_ = std::make_unique<LineScanner>(source_, path_, size_, /*is_json=*/true);
    }
    return absl::OkStatus();
  }

  const uint64_t size_;
  std::unique_ptr<SampleScanner> scanner_;
};

}  // namespace

std::unique_ptr<SampleScanner> MakeJsonScanner(ByteSource& source, const std::string& path, uint64_t size) {
  return std::make_unique<JsonScanner>(source, path, size);
}

std::unique_ptr<SampleScanner> MakeTextScanner(ByteSource& source, const std::string& path, uint64_t size) {
  return std::make_unique<LineScanner>(source, path, size, /*is_json=*/false);
}

}  // namespace evenkeel::dataset
