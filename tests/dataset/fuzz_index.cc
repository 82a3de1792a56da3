// Any content behind good checksums as a file of the index, and any text as its catalogue: errors or rows, no
// crash.
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "dataset/index/columns.h"
#include "dataset/index/index_folder.h"

namespace {

class OneObject : public evenkeel::dataset::ByteSource {
 public:
  std::string bytes;
  absl::StatusOr<uint64_t> Size(const std::string&) override { return bytes.size(); }
  absl::Status ReadAt(const std::string&, uint64_t offset, std::span<std::byte> out) override {
    if (offset > bytes.size() || out.size() > bytes.size() - offset) return absl::OutOfRangeError("end");
    if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
    return absl::OkStatus();
  }
};

// Pages of the input's bytes with right numbers and checksums, and the magic of an index file of that kind.
std::string Pages(std::string_view input, evenkeel::dataset::FileKind kind) {
  using namespace evenkeel::dataset;
  std::string good = WritePaged({kind, {}, {}, {}}, {input});
  // Numbers and sections of the header are the fuzzer's, kind and magic are not.
  std::string page(good.substr(0, kPagePayload + 8));
  size_t n = std::min<size_t>(input.size(), 200);
  std::memcpy(page.data() + 48, input.data(), n);
  evenkeel::Digest sum = evenkeel::DigestOf(page);
  page.append(reinterpret_cast<const char*>(sum.bytes.data()), 8);
  return good.replace(0, kPageBytes, page);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;
  using namespace evenkeel::dataset;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  ReadCatalogue(input).IgnoreError();
  // And with the line that ends one, whose digest a fuzzer does not find.
  ReadCatalogue(absl::StrCat(std::string(input), "end ", DigestOf(input).Hex(), "\n")).IgnoreError();
  OneObject source;
  PageCache cache(1 << 18);
  auto ignore = [](const ExclusionRecord&) {};
  source.bytes = Pages(input, FileKind::kPlaces);
  if (auto reader = PlacesReader::Open(source, cache, "f"); reader.ok()) {
    for (uint64_t i = 0; i < std::min<uint64_t>(reader->num_places(), 50); ++i) reader->Read(i).IgnoreError();
    reader->ForEachExclusion(ignore).IgnoreError();
  }
  source.bytes = Pages(input, FileKind::kFacts);
  if (auto reader = FactsReader::Open(source, cache, "f"); reader.ok()) {
    for (uint64_t i = 0; i < std::min<uint64_t>(reader->num_items(), 50); ++i) reader->Read(i).IgnoreError();
  }
  source.bytes = Pages(input, FileKind::kLengths);
  if (auto reader = LengthsReader::Open(source, cache, "f"); reader.ok()) {
    for (uint64_t i = 0; i < std::min<uint64_t>(reader->totals().rows, 50); ++i)
      reader->Read(i).IgnoreError();
    reader->RowOf(3).IgnoreError();
  }
  return 0;
}
