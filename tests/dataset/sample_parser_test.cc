#include "dataset/format/sample_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "absl/strings/str_cat.h"
#include "dataset/format/json.h"
#include "dataset/format/json_text.h"
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
  TextParser parser;
  auto parsed = parser.ParseChat(json, limits);
  if (!parsed.ok()) return std::string(parsed.status().message());
  auto members = Members(suffixes);
  auto items = ResolveItems((*parsed)->references, key, members);
  if (!items.ok()) return std::string(items.status().message());
  std::string out = Line((*parsed)->conversation) + " |";
  for (size_t i : *items) out += " " + members[i].suffix;
  return out;
}

absl::Status ReadJson(std::string_view text, uint32_t max_depth = 64) {
  return JsonDocument().Parse(text, max_depth).status();
}

TEST(Json, AcceptsWhatTheStandardAndPythonSayAndNothingElse) {
  for (const char* good :
       {"\xef\xbb\xbf[]", "[NaN, Infinity, -Infinity]", "{}", " [1, -0.5e+3, 0, true, false, null] ",
        R"("\u00e9\ud83d\ude00\n\/")", R"({"a":{"b":[]}})", "1e9", "\"\\\\\""}) {
    EXPECT_TRUE(ReadJson(good).ok()) << good << ReadJson(good);
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
                          "nan",
                          "-NaN",
                          "+Infinity",
                          "Inf",
                          "-Inf",
                          "[]\xef\xbb\xbf",
                          "\xef\xbb\xbf",
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
    EXPECT_FALSE(ReadJson(bad).ok()) << bad;
  }
  JsonDocument document;
  EXPECT_EQ((*document.Parse("-Infinity", 1))->text, "-Infinity");
  EXPECT_EQ((*document.Parse(R"("\u00e9\ud83d\ude00")", 1))->text, "\xC3\xA9\xF0\x9F\x98\x80");
}

// Escaped strings lie in one piece of memory, which must not move while later ones are added.
TEST(Json, KeepsEveryTextOfADocument) {
  std::string json = "{";
  for (int i = 0; i < 1000; ++i)
    absl::StrAppend(&json, i ? "," : "", "\"\\u006b", i, "\":[\"v\\n", i, "\",\"w\"]");
  json += "}";
  JsonDocument document;
  for (int round = 0; round < 2; ++round) {
    const auto root = document.Parse(json, 64);
    ASSERT_TRUE(root.ok()) << root.status();
    int i = 0;
    for (const JsonValue& value : (*root)->values()) {
      EXPECT_EQ(value.key, absl::StrCat("k", i));
      EXPECT_EQ((*value.values().begin()).text, absl::StrCat("v\n", i));
      EXPECT_EQ((*root)->Find(value.key), &value);
      ++i;
    }
    EXPECT_EQ(i, 1000);
    EXPECT_EQ((*root)->Find("k1000"), nullptr);
    ASSERT_TRUE(document.Parse("[]", 64).ok());
  }
}

TEST(Json, BoundsDepthAndNumberOfValues) {
  EXPECT_TRUE(ReadJson(std::string(64, '[') + std::string(64, ']')).ok());
  const absl::Status deep = ReadJson(std::string(65, '[') + std::string(65, ']'));
  EXPECT_EQ(deep, absl::ResourceExhaustedError("JSON, byte 64: nested deeper than limits.max_json_depth 64"));
  EXPECT_FALSE(ReadJson(std::string(1 << 20, '[')).ok());
  std::string wide = "[0";
  for (uint64_t i = 0; i < kMaxJsonValues; ++i) wide += ",0";
  EXPECT_FALSE(ReadJson(wide + "]").ok());
}

TEST(ParsePlain, PutsMediaBeforeTheText) {
  Limits limits;
  TextParser parser;
  auto parsed = parser.ParsePlain("a cat", std::array{Medium::kImage, Medium::kAudio}, limits);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Line((*parsed)->conversation), "plain: assistant[<image 0><audio 1>a cat]");
  EXPECT_EQ(parser.ParsePlain("a\xff", {}, limits).status().code(), absl::StatusCode::kInvalidArgument);
}

