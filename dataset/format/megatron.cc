// Finds the documents of an indexed dataset: reads the three lists of X.idx side by side, some thousand values at once.
#include "dataset/format/megatron.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "dataset/source/little_endian.h"

namespace evenkeel::dataset {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kHeaderBytes = 34;
constexpr uint64_t kValuesAtOnce = 1 << 14;

struct TokenType {
  std::string_view name;
  TextForm form = TextForm::kNone;  // kNone: not of ids
};
// By the code that X.idx has for it; 0 is not used.
constexpr TokenType kTypes[] = {
    {"", TextForm::kNone},           {"uint8", TextForm::kU8Tokens},  {"int8", TextForm::kI8Tokens},
    {"int16", TextForm::kI16Tokens}, {"int32", TextForm::kI32Tokens}, {"int64", TextForm::kI64Tokens},
    {"float64", TextForm::kNone},    {"float32", TextForm::kNone},    {"uint16", TextForm::kU16Tokens}};

// A list of numbers in a file, read in order.
class NumberList {
 public:
  NumberList(ByteSource& files, const std::string& path, uint64_t begin, int width, uint64_t count)
      : files_(files), path_(path), begin_(begin), width_(static_cast<uint64_t>(width)), count_(count) {}

  bool ended() const { return at_ == count_; }

  // The next one, with its sign; only if the list has not ended.
  absl::StatusOr<int64_t> Next() {
    const uint64_t within = at_ % kValuesAtOnce;
    if (within == 0) {
      bytes_.resize(width_ * std::min(kValuesAtOnce, count_ - at_));
      EVENKEEL_RETURN_IF_ERROR(
          files_.ReadAt(path_, begin_ + width_ * at_, std::as_writable_bytes(std::span(bytes_))));
    }
    ++at_;
    return GetLittleSigned(bytes_.data() + width_ * within, static_cast<int>(width_));
  }

 private:
  ByteSource& files_;
  const std::string path_;
  const uint64_t begin_;
  const uint64_t width_;  // bytes of a number
  const uint64_t count_;
  uint64_t at_ = 0;
  std::string bytes_;
};

class MegatronScanner : public RowScanner {
 public:
  MegatronScanner(ByteSource& bin, ByteSource& files, const std::string& path, uint64_t size)
      : RowScanner(bin, path), files_(files), index_path_(MegatronIndexPath(path)), size_(size) {}

 protected:
  absl::StatusOr<std::optional<ScannedSample>> Read() override {
    if (!lists_.has_value()) EVENKEEL_RETURN_IF_ERROR(Open());
    if (lists_->documents.ended()) {
      if (num_read_ != lists_->num_sequences)
        return Damaged(
            absl::StrCat("its documents end at sequence ", num_read_, " of ", lists_->num_sequences));
      if (end_ == size_) return std::optional<ScannedSample>();
      return Damaged(absl::StrCat("its sequences have ", end_, " bytes, the .bin has ", size_));
    }
    EVENKEEL_ASSIGN_OR_RETURN(const int64_t last, lists_->documents.Next());
    if (last < static_cast<int64_t>(num_read_) || static_cast<uint64_t>(last) > lists_->num_sequences) {
      return Damaged(absl::StrCat("document ", row_, " ends before sequence ", last,
                                  ", begins with sequence ", num_read_, "; there are ",
                                  lists_->num_sequences));
    }
    const uint64_t begin = end_;
    for (; num_read_ < static_cast<uint64_t>(last); ++num_read_) EVENKEEL_RETURN_IF_ERROR(ReadSequence());
    ScannedSample sample;
    sample.key = absl::StrCat(row_++);
    sample.tokens = type_.form;
    sample.members.push_back({"tokens", begin, end_ - begin});
    if (begin == end_) {
      sample.reason = "no text";
      sample.detail = "the document has no tokens";
    }
    return std::optional<ScannedSample>(std::move(sample));
  }

  bool is_open() const override { return lists_.has_value(); }

 private:
  struct Lists {
    NumberList lengths, pointers, documents;
    uint64_t num_sequences = 0;
  };

  absl::Status Damaged(absl::string_view why) const {
    return absl::DataLossError(absl::StrCat("its .idx: ", why));
  }

