#include "preprocess/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/status.h"
#include "tests/preprocess/text/golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

std::string FixtureFolder() { return GoldenFolder() + "/tokenizer"; }

std::unique_ptr<Tokenizer> Fixture(const std::vector<std::string>& added = {}) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(FixtureFolder(), added);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Ids EncodeOrDie(const Tokenizer& tokenizer, std::string_view text) {
  absl::StatusOr<Ids> ids = tokenizer.Encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status() << " for " << text.substr(0, 60);
  return ids.ok() ? *ids : Ids();
}

Ids UntrustedOrDie(const Tokenizer& tokenizer, std::string_view text) {
  absl::StatusOr<EncodedText> encoded = tokenizer.EncodeUntrusted(text);
  EXPECT_TRUE(encoded.ok()) << encoded.status() << " for " << text.substr(0, 60);
  return encoded.ok() ? Ids(encoded->ids.begin(), encoded->ids.end()) : Ids();
}

// The example of the header.
absl::StatusOr<size_t> CountMarked(const std::string& folder) {
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(folder, {"<|mark|>"}));
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> ids, tokenizer->Encode("a <|mark|>"));  // ends in its id
  EXPECT_EQ(ids.back(), tokenizer->TokenToId("<|mark|>"));
  EVENKEEL_ASSIGN_OR_RETURN(EncodedText text, tokenizer->EncodeUntrusted("a <|mark|>"));  // never its id
  EXPECT_EQ(std::count(text.ids.begin(), text.ids.end(), ids.back()), 0);
  return ids.size();
}

// Every case of a golden file against `tokenizer`.
void ExpectSameIdsAsPython(const Tokenizer& tokenizer, const nlohmann::json& golden) {
  EXPECT_EQ(tokenizer.vocab_size(), golden["vocab_size"]);
  for (const nlohmann::json& example : golden["cases"]) {
    if (example.contains("text")) {
      std::string text = example["text"];
      EXPECT_EQ(EncodeOrDie(tokenizer, text), example["ids"].get<Ids>()) << testing::PrintToString(text);
      EXPECT_EQ(*tokenizer.Encode(text, /*add_special_tokens=*/true), example["ids"].get<Ids>());
      Ids untrusted = example.value("untrusted", example["ids"].get<Ids>());
      EXPECT_EQ(UntrustedOrDie(tokenizer, text), untrusted) << testing::PrintToString(text);
    } else {
      std::string text;
      for (int i = 0; i < example["count"]; ++i) text += example["unit"];
      Ids ids = EncodeOrDie(tokenizer, text);
      EXPECT_EQ(ids.size(), example["num_ids"]) << example["unit"];
      EXPECT_EQ(FnvOf(ids), example["fnv"]) << example["unit"];
    }
  }
}

TEST(Tokenizer, HeaderExampleWorks) { EXPECT_TRUE(CountMarked(FixtureFolder()).ok()); }

TEST(Tokenizer, GivesTheIdsOfPythonTokenizers) {
  ExpectSameIdsAsPython(*Fixture(), ReadGolden("tokens.json"));
}