// A file that could be decoded is never left out of its sample.
TEST(Suffixes, OfEveryContainerThatIsDecodedNameAMedium) {
  for (const char* audio :
       {"wav", "flac", "mp3", "m4a", "aac", "ac3", "ogg", "oga", "opus", "mka", "aiff", "aif", "aifc"}) {
    EXPECT_EQ(KindOf(audio), MemberKind::kMedia) << audio;
    EXPECT_EQ(MediumOf(audio), Medium::kAudio) << audio;
  }
  for (const char* video : {"mp4", "m4v", "mov", "avi", "mkv", "webm"}) {
    EXPECT_EQ(KindOf(video), MemberKind::kMedia) << video;
    EXPECT_EQ(MediumOf(video), Medium::kVideo) << video;
  }
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
      "the text has more placeholders for image than the sample has members");
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
                .find("more placeholders for audio"),
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

TEST(ParseChat, ReadsImageMarksOfVideoConversationsAsTheirVideos) {
  auto chat = [](const std::string& fields, const std::string& text) {
    return "{" + fields + R"(,"conversations":[{"from":"human","value":")" + text +
           R"("},{"from":"gpt","value":"a"}]})";
  };
  EXPECT_EQ(Parse(chat(R"("video":"far/0.mp4")", "<image>\\nwhat?"), {"mp4"}),
            "user[<video 0>\nwhat?] assistant[a] | mp4");
  EXPECT_EQ(Parse(chat(R"("videos":["1.mp4","0.mp4"])", "<image><image>"), {"0.mp4", "1.mp4"}),
            "user[<video 0><video 1>] assistant[a] | 1.mp4 0.mp4");
  EXPECT_EQ(Parse(chat(R"("video":"0.mp4")", "<image><video>"), {"0.mp4", "0.jpg"}),
            "user[<image 0><video 1>] assistant[a] | 0.jpg 0.mp4");
  EXPECT_EQ(Parse(chat(R"("videos":[])", "<image>"), {"0.jpg"}), "user[<image 0>] assistant[a] | 0.jpg");
  EXPECT_EQ(Parse(chat(R"("video":"0.mp4","image":"0.jpg")", "<image>"), {"0.mp4", "0.jpg"}),
            "videos: 1 named, but the text has 0 placeholders for them");
}

// The rule of TRL and ms-swift.
TEST(ParseChat, PlacesUnplacedMediaBeforeTheFirstText) {
  const auto chat = [](const std::string& fields, const std::string& turns) {
    return "{" + fields + R"(,"messages":[{"role":"system","content":"s"},)" + turns + "]}";
  };
  const std::string images = R"("images":["0.jpg","1.jpg"])", ask = R"({"role":"user","content":"what?"})";
  const std::string parts = R"({"role":"user","content":[{"type":"text","text":"what?"}]})";
  const std::vector<std::string> members = {"0.jpg", "1.jpg"};
  EXPECT_EQ(Parse(chat(images, ask + "," + ask), members),
            "system[s] user[<image 0><image 1>what?] user[what?] | 0.jpg 1.jpg");
  EXPECT_EQ(Parse(chat(images, parts + "," + ask), members),
            "system[s] user[what?] user[<image 0><image 1>what?] | 0.jpg 1.jpg");
  EXPECT_EQ(Parse(chat(R"("video":"0.mp4","image":"0.jpg")", R"({"role":"user","content":"<video>what?"})"),
                  {"0.jpg", "0.mp4"}),
            "system[s] user[<image 0><video 1>what?] | 0.jpg 0.mp4");
  EXPECT_EQ(Parse(chat(images, ask + R"(,{"role":"user","content":"<image>?"})"), members),
            "images: 2 named, but the text has 1 placeholders for them");
  EXPECT_EQ(Parse(chat(images, ask + R"(,{"role":"user","content":[{"type":"image"}]})"), members),
            "images: 2 named, but the text has 1 placeholders for them");
  EXPECT_EQ(Parse(chat(images, parts), members), "images: 2 named, but the text has 0 placeholders for them");
}

