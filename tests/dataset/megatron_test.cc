// Documents of Megatron-LM's indexed datasets: every type, documents of several sequences, and files that contradict
// themselves or each other.
#include "dataset/format/megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "dataset/format/table.h"
#include "dataset/index/index.h"
#include "dataset/index/index_builder.h"
#include "dataset/source/little_endian.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Document = std::vector<std::vector<int64_t>>;  // its sequences

struct Type {
  int code = 4;
  int num_bytes = 4;
};

// Both files, as Megatron-LM's IndexedDatasetBuilder writes them.
struct Pair {
  std::string bin, idx;
};

Pair Write(const std::vector<Document>& documents, Type type = {}) {
  Pair out;
  std::string lengths, pointers, ends;
  uint64_t sequences = 0;
  PutLittle(0, 8, ends);
  for (const Document& document : documents) {
    for (const std::vector<int64_t>& sequence : document) {
      PutLittle(sequence.size(), 4, lengths);
      PutLittle(out.bin.size(), 8, pointers);
      for (int64_t id : sequence) PutLittle(static_cast<uint64_t>(id), type.num_bytes, out.bin);
      ++sequences;
    }
    PutLittle(sequences, 8, ends);
  }
  out.idx = std::string("MMIDIDX\0\0", 9);
  PutLittle(1, 8, out.idx);
  PutLittle(static_cast<uint64_t>(type.code), 1, out.idx);
  PutLittle(sequences, 8, out.idx);
  PutLittle(documents.size() + 1, 8, out.idx);
  out.idx += lengths + pointers + ends;
  return out;
}

const std::vector<Document>& Documents() {
  static const auto* const kDocuments =
      new std::vector<Document>{{{1, 2, 3}}, {{4}, {5, 6}}, {{}, {7}}, {{8, 9}}};
  return *kDocuments;
}

// Replaces a number of `num_bytes` at byte `at`.
std::string With(std::string bytes, size_t at, uint64_t value, int num_bytes) {
  std::string number;
  PutLittle(value, num_bytes, number);
  return bytes.replace(at, number.size(), number);
}

struct Scanned {
  std::vector<std::string> samples;  // "key: ids", or "key: reason"
  std::string damage;
  absl::Status status;
};

Scanned Scan(const Pair& pair) {
  MemorySource source;
  source.objects["a.bin"] = pair.bin;
  source.objects["a.idx"] = pair.idx;
  auto scanner = MakeMegatronScanner(source, source, "a.bin", pair.bin.size());
  TextParser parser;
  Scanned out;
  for (;;) {
    auto sample = scanner->Next();
    out.status = sample.status();
    if (!sample.ok() || !sample->has_value()) break;
    if ((*sample)->reason == kShardDamaged) {
      out.damage = absl::StrCat((*sample)->key, ": ", (*sample)->detail);
      continue;
    }
    std::string seen = (*sample)->reason;
    if (seen.empty()) {
      const SampleMember& member = (*sample)->members[0];
      std::string bytes(member.size, ' ');
      EXPECT_TRUE(scanner->ReadMember(member, std::as_writable_bytes(std::span(bytes))).ok());
      auto parsed = parser.ParseTokens(bytes, (*sample)->tokens);
      seen = parsed.ok() ? absl::StrJoin((*parsed)->conversation.tokens, " ")
                         : std::string(parsed.status().message());
    }
    out.samples.push_back(absl::StrCat((*sample)->key, ": ", seen));
  }
  return out;
}

TEST(Megatron, HasADocumentOfItsSequencesInEveryType) {
  for (const Type type : {Type{1, 1}, Type{2, 1}, Type{3, 2}, Type{4, 4}, Type{5, 8}, Type{8, 2}}) {
    const Scanned scanned = Scan(Write(Documents(), type));
    EXPECT_TRUE(scanned.status.ok()) << scanned.status;
    EXPECT_EQ(scanned.damage, "");
    EXPECT_THAT(scanned.samples, ElementsAre("0: 1 2 3", "1: 4 5 6", "2: 7", "3: 8 9")) << type.code;
  }
}

