#include "dataset/sample_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "dataset/json.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

std::vector<SampleMember> Members(const std::vector<std::string>& suffixes) {
  std::vector<SampleMember> out;
  for (const std::string& suffix : suffixes) out.push_back({suffix, out.size() * 1000, 10});
  return out;
}

// "conversation | suffix suffix", or the error.
std::string Parse(const std::string& json, const std::vector<std::string>& suffixes,
                  const std::string& key = "d/k") {
  Limits limits;
  auto parsed = ParseChat(json, limits);
  if (!parsed.ok()) return std::string(parsed.status().message());
  auto members = Members(suffixes);
  auto items = ResolveItems(parsed->references, key, members);
  if (!items.ok()) return std::string(items.status().message());
  std::string out = Line(parsed->conversation) + " |";
  for (size_t i : *items) out += " " + members[i].suffix;
  return out;
}

TEST(Json, AcceptsWhatTheStandardSaysAndNothingElse) {
  for (const char* good : {"{}", " [1, -0.5e+3, 0, true, false, null] ", R"("\u00e9\ud83d\ude00\n\/")",
                           R"({"a":{"b":[]}})", "1e9", "\"\\\\\""}) {
    EXPECT_TRUE(ParseJson(good, 64).ok()) << good << ParseJson(good, 64).status();
  }
  for (const char* bad : {"",
                          "{",
                          "[1,]",
                          "{\"a\":1,}",
                          "{a:1}",
                          "01",
                          "1.",
                          ".5",
                          "+1",
                          "nul",
                          "NaN",
                          "'a'",
                          "\"a",
                          "\"\n\"",
                          R"("\ud83d")",
                          R"("\ude00")",
                          R"("\x")",
                          "[] []",
                          "{\"a\":1 \"b\":2}",
                          "{\"a\":1,\"a\":2}",
                          "\"\xff\"",
                          "[1 2]",
                          "-",
                          "1e",
                          "// c\n1"}) {
    EXPECT_FALSE(ParseJson(bad, 64).ok()) << bad;
  }
  EXPECT_EQ(ParseJson(R"("\u00e9\ud83d\ude00")", 1)->text, "\xC3\xA9\xF0\x9F\x98\x80");
}

TEST(Json, BoundsDepthAndNumberOfValues) {
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']'), 64).ok());
  const absl::Status deep = ParseJson(std::string(65, '[') + std::string(65, ']'), 64).status();
  EXPECT_EQ(deep, absl::ResourceExhaustedError("JSON, byte 64: nested deeper than limits.max_json_depth 64"));
  EXPECT_FALSE(ParseJson(std::string(1 << 20, '['), 64).ok());
  std::string wide = "[0";
  for (uint64_t i = 0; i < kMaxJsonValues; ++i) wide += ",0";
  EXPECT_FALSE(ParseJson(wide + "]", 64).ok());
}

TEST(ParsePlain, PutsMediaBeforeTheText) {
  Limits limits;
  auto parsed = ParsePlain("a cat", {Medium::kImage, Medium::kAudio}, limits);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Line(parsed->conversation), "plain: assistant[<image 0><audio 1>a cat]");
  EXPECT_EQ(ParsePlain("a\xff", {}, limits).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Suffixes, AreOrderedNaturally) {
  auto members = Members({"10.jpg", "2.jpg", "txt", "a.png", "02.jpg", "1.mp4", "cls"});
  std::vector<std::string> order;
  for (size_t i : PlainItems(members)) order.push_back(members[i].suffix);
  EXPECT_EQ(order, (std::vector<std::string>{"1.mp4", "02.jpg", "2.jpg", "10.jpg", "a.png"}));
}

TEST(ParseChat, ReadsHuggingFaceMessages) {
  EXPECT_EQ(Parse(R"({"messages":[{"role":"system","content":"be nice"},{"role":"user","content":[
      {"type":"image","image":"0.jpg"},{"type":"text","text":"what?"},{"type":"audio"},{"type":"video","path":"d/k.v.mp4"}]},
      {"role":"assistant","content":"a cat <image>"},{"role":"tool","content":"42"}]})",
                  {"wav", "0.jpg", "1.jpg", "v.mp4", "json"}),
            "system[be nice] user[<image 0>what?<audio 1><video 2>] assistant[a cat <image>] tool[42] | "
            "0.jpg wav v.mp4");
}

TEST(ParseChat, TakesTheNextUnusedMemberWhereNoneIsNamed) {
  EXPECT_EQ(
      Parse(
          R"({"messages":[{"role":"user","content":[{"type":"image"},{"type":"image","url":"1.jpg"},{"type":"image"}]}]})",
          {"10.jpg", "2.jpg", "1.jpg"}),
      "user[<image 0><image 1><image 2>] | 2.jpg 1.jpg 10.jpg");
  EXPECT_EQ(
      Parse(R"({"messages":[{"role":"user","content":[{"type":"image"},{"type":"image"}]}]})", {"1.jpg"}),
      "the text has more places for image than the sample has members");
  EXPECT_EQ(
      Parse(
          R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"k.1.JPG"}}]}]})",
          {"0.jpg", "1.jpg"}),
      "user[<image 0>] | 1.jpg");
}