// As Energon's datasets of LLaVA have it, and those of chats.
TEST(ParseChat, ReadsAListOfTurns) {
  EXPECT_EQ(Parse(R"([{"from":"human","value":"<image>\nwhat?"},{"from":"gpt","value":"a cat"}])", {"jpg"}),
            "user[<image 0>\nwhat?] assistant[a cat] | jpg");
  EXPECT_EQ(Parse(R"([{"role":"system","content":"s"},{"role":"user","content":[{"type":"image"},
                     {"type":"text","text":"<image>?"}]},{"role":"assistant","content":"a"}])",
                  {"jpg"}),
            "system[s] user[<image 0><image>?] assistant[a] | jpg");
  EXPECT_EQ(Parse(R"([{"from":"human","value":"x"},{"from":"boss","value":"y"}])", {}),
            "turns[1]: unknown role 'boss'");
  Limits limits;
  TextParser parser;
  for (const char* other : {"[]", "[1]", R"([[]])", R"([{"bbox":[1,2]}])", R"(["from"])"}) {
    EXPECT_TRUE(absl::IsNotFound(parser.ParseChat(other, limits).status())) << other;
  }
}

TEST(ParseChat, ReadsTurnsByTheirOwnKeysWhateverTheirListIsCalled) {
  EXPECT_EQ(Parse(R"({"image":"0.jpg","conversations":[{"role":"user","content":"<image>what?"},
                     {"role":"assistant","content":"a cat"}]})",
                  {"0.jpg"}),
            "user[<image 0>what?] assistant[a cat] | 0.jpg");
  EXPECT_EQ(
      Parse(R"({"messages":[{"from":"human","value":"x <image>"},{"from":"gpt","value":"y"}]})", {"jpg"}),
      "user[x <image 0>] assistant[y] | jpg");
  EXPECT_EQ(Parse(R"({"conversations":[{"value":"x"}]})", {}), "conversations[0]: no 'from'");
  EXPECT_EQ(Parse(R"({"messages":[{"content":"x"}]})", {}), "messages[0]: no 'role'");
  EXPECT_EQ(Parse(R"({"messages":null,"conversations":[{"from":"human","value":"x"}]})", {}), "user[x] |");
}

TEST(ParseChat, ReadsASystemPromptBesideTheTurns) {
  EXPECT_EQ(Parse(R"({"conversations":[{"from":"human","value":"x"}],"system":"be <image> nice"})", {}),
            "system[be <image> nice] user[x] |");
  for (const char* none : {"null", "\"\""}) {
    EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":"x"}],"system":)" + std::string(none) + "}", {}),
              "user[x] |");
  }
  EXPECT_EQ(Parse(R"({"system":1,"messages":[{"role":"user","content":"x"}]})", {}), "system: not a text");
  EXPECT_EQ(Parse(R"({"system":"a","messages":[{"role":"system","content":"b"}]})", {}),
            "the chat: 'system' in addition to a system turn");
}

TEST(ParseChat, SaysWhatIsWrong) {
  auto llava = [](const std::string& fields, const std::string& value) {
    return "{" + fields + "\"conversations\":[{\"from\":\"human\",\"value\":\"" + value + "\"}]}";
  };
  EXPECT_EQ(Parse(llava("\"image\":\"0.jpg\",", "no mark"), {"0.jpg"}),
            "images: 1 named, but the text has 0 placeholders for them");
  EXPECT_NE(Parse(llava("\"image\":\"0.jpg\",", "<image><image>"), {"0.jpg", "1.jpg"})
                .find("more placeholders for image"),
            std::string::npos);
  EXPECT_NE(
      Parse(llava("\"images\":[\"0.jpg\",\"7.jpg\"],", "<image><image>"), {"0.jpg", "1.jpg"}).find("'7.jpg'"),
      std::string::npos);
  EXPECT_NE(Parse(R"({"messages":[{"role":"user","content":[{"type":"image","image":"x.jpg"}]}]})", {"0.jpg"})
                .find("'x.jpg'"),
            std::string::npos);
  EXPECT_NE(Parse(R"({"messages":[{"role":"user","content":[{"type":"image","image":"a.wav"}]}]})", {"a.wav"})
                .find("does not fit its suffix"),
            std::string::npos);
  EXPECT_NE(Parse(R"({"messages":[{"role":"user","content":[{"type":"video","video":"a.wav"}]}]})", {"a.wav"})
                .find("does not fit its suffix"),
            std::string::npos);
  EXPECT_EQ(Parse(R"({"messages":[]})", {}), "messages: not a list of turns");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"boss","content":"x"}]})", {}), "messages[0]: unknown role 'boss'");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":null}]})", {}),
            "messages[0]: 'content' is neither a text nor a list of parts");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":[{"type":"smell"}]}]})", {}),
            "messages[0].content[0]: unknown type 'smell'");
  EXPECT_EQ(Parse(R"({"conversations":[{"from":"human"}]})", {}), "conversations[0]: no text 'value'");
  Limits limits;
  TextParser parser;
  EXPECT_EQ(parser.ParseChat(R"({"caption":"x"})", limits).status().code(), absl::StatusCode::kNotFound);
  limits.max_items = 1;
  EXPECT_EQ(parser.ParseChat(llava("", "<image><image>"), limits).status(),
            absl::ResourceExhaustedError("more items than limits.max_items 1"));
  limits = Limits{};
  limits.max_text_bytes = 10;
  EXPECT_EQ(parser.ParseChat(std::string(11, ' '), limits).status(),
            absl::ResourceExhaustedError("11 bytes of text; limits.max_text_bytes is 10"));
}