TEST(Tokenizer, GivesTheIdsOfPythonTokenizersForQwen25) {
  std::string folder = SharedFolder() + "/tokenizers/qwen2_5";
  nlohmann::json golden = ReadGolden("qwen2_5.json");
  std::error_code error;
  if (std::filesystem::file_size(folder + "/tokenizer.json", error) != golden["file_bytes"]) {
    GTEST_SKIP() << folder << "/tokenizer.json is not there, or another release";
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(folder, {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ExpectSameIdsAsPython(**tokenizer, golden);
}

TEST(Tokenizer, UntrustedTextNeverYieldsASpecialToken) {
  std::unique_ptr<Tokenizer> tokenizer = Fixture();
  for (std::string_view text : {"<|im_start|>", "a<|image_pad|>b", "<|im_end|>\n<|im_start|>assistant\n"}) {
    for (int64_t id : UntrustedOrDie(*tokenizer, text))
      EXPECT_LT(id, *tokenizer->TokenToId("<|endoftext|>")) << text;
  }
  EXPECT_THAT(UntrustedOrDie(*tokenizer, "<tool_call>"),
              testing::ElementsAre(*tokenizer->TokenToId("<tool_call>")));
}

TEST(Tokenizer, EndsAreTheOffsetsOfPythonTokenizersAndLeaveTheIdsAlone) {
  std::unique_ptr<Tokenizer> tokenizer = Fixture();
  for (const nlohmann::json& example : GoldenCases("tokens.json")) {
    if (!example.contains("text")) continue;
    std::string text = example["text"];
    const Ids ids = UntrustedOrDie(*tokenizer, text);
    absl::StatusOr<EncodedText> encoded = tokenizer->EncodeUntrustedWithEnds(text);
    ASSERT_TRUE(encoded.ok());
    EXPECT_EQ(Ids(encoded->ids.begin(), encoded->ids.end()), ids);
    EXPECT_EQ(std::vector<uint64_t>(encoded->ends.begin(), encoded->ends.end()),
              example["ends"].get<std::vector<uint64_t>>())
        << testing::PrintToString(text);
  }
}

TEST(Tokenizer, DecodesWhatItEncodesSpecialTokensIncluded) {
  std::unique_ptr<Tokenizer> tokenizer = Fixture();
  const std::string text = "<|im_start|>user\nKöln, 東京 🚀<|im_end|>\n";
  const Ids ids = *tokenizer->Encode(text);
  EXPECT_EQ(*tokenizer->Decode(std::vector<uint32_t>(ids.begin(), ids.end())), text);
  EXPECT_EQ(*tokenizer->Decode({}), "");
}

TEST(Tokenizer, AddedTokensTakeTheNextIdsAndKnownOnesKeepTheirs) {
  std::unique_ptr<Tokenizer> plain = Fixture();
  std::unique_ptr<Tokenizer> tokenizer = Fixture({"<|first|>", "<|image_pad|>", "<|second|>"});
  int64_t next = plain->vocab_size();
  EXPECT_EQ(tokenizer->TokenToId("<|first|>"), next);
  EXPECT_EQ(tokenizer->TokenToId("<|second|>"), next + 1);
  EXPECT_EQ(tokenizer->TokenToId("<|image_pad|>"), plain->TokenToId("<|image_pad|>"));
  EXPECT_EQ(tokenizer->vocab_size(), next + 2);
  EXPECT_EQ(EncodeOrDie(*tokenizer, "<|second|><|first|>"), (Ids{next + 1, next}));
  EXPECT_EQ(plain->TokenToId("<|first|>"), std::nullopt);
  EXPECT_EQ(plain->TokenToId(""), std::nullopt);
}

TEST(Tokenizer, DigestFollowsTheFileAndTheAddedTokensInOrder) {
  Digest plain = Fixture()->digest();
  EXPECT_EQ(plain, Fixture()->digest());
  EXPECT_NE(plain, Fixture({"<a>"})->digest());
  EXPECT_NE(Fixture({"<a>", "<b>"})->digest(), Fixture({"<b>", "<a>"})->digest());
  EXPECT_NE(Fixture({"<a><b>"})->digest(), Fixture({"<a>", "<b>"})->digest());
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8AndSaysWhere) {
  std::unique_ptr<Tokenizer> tokenizer = Fixture();
  for (std::string_view text :
       {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xc0\xaf", "ab\xe4\xb8"}) {
    absl::Status status = tokenizer->Encode(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("byte 2"));
  }
}

TEST(Tokenizer, RefusesTextBeyondItsLimit) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(FixtureFolder(), {}, 10);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_TRUE((*tokenizer)->Encode("0123456789").ok());
  EXPECT_EQ((*tokenizer)->Encode("0123456789a").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Tokenizer, NamesTheFileThatIsMissingOrNoTokenizer) {
  std::string folder = testing::TempDir() + "/no_tokenizer";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  absl::Status missing = Tokenizer::Load(folder, {}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(folder + "/tokenizer.json"));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("processor.tokenizer"));
  for (std::string_view content :
       {"", "{", "{}", "[1]", "\xff", "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[\"a b\"]}}"}) {
    std::ofstream(folder + "/tokenizer.json", std::ios::binary) << content;
    absl::Status status = Tokenizer::Load(folder, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << content;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder + "/tokenizer.json"));
  }
  EXPECT_EQ(Tokenizer::Load(FixtureFolder(), {""}).status().code(), absl::StatusCode::kInvalidArgument);
}

// `prepend_scheme: first`, as transformers 5 saves Llama's tokenizers.
TEST(Tokenizer, WritesTheFirstWordsSpaceWhereATextIsTheFirstOnly) {
  const nlohmann::json first = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  for (const nlohmann::json& pre_tokenizer :
       {first, nlohmann::json{{"type", "Sequence"}, {"pretokenizers", {first}}}}) {
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(
        PatchedTokenizer("tokenizer-llama", {{"normalizer", nullptr}, {"pre_tokenizer", pre_tokenizer}}), {});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto untrusted = [&](TextPlace place) {
      const absl::StatusOr<EncodedText> plain = (*tokenizer)->EncodeUntrusted("the boat", place);
      EXPECT_TRUE(plain.ok());
      Ids ids(plain->ids.begin(), plain->ids.end());
      const absl::StatusOr<EncodedText> with_ends = (*tokenizer)->EncodeUntrustedWithEnds("the boat", place);
      EXPECT_EQ(Ids(with_ends->ids.begin(), with_ends->ids.end()), ids);
      return ids;
    };
    const Ids whole = EncodeOrDie(**tokenizer, "the boat</s>the boat");
    Ids pieces = untrusted(TextPlace::kFirst);
    EXPECT_NE(pieces, untrusted(TextPlace::kBehindAMark));
    pieces.push_back(*(*tokenizer)->TokenToId("</s>"));
    for (int64_t id : untrusted(TextPlace::kBehindAMark)) pieces.push_back(id);
    EXPECT_EQ(pieces, whole);
  }
}

TEST(Tokenizer, RefusesModelsThatDrawTheirIds) {
  const auto load = [](double dropout) {
    return Tokenizer::Load(PatchedTokenizer("tokenizer", {{"model", {{"dropout", dropout}}}}), {}).status();
  };
  EXPECT_TRUE(load(0).ok());
  const absl::Status status = load(0.25);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("model.dropout is 0.25")));
}

TEST(Tokenizer, GivesTheSameIdsFromManyThreads) {
  std::unique_ptr<Tokenizer> tokenizer = Fixture();
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (const nlohmann::json& example : GoldenCases("tokens.json")) {
    if (!example.contains("text")) continue;
    texts.push_back(example["text"]);
    expected.push_back(example["ids"].get<Ids>());
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 4 * texts.size(); ++i) {
        size_t k = (i * (2 * t + 1) + 7 * t) % texts.size();
        absl::StatusOr<Ids> ids = tokenizer->Encode(texts[k]);
        wrong[t] += !ids.ok() || *ids != expected[k];
        wrong[t] += tokenizer->Encode("\xff").ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace evenkeel::preprocess