TEST(Megatron, ReadsIdsWithTheirSign) {
  EXPECT_THAT(Scan(Write({{{255}}}, {1, 1})).samples, ElementsAre("0: 255"));
  EXPECT_THAT(Scan(Write({{{65535}}}, {8, 2})).samples, ElementsAre("0: 65535"));
  for (const Type type : {Type{2, 1}, Type{3, 2}, Type{4, 4}, Type{5, 8}})
    EXPECT_THAT(Scan(Write({{{3, -1}}}, type)).samples, ElementsAre(HasSubstr("token 1 has the id -1")))
        << type.code;
  EXPECT_THAT(Scan(Write({{{int64_t{1} << 32}}}, {5, 8})).samples, ElementsAre(HasSubstr("id 4294967296")));
}

TEST(Megatron, NamesTypesAndVersionsThatAreNotRead) {
  const Pair good = Write(Documents());
  for (const auto& [code, why] :
       {std::pair{6, "float64"}, {7, "float32"}, {0, "unknown type 0"}, {9, "unknown type 9"}}) {
    const Scanned scanned = Scan({good.bin, With(good.idx, 17, static_cast<uint64_t>(code), 1)});
    EXPECT_TRUE(absl::IsInvalidArgument(scanned.status));
    EXPECT_THAT(std::string(scanned.status.message()), HasSubstr(why));
  }
  EXPECT_THAT(std::string(Scan({good.bin, With(good.idx, 9, 2, 8)}).status.message()),
              HasSubstr("version 2"));
  const Scanned modes = Scan({good.bin, good.idx + std::string(6, '\0')});
  EXPECT_TRUE(absl::IsInvalidArgument(modes.status));
  EXPECT_THAT(std::string(modes.status.message()), HasSubstr("modes"));
}

TEST(Megatron, FindsEveryCutAndEveryContradiction) {
  const Pair good = Write(Documents());
  for (size_t size = 0; size < good.idx.size(); ++size) {
    const Scanned scanned = Scan({good.bin, good.idx.substr(0, size)});
    EXPECT_TRUE(scanned.status.ok()) << size;
    EXPECT_THAT(scanned.damage, testing::StartsWith(": its .idx: ")) << size;
    EXPECT_TRUE(scanned.samples.empty());
  }
  // The .bin is shorter or longer than the sequences.
  const Scanned cut = Scan({good.bin.substr(0, good.bin.size() - 1), good.idx});
  EXPECT_THAT(cut.samples, ElementsAre("0: 1 2 3", "1: 4 5 6", "2: 7"));
  EXPECT_EQ(cut.damage, "3: its .idx: sequence 5 is at bytes 28 to 36, the .bin has 35");
  EXPECT_THAT(Scan({good.bin + "x", good.idx}).damage, HasSubstr("have 36 bytes, the .bin has 37"));
  const size_t lengths = 34, pointers = lengths + 6 * 4, ends = pointers + 6 * 8;
  EXPECT_THAT(Scan({good.bin, With(good.idx, lengths + 4, uint64_t{0} - 1, 4)}).damage,
              HasSubstr("has -1 tokens"));
  EXPECT_THAT(Scan({good.bin, With(good.idx, lengths, 0x7FFFFFFF, 4)}).damage, HasSubstr("the .bin has 36"));
  EXPECT_THAT(Scan({good.bin, With(good.idx, pointers + 8, 1 << 20, 8)}).damage,
              HasSubstr("sequence 1 is at byte 1048576, the one before it ends at byte 12"));
  EXPECT_THAT(Scan({good.bin, With(good.idx, ends, 1, 8)}).damage,
              HasSubstr("begins with sequence 1, not 0"));
  EXPECT_THAT(Scan({good.bin, With(good.idx, ends + 8, 7, 8)}).damage, HasSubstr("there are 6"));
  EXPECT_THAT(Scan({good.bin, With(good.idx, ends + 16, 0, 8)}).damage, HasSubstr("ends before sequence 0"));
  EXPECT_THAT(Scan({good.bin, With(good.idx, ends + 32, 5, 8)}).damage, HasSubstr("end at sequence 5 of 6"));
  // Counts that no file could have.
  EXPECT_THAT(Scan({good.bin, With(good.idx, 18, uint64_t{1} << 62, 8)}).damage,
              HasSubstr("4611686018427387904"));
  EXPECT_THAT(Scan({good.bin, With(good.idx, 26, uint64_t{0} - 1, 8)}).damage,
              HasSubstr("ends of documents"));
}