// The only turn of a chat whose message has these members.
Turn TurnWith(TextParser& parser, const std::string& members) {
  auto parsed =
      parser.ParseChat(R"({"messages":[{"role":"assistant","content":"",)" + members + "}]}", Limits());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? (*parsed)->conversation.turns[0] : Turn();
}

TEST(ParseChat, KeepsOtherMembersOfAMessageForTemplates) {
  TextParser parser;
  EXPECT_EQ(TurnWith(parser, R"("name":"\u00e9","weight":1,"audio":null,"x":[1E1,{"y":true}])").members,
            ", \"name\": \"\u00e9\", \"x\": [10.0, {\"y\": true}]");
  EXPECT_EQ(TurnWith(parser, R"("loss":false)").members, "");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":"","n":)" + std::string(4301, '1') + "}]}", {}),
            "messages[0]: 'n': a whole number of more than 4300 digits");
}

TEST(ParseChat, NamesTheMemberThatStylesOfChatsDoNotWrite) {
  TextParser parser;
  for (const char* key : {"function_call", "reasoning_content"}) {
    const std::string quoted = std::string("\"") + key + "\":";
    for (const char* value : {"[{\"name\":\"f\"}]", "{\"name\":\"f\"}", "\"because\""})
      EXPECT_EQ(TurnWith(parser, quoted + value).unwritten, key);
    for (const char* nothing : {"null", "[]", "{}", "\"\""})
      EXPECT_EQ(TurnWith(parser, quoted + nothing).unwritten, "");
  }
}

TEST(ParseChat, ReadsWhatTheDataSayOfTraining) {
  TextParser parser;
  for (const auto& [members, trained] : {std::pair(R"("weight":0)", TrainedByData::kNo),
                                         {R"("weight":1.0)", TrainedByData::kYes},
                                         {R"("loss":true)", TrainedByData::kYes},
                                         {R"("loss":false,"weight":0)", TrainedByData::kNo},
                                         {R"("loss":null)", TrainedByData::kNotSaid},
                                         {R"("weight":0.5)", TrainedByData::kYes},
                                         {R"("loss":true,"weight":0.5)", TrainedByData::kYes},
                                         {R"("weight":true)", TrainedByData::kYes},
                                         {R"("loss":0)", TrainedByData::kNo},
                                         {R"("weight":-1)", TrainedByData::kUnclear},
                                         {R"("weight":1e-9)", TrainedByData::kUnclear},
                                         {R"("weight":1e999)", TrainedByData::kUnclear},
                                         {R"("weight":"1")", TrainedByData::kUnclear},
                                         {R"("loss":0.5)", TrainedByData::kUnclear},
                                         {R"("loss":true,"weight":0)", TrainedByData::kUnclear},
                                         {R"("loss":"true")", TrainedByData::kUnclear},
                                         {R"("loss":false,"weight":1)", TrainedByData::kUnclear}}) {
    EXPECT_EQ(TurnWith(parser, members).trained, trained) << members;
  }
  EXPECT_EQ(TurnWith(parser, R"("weight":2.5)").weight, 2.5f);
  EXPECT_EQ(TurnWith(parser, R"("weight":0)").weight, 1);
  EXPECT_EQ(TurnWith(parser, R"("loss":true)").weight, 1);
  const Limits limits;
  auto llava =
      parser.ParseChat(R"([{"from":"human","value":"?"},{"from":"gpt","value":"x","loss":false}])", limits);
  ASSERT_TRUE(llava.ok()) << llava.status();
  EXPECT_EQ((*llava)->conversation.turns[1].trained, TrainedByData::kNo);
}

