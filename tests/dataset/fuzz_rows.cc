// Any bytes as lines, a list, texts, a table, an MDS shard or Megatron's token files: the scanner ends, its samples lie within
// the file, and rows are parsed or refused. The first byte of the input chooses the format.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "dataset/format/line_scanner.h"
#include "dataset/format/mds.h"
#include "dataset/format/media_file.h"
#include "dataset/format/megatron.h"
#include "dataset/format/sample_parser.h"
#include "dataset/format/table.h"

namespace {

using namespace evenkeel::dataset;

class OneObject : public ByteSource {
 public:
  explicit OneObject(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  absl::StatusOr<uint64_t> Size(const std::string&) override { return bytes_.size(); }
  absl::Status ReadAt(const std::string&, uint64_t offset, std::span<std::byte> out) override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) std::abort();
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  std::span<const uint8_t> bytes_;
};

constexpr uint8_t kZeroes[256] = {};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  OneObject source(bytes), index(bytes);
  const evenkeel::Limits limits;
  const evenkeel::FieldNames prompts{.prompt = "prompt", .answer = "answer"};
  std::unique_ptr<SampleScanner> scanner;
  switch (data[0] % 6) {
    case 0:
      scanner = MakeJsonScanner(source, "fuzz.jsonl", bytes.size());
      break;
    case 1:
      scanner = MakeJsonScanner(source, "fuzz.json", bytes.size());
      break;
    case 2:
      scanner = MakeTextScanner(source, "fuzz.txt", bytes.size());
      break;
    case 4:
      scanner = MakeMdsScanner({}, source, "fuzz.mds", bytes.size(), limits);
      break;
    case 5:  // the .idx; of the .bin any bytes have the size that the second byte chooses
      if (bytes.empty()) return 0;
      index = OneObject(bytes.subspan(1));
      source = OneObject(std::span(kZeroes).subspan(0, bytes[0]));
      scanner = MakeMegatronScanner(source, index, "fuzz.bin", bytes[0]);
      break;
    default:
      scanner = MakeTableScanner(source, "fuzz.parquet", bytes.size(), limits);
  }
  TextParser parser;
  for (int count = 0; count < 10000; ++count) {
    auto sample = scanner->Next();
    if (data[0] % 6 >= 4 && absl::IsInvalidArgument(sample.status()))
      return 0;  // an encoding or a type that is not read
    if (!sample.ok()) std::abort();
    if (!sample->has_value()) return 0;
    for (const SampleMember& member : (*sample)->members) {
      std::string text(member.size, ' ');
      if (!scanner->ReadMember(member, std::as_writable_bytes(std::span(text))).ok()) std::abort();
      if ((*sample)->tokens != TextForm::kNone) {
        const auto parsed = parser.ParseTokens(text, (*sample)->tokens);
        // Zeroes are ids of every type, and a sample with none is excluded.
        if (parsed.ok() != (*sample)->reason.empty()) std::abort();
      }
      if (!(*sample)->is_row || &member != &(*sample)->members[0]) continue;
      for (const evenkeel::FieldNames& fields : {evenkeel::FieldNames(), prompts}) {
        const auto parsed = parser.ParseRow(text, fields, limits);
        if (!parsed.ok()) continue;
        for (const MediaReference& reference : (*parsed)->references) {
          if (!reference.name) continue;
          const auto name = RelativeMediaName(*reference.name, "/folder");
          if (name.ok() && (name->empty() || absl::StrCat(*name, "/").find("../") == 0)) std::abort();
        }
      }
    }
  }
  return 0;
}