// A measurer that counts tokens of text as FakeMeasurer does, and those that are there already.
class TokenMeasurer : public FakeMeasurer {
 public:
  using FakeMeasurer::FakeMeasurer;
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const MediaFacts> facts) const override {
    if (conversation.tokens.empty()) return FakeMeasurer::MeasureSequence(conversation, items, facts);
    const auto count = static_cast<uint32_t>(conversation.tokens.size());
    return SequenceLengths{count, count - 1};
  }
};

class MegatronIndex : public ::testing::Test {
 protected:
  MegatronIndex() {
    job_.path = "job.yaml";
    job_.index = folder_.path() + "/index";
    WritePair(Write(Documents()));
    job_.datasets = {
        {.name = "data", .shards = {folder_.path() + "/a.bin"}, .format = DataFormat::kMegatron}};
  }
  void WritePair(const Pair& pair) {
    folder_.Write("a.bin", pair.bin);
    folder_.Write("a.idx", pair.idx);
  }
  absl::StatusOr<IndexSummary> Build(IndexOptions options = {}) {
    return BuildIndex(job_, measurer_, *source_, options, &exclusions_);
  }
  // "ids length" of a row.
  std::string Seen(uint64_t row) {
    auto index = Index::Open(job_, measurer_.digest(), *source_);
    if (!index.ok()) return index.status().ToString();
    ConversationReader reader;
    auto read = reader.Read(*(*index)->places(0, row), job_.limits, *source_);
    if (!read.ok()) return read.status().ToString();
    return absl::StrCat(absl::StrJoin((*read)->tokens, " "), ", ", *(*index)->llm_length(0, row));
  }

  TempFolder folder_;
  Job job_;
  TokenMeasurer measurer_;
  std::unique_ptr<ByteSource> source_ = MakeShardSource({});
  std::vector<Exclusion> exclusions_;
};

TEST_F(MegatronIndex, HasTheTokensOfEveryDocument) {
  auto summary = Build();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_samples, 4u);
  EXPECT_EQ(summary->llm_tokens, 9u);
  EXPECT_TRUE(exclusions_.empty());
  EXPECT_EQ(Seen(0), "1 2 3, 3");
  EXPECT_EQ(Seen(1), "4 5 6, 3");
  EXPECT_EQ(Seen(3), "8 9, 2");
  // A second run reads nothing again; another processor reads the tokens alone, without the .idx.
  auto again = Build();
  EXPECT_EQ(again->shards_unchanged, 1u);
  EXPECT_EQ(again->digest, summary->digest);
  TokenMeasurer other("other");
  EXPECT_EQ(BuildIndex(job_, other, *source_)->shards_remeasured, 1u);
}

TEST_F(MegatronIndex, IsReadAgainWhereTheIdxAloneChanged) {
  const Digest before = Build()->digest;
  const std::string bin = ReadFile(folder_.path() + "/a.bin");
  const Pair joined = Write({{{1, 2, 3}, {4}}, {{5, 6}}, {{}, {7}}, {{8, 9}}});
  ASSERT_EQ(joined.bin, bin);
  folder_.Write("a.idx", joined.idx);
  auto after = Build();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->shards_read, 1u);
  EXPECT_NE(after->digest, before);
  EXPECT_EQ(Seen(0), "1 2 3 4, 4");
  // Workers read X.bin alone, and see that it changed.
  std::filesystem::remove(folder_.path() + "/a.idx");
  EXPECT_EQ(Seen(1), "5 6, 2");
  EXPECT_THAT(std::string(Build().status().message()), HasSubstr("a.idx: no such file"));
  folder_.Write("a.bin", std::string(bin.size(), '\1'));
  source_ = MakeShardSource({});
  EXPECT_THAT(Seen(0), HasSubstr("differ from the indexed ones"));
}

TEST_F(MegatronIndex, ExcludesWhatCannotBeUsedByName) {
  WritePair(Write({{{1}}, {{}}, {{2, -3}}, {{4, 5, 6, 7, 8}}, {{9, 9, 9, 9, 9, 9, 9}}, {}}));
  job_.limits.max_text_bytes = 24;
  job_.limits.max_llm_length = 4;
  auto summary = Build();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_samples, 1u);
  std::vector<std::string> reasons;
  for (const Exclusion& exclusion : exclusions_) reasons.push_back(exclusion.key + ": " + exclusion.reason);
  EXPECT_THAT(reasons, testing::UnorderedElementsAre("1: no text", "2: bad tokens", "3: too long",
                                                     "4: text too long", "5: no text"));
}

}  // namespace
}  // namespace evenkeel::dataset