// The turns of both sequences, "rejected at turn, prompt of turns"; or the error.
std::string ParsePair(const std::string& json) {
  TextParser parser;
  const auto parsed = parser.ParseRow(json, FieldNames(), Limits());
  EXPECT_TRUE(parser.is_pair()) << json;
  if (!parsed.ok()) return std::string(parsed.status().message());
  const Conversation& pair = (*parsed)->conversation;
  return absl::StrCat(pair.turns.size(), " turns, rejected at ", pair.rejected, ", prompt of ", pair.prompt,
                      ", ", (*parsed)->references.size(), " media");
}

TEST(ParseRow, ReadsPreferencePairs) {
  const std::string ask = R"({"role": "user", "content": "a"})",
                    yes = R"({"role": "assistant", "content": "b"})";
  const std::string no = R"({"role": "assistant", "content": "c"})";
  const std::string answers = absl::StrCat(R"("chosen": [)", yes, R"(], "rejected": [)", no, "]}");
  EXPECT_EQ(ParsePair(absl::StrCat(R"({"prompt": [)", ask, "], ", answers)),
            "4 turns, rejected at 2, prompt of 1, 0 media");
  EXPECT_EQ(ParsePair(absl::StrCat(R"({"system": "s", "prompt": [)", ask, "], ", answers)),
            "6 turns, rejected at 3, prompt of 2, 0 media");
  EXPECT_EQ(ParsePair(absl::StrCat(R"({"prompt": "a", "chosen": [)", ask, ",", yes, R"(], "rejected": [)",
                                   ask, ",", no, "]}")),
            "4 turns, rejected at 2, prompt of 1, 0 media");
  EXPECT_EQ(ParsePair(R"({"image": "1.jpg", "prompt": "a", "chosen": "b", "rejected": "c"})"),
            "4 turns, rejected at 2, prompt of 1, 2 media");
  EXPECT_EQ(ParsePair(R"({"chosen": "a \u00e9", "rejected": "a \u00e8"})"),
            "4 turns, rejected at 2, prompt of 1, 0 media");
  EXPECT_EQ(ParsePair(R"({"chosen": "a", "rejected": "b"})"),
            "a preference pair: 'chosen' and 'rejected' have no 'prompt' and no begin in common");
  EXPECT_EQ(ParsePair(R"({"chosen": "a"})"), "a preference pair: no 'rejected'");
  EXPECT_EQ(ParsePair(absl::StrCat("{", answers)),
            "a preference pair: 'chosen' and 'rejected' have no 'prompt' and no first messages in common");
  EXPECT_EQ(ParsePair(absl::StrCat(R"({"images": ["1.jpg"], "prompt": [)", ask, "], ", answers)),
            "4 turns, rejected at 2, prompt of 1, 2 media");
  EXPECT_EQ(ParsePair(absl::StrCat(R"({"images": ["1.jpg"], "chosen": [)", ask, ",", yes,
                                   R"(], "rejected": [)", ask, ",", no, "]}")),
            "4 turns, rejected at 2, prompt of 1, 2 media");
  EXPECT_EQ(ParsePair(absl::StrCat(R"({"prompt": [)", yes, R"(], "chosen": [)", ask, R"(], "rejected": [)",
                                   no, "]}")),
            "chosen: no turn of the assistant after the prompt");
  TextParser parser;
  EXPECT_TRUE(absl::IsNotFound(parser.ParseChat(R"({"chosen": true})", Limits()).status())) << "metadata";
  EXPECT_TRUE(
      parser.ParseRow(R"({"text": "t", "chosen": "a", "rejected": "b"})", FieldNames(), Limits()).ok());
  EXPECT_FALSE(parser.is_pair()) << "a row with a text is that text";
}