  // Sizes are compared with that of the file before anything of their size is read.
  absl::Status Open() {
    absl::StatusOr<uint64_t> size = files_.Size(index_path_);
    if (absl::IsNotFound(size.status())) return NoMegatronIndex(path_);
    EVENKEEL_RETURN_IF_ERROR(size.status());
    if (*size < kHeaderBytes)
      return Damaged(absl::StrCat("shorter than its header of ", kHeaderBytes, " bytes"));
    std::string header(kHeaderBytes, '\0');
    EVENKEEL_RETURN_IF_ERROR(files_.ReadAt(index_path_, 0, std::as_writable_bytes(std::span(header))));
    if (!header.starts_with(kMagic)) return Damaged("it does not begin with MMIDIDX");
    const char* at = header.data() + kMagic.size();
    EVENKEEL_RETURN_IF_ERROR(CheckType(GetLittle(at, 8), static_cast<size_t>(GetLittle(at + 8, 1))));
    const uint64_t sequences = GetLittle(at + 9, 8), documents = GetLittle(at + 17, 8);
    if (sequences > *size / 12 || documents > *size / 8 || documents == 0) {
      return Damaged(
          absl::StrCat(sequences, " sequences and ", documents, " ends of documents in ", *size, " bytes"));
    }
    const uint64_t expected = kHeaderBytes + 12 * sequences + 8 * documents;
    if (sequences > 0 && *size == expected + sequences) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path_,
                       ": its sequences have modes, as Megatron's multimodal datasets do, which are not "
                       "read; give their media in another format (docs/datasets.md)"));
    }
    if (*size != expected)
      return Damaged(absl::StrCat("its lists need ", expected, " bytes, it has ", *size));
    const uint64_t pointers = kHeaderBytes + 4 * sequences, ends = pointers + 8 * sequences;
    Lists lists{.lengths = NumberList(files_, index_path_, kHeaderBytes, 4, sequences),
                .pointers = NumberList(files_, index_path_, pointers, 8, sequences),
                .documents = NumberList(files_, index_path_, ends, 8, documents),
                .num_sequences = sequences};
    EVENKEEL_ASSIGN_OR_RETURN(const int64_t first, lists.documents.Next());
    if (first != 0)
      return Damaged(absl::StrCat("its first document begins with sequence ", first, ", not 0"));
    lists_.emplace(std::move(lists));
    return absl::OkStatus();
  }

  absl::Status CheckType(uint64_t version, size_t code) {
    if (version != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path_, ": version ", version, " of Megatron's format; version 1 is read"));
    }
    if (code == 0 || code >= std::size(kTypes)) {
      return absl::InvalidArgumentError(absl::StrCat(index_path_, ": tokens of the unknown type ", code,
                                                     "; types are from 1 to ", std::size(kTypes) - 1));
    }
    type_ = kTypes[code];
    if (type_.form != TextForm::kNone) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(index_path_, ": values of type ", std::string(type_.name),
                                                   ", which are no ids of tokens; whole numbers are read"));
  }

  absl::Status ReadSequence() {
    EVENKEEL_ASSIGN_OR_RETURN(const int64_t length, lists_->lengths.Next());
    EVENKEEL_ASSIGN_OR_RETURN(const int64_t pointer, lists_->pointers.Next());
    if (length < 0) return Damaged(absl::StrCat("sequence ", num_read_, " has ", length, " tokens"));
    const uint64_t num_bytes = static_cast<uint64_t>(length) * TokenBytes(type_.form);
    if (pointer < 0 || static_cast<uint64_t>(pointer) != end_) {
      return Damaged(absl::StrCat("sequence ", num_read_, " is at byte ", pointer,
                                  ", the one before it ends at byte ", end_));
    }
    if (num_bytes > size_ - end_) {
      return Damaged(absl::StrCat("sequence ", num_read_, " is at bytes ", end_, " to ", end_ + num_bytes,
                                  ", the .bin has ", size_));
    }
    end_ += num_bytes;
    return absl::OkStatus();
  }

  ByteSource& files_;
  const std::string index_path_;
  const uint64_t size_;  // of X.bin
  TokenType type_;
  std::optional<Lists> lists_;
  uint64_t num_read_ = 0;  // sequences
  uint64_t end_ = 0;       // of the sequence before, in X.bin
};

}  // namespace

std::string MegatronIndexPath(const std::string& bin_path) {
  std::string_view stem = bin_path;
  if (stem.ends_with(".bin")) stem.remove_suffix(4);
  return absl::StrCat(std::string(stem), ".idx");
}

absl::Status NoMegatronIndex(const std::string& bin_path) {
  return absl::NotFoundError(absl::StrCat(MegatronIndexPath(bin_path),
                                          ": no such file; of the format megatron, ", bin_path,
                                          " needs it to find its documents"));
}

std::unique_ptr<SampleScanner> MakeMegatronScanner(ByteSource& bin, ByteSource& files,
                                                   const std::string& path, uint64_t size) {
  return std::make_unique<MegatronScanner>(bin, files, path, size);
}

}  // namespace evenkeel::dataset