TEST(ParseChat, NamesAVideoAsAudioForItsSound) {
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":[{"type":"video","video":"a.mp4"},
                  {"type":"audio","audio":"a.mp4"},{"type":"audio"}]}]})",
                  {"a.mp4", "b.wav"}),
            "user[<video 0><audio 1><audio 2>] | a.mp4 a.mp4 b.wav");
  EXPECT_NE(Parse(R"({"messages":[{"role":"user","content":[{"type":"audio"}]}]})", {"a.mp4"})
                .find("more places for audio"),
            std::string::npos)
      << "only where it is named";
}

TEST(ParseChat, ReadsMarksInMessagesOnlyWithFieldsBesideThem) {
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":"<image>a<video>"}],"images":["1.jpg"]})",
                  {"0.jpg", "1.jpg"}),
            "user[<image 0>a<video>] | 1.jpg");
  EXPECT_EQ(
      Parse(R"({"messages":[{"role":"user","content":[{"type":"image"}]}],"images":[{"path":"1.jpg"}]})",
            {"0.jpg", "1.jpg"}),
      "user[<image 0>] | 1.jpg");
}

TEST(ParseChat, ReadsLlavaConversations) {
  const char* json = R"({"id":"1","image":["b.jpg","a.jpg"],"conversations":[
      {"from":"human","value":"<image>\nthis <audio> or <image>?"},{"from":"gpt","value":"that"}]})";
  EXPECT_EQ(Parse(json, {"a.jpg", "b.jpg", "wav"}),
            "user[<image 0>\nthis <audio 1> or <image 2>?] assistant[that] | b.jpg wav a.jpg");
  EXPECT_EQ(Parse(R"({"conversations":[{"from":"human","value":"<image><image>"}]})", {"2.png", "10.png"}),
            "user[<image 0><image 1>] | 2.png 10.png");
  // A path of the folder the data once lay in counts, where it names nothing here.
  EXPECT_EQ(
      Parse(R"({"image":"coco/train2017/033471.jpg","conversations":[{"from":"human","value":"<image>"}]})",
            {"jpg"}),
      "user[<image 0>] | jpg");
}

TEST(ParseChat, SaysWhatIsWrong) {
  auto llava = [](const std::string& fields, const std::string& value) {
    return "{" + fields + "\"conversations\":[{\"from\":\"human\",\"value\":\"" + value + "\"}]}";
  };
  EXPECT_EQ(Parse(llava("\"image\":\"0.jpg\",", "no mark"), {"0.jpg"}),
            "images: 1 named, but the text has 0 places for them");
  EXPECT_NE(Parse(llava("\"image\":\"0.jpg\",", "<image><image>"), {"0.jpg", "1.jpg"})
                .find("more places for image"),
            std::string::npos);
  EXPECT_NE(
      Parse(llava("\"images\":[\"0.jpg\",\"7.jpg\"],", "<image><image>"), {"0.jpg", "1.jpg"}).find("'7.jpg'"),
      std::string::npos);
  EXPECT_NE(Parse(R"({"messages":[{"role":"user","content":[{"type":"image","image":"x.jpg"}]}]})", {"0.jpg"})
                .find("'x.jpg'"),
            std::string::npos);
  EXPECT_NE(Parse(R"({"messages":[{"role":"user","content":[{"type":"image","image":"a.wav"}]}]})", {"a.wav"})
                .find("another medium"),
            std::string::npos);
  EXPECT_NE(Parse(R"({"messages":[{"role":"user","content":[{"type":"video","video":"a.wav"}]}]})", {"a.wav"})
                .find("another medium"),
            std::string::npos);
  EXPECT_EQ(Parse(R"({"messages":[]})", {}), "messages: not a list of turns");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"boss","content":"x"}]})", {}), "messages[0]: unknown role 'boss'");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":null}]})", {}),
            "messages[0]: 'content' is neither a text nor a list of parts");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":[{"type":"smell"}]}]})", {}),
            "messages[0].content[0]: unknown type 'smell'");
  EXPECT_EQ(Parse(R"({"conversations":[{"from":"human"}]})", {}), "conversations[0]: no text 'value'");
  Limits limits;
  EXPECT_EQ(ParseChat(R"({"caption":"x"})", limits).status().code(), absl::StatusCode::kNotFound);
  limits.max_items = 1;
  EXPECT_EQ(ParseChat(llava("", "<image><image>"), limits).status(),
            absl::ResourceExhaustedError("more items than limits.max_items 1"));
  limits = Limits{};
  limits.max_text_bytes = 10;
  EXPECT_EQ(ParseChat(std::string(11, ' '), limits).status(),
            absl::ResourceExhaustedError("11 bytes of text; limits.max_text_bytes is 10"));
}

TEST(ParseChat, EndsOnEveryMutation) {
  const std::string json =
      R"({"image":["b.jpg"],"messages":[{"role":"user","content":[{"type":"image","image":"0.jpg"},
      {"type":"text","text":"\u00e9 what?"}]},{"role":"assistant","content":"a cat <image>"}]})";
  std::mt19937_64 random(7);
  Limits limits;
  int good = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string mutated = json;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      mutated[random() % mutated.size()] = static_cast<char>(random() % 128);
    }
    auto parsed = ParseChat(mutated, limits);
    if (!parsed.ok()) continue;
    ++good;
    uint32_t items = 0;
    for (const Turn& turn : parsed->conversation.turns) {
      for (const evenkeel::Span& span : turn.spans) {
        if (span.medium == Medium::kText) continue;
        EXPECT_EQ(span.item, items++);
      }
    }
    EXPECT_EQ(items, parsed->references.size());
  }
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace evenkeel::dataset