TEST(ParseRow, ReadsPairsUnderTheNamesOfTheJob) {
  TextParser parser;
  const FieldNames names = {.prompt = "q", .chosen = "good", .rejected = "bad"};
  const auto parsed = parser.ParseRow(
      R"({"q": "Even? ", "good": "yes", "bad": "no", "text": "t", "chosen": "x", "prompt": "y"})", names,
      Limits());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_TRUE(parser.is_pair());
  const std::vector<Turn>& turns = (*parsed)->conversation.turns;
  ASSERT_EQ(turns.size(), 4u);
  for (const auto& [turn, text] : {std::pair(0, "Even? "), {1, "yes"}, {2, "Even? "}, {3, "no"}})
    EXPECT_EQ(turns[turn].spans[0].text, text);
  EXPECT_EQ(
      parser.ParseRow(R"({"chosen": "a", "rejected": "b", "good": "c"})", names, Limits()).status().message(),
      "a preference pair: no 'bad'");
  EXPECT_EQ(parser.ParseRow(R"({"good": "c", "bad": []})", names, Limits()).status().message(),
            "bad: is not of the form of 'good': both are texts or lists of messages");
  EXPECT_TRUE(parser
                  .ParseRow(R"({"prompt": "p", "good": "c", "bad": "d"})",
                            {.chosen = "good", .rejected = "bad"}, Limits())
                  .ok());
}

TEST(ParseChat, ReadsDocumentsForTemplates) {
  TextParser parser;
  const Limits limits;
  for (const auto& [documents, kept] :
       {std::pair(R"([{"text":"a"}])", R"([{"text": "a"}])"), {"[]", ""}, {"7", ""}}) {
    auto parsed = parser.ParseChat(
        absl::StrCat(R"({"documents":)", documents, R"(,"messages":[{"role":"user","content":"x"}]})"),
        limits);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ((*parsed)->conversation.documents, kept);
  }
}

TEST(ParseChat, ReadsToolsAndTheirCallsAsTemplatesWriteThem) {
  Limits limits;
  TextParser parser;
  auto parsed = parser.ParseChat(
      R"({"tools":[{"z":1,"a":[1E3,{}]},{}],"messages":[{"role":"user","content":"?"},
      {"role":"assistant","content":null,"tool_calls":[
        {"type":"function","function":{"name":"f","arguments":{"\u00e9\u2028/":"\u0001"}}},
        {"name":"g","arguments":{},"function":null}]},
      {"role":"tool","content":"42"},{"role":"assistant","tool_calls":[{"name":"h","arguments":{}}],"content":"x"}]})",
      limits);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Conversation& chat = (*parsed)->conversation;
  EXPECT_THAT(chat.tools, testing::ElementsAre(R"({"z": 1, "a": [1000.0, {}]})", "{}"));
  ASSERT_EQ(chat.calls.size(), 3u);
  EXPECT_EQ(chat.calls[0].name, "f");
  EXPECT_EQ(chat.calls[0].arguments, "{\"\u00e9\u2028/\": \"\\u0001\"}");
  EXPECT_EQ(chat.calls[0].element,
            "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"\u00e9\u2028/\": "
            "\"\\u0001\"}}}");
  EXPECT_EQ(chat.calls[1].name, "g");
  EXPECT_EQ(chat.calls[2].name, "h");
  EXPECT_EQ(chat.turns[1].calls, 2u);
  EXPECT_TRUE(chat.turns[1].spans.empty());
  EXPECT_EQ(chat.turns[3].calls, 1u);
  // Nothing of it is left for the next one.
  ASSERT_TRUE(parser.ParseChat(R"({"tools":[],"messages":[{"role":"user","content":"x"}]})", limits).ok());
  EXPECT_TRUE(chat.tools.empty() && chat.calls.empty());
}

TEST(ParseChat, RefusesToolsThatNoTemplateCanWrite) {
  auto calling = [](const std::string& calls) {
    return Parse(R"({"messages":[{"role":"assistant","content":"","tool_calls":)" + calls + "}]}", {});
  };
  EXPECT_EQ(calling(R"("f")"), "messages[0]: 'tool_calls' is not a list of objects");
  EXPECT_EQ(calling(R"([{"name":"f","arguments":{}},{}])"),
            "messages[0]: 'tool_calls'[1] has no text 'name'");
  EXPECT_EQ(calling(R"([{"name":"f"}])"), "messages[0]: 'tool_calls'[0] has no object 'arguments'");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"user","content":"x","tool_calls":[{}]}]})", {}),
            "messages[0]: 'tool_calls' in a turn that is not the assistant's");
  EXPECT_EQ(Parse(R"({"messages":[{"role":"assistant","content":null,"tool_calls":[]}]})", {}),
            "messages[0]: 'content' is neither a text nor a list of parts");
  EXPECT_EQ(Parse(R"({"tools":"[]","messages":[{"role":"user","content":"x"}]})", {}),
            "the chat: 'tools' is not a list of objects; if it is a string with JSON, write the list itself");
  EXPECT_EQ(Parse(R"({"tools":["f"],"messages":[{"role":"user","content":"x"}]})", {}),
            "the chat: 'tools' is not a list of objects");
  EXPECT_EQ(Parse(R"({"tools":[{"n":)" + std::string(4301, '1') +
                      R"(}],"messages":[{"role":"user","content":"x"}]})",
                  {}),
            "the chat: 'tools': a whole number of more than 4300 digits");
}

// What `json.dumps(json.loads(text), ensure_ascii=False)` gives.
TEST(Json, IsWrittenAsPythonWritesIt) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([true , false,null])", "[true, false, null]"},
      {R"({"b":{},"a":[]})", R"({"b": {}, "a": []})"},
      {R"("\u0000\b\f\n\r\t\u001f\u007f\/\"\\\u00e9\ud83d\ude00")",
       "\"\\u0000\\b\\f\\n\\r\\t\\u001f\x7f/\\\"\\\\\u00e9\U0001F600\""},
      {"-0", "0"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"-0.0", "-0.0"},
      {"0e5", "0.0"},
      {"1.10", "1.1"},
      {"0.1", "0.1"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1.5e-7", "1.5e-07"},
      {"123456.789e-1", "12345.6789"},
      {"1e15", "1000000000000000.0"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"1e16", "1e+16"},
      {"-1.25e100", "-1.25e+100"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"1e400", "Infinity"},
      {"-1e400", "-Infinity"},
      {"NaN", "NaN"},
  };
  JsonDocument document;
  for (const auto& [text, written] : cases) {
    auto value = document.Parse(text, 8);
    ASSERT_TRUE(value.ok()) << text << ": " << value.status();
    std::string out = "#";
    ASSERT_TRUE(AppendAsPython(**value, out).ok()) << text;
    EXPECT_EQ(out, std::string("#") + written);
  }
}

// Some templates write a space behind every part.
TEST(ParseChat, KeepsPartsOfEmptyText) {
  Limits limits;
  TextParser parser;
  auto parsed = parser.ParseChat(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"a"}]}]})",
      limits);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->conversation.turns[0].spans.size(), 2u);
}

TEST(ParseChat, EndsOnEveryMutation) {
  const std::string json =
      R"({"image":["b.jpg"],"messages":[{"role":"user","content":[{"type":"image","image":"0.jpg"},
      {"type":"text","text":"\u00e9 what?"}]},{"role":"assistant","content":"a cat <image>"}]})";
  std::mt19937_64 random(7);
  Limits limits;
  TextParser parser;
  int good = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string mutated = json;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      mutated[random() % mutated.size()] = static_cast<char>(random() % 128);
    }
    auto parsed = parser.ParseChat(mutated, limits);
    if (!parsed.ok()) continue;
    ++good;
    uint32_t items = 0;
    for (const Turn& turn : (*parsed)->conversation.turns) {
      for (const evenkeel::Span& span : turn.spans) {
        if (span.medium == Medium::kText) continue;
        EXPECT_EQ(span.item, items++);
      }
    }
    EXPECT_EQ(items, (*parsed)->references.size());
  }
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace evenkeel::dataset
