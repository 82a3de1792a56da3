#include "preprocess/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/preprocess/text/golden.h"

namespace evenkeel::preprocess {
namespace {

using Json = nlohmann::ordered_json;  // what templates print keeps its order
using testing::HasSubstr;

constexpr char kOneTurn[] = R"({"messages": [{"role": "user", "content": "?"}]})";

// The rendering of a template of one conversation, or what is wrong with either.
absl::StatusOr<RenderedChat> Rendered(const std::string& source, const std::string& json,
                                      const ChatTemplateSettings& settings = {}, bool prompt = false,
                                      size_t num_messages = SIZE_MAX) {
  auto loaded = ChatTemplate::Load(source, settings);
  if (!loaded.ok()) return loaded.status();
  auto chat = (*loaded)->Parse(json);
  if (!chat.ok()) return chat.status();
  RenderedChat out;
  const absl::Status status = (*loaded)->Render(**chat, num_messages, prompt, out);
  if (!status.ok()) return status;
  return out;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(ChatTemplate, RendersAsTransformersDoes) {
  std::ifstream file(GoldenFolder() + "/text/templates.json");
  const Json golden = Json::parse(file);
  ChatTemplateSettings settings{.variables = golden["variables"].dump(), .date = golden["date"]};
  for (const Json& of : golden["cases"]) {
    for (size_t i = 0; i < golden["chats"].size(); ++i) {
      SCOPED_TRACE(of["name"].get<std::string>() + ", chat " + std::to_string(i));
      const Json& wanted = of["outputs"][i];
      const absl::StatusOr<RenderedChat> got =
          Rendered(of["template"], golden["chats"][i].dump(), settings, /*prompt=*/i % 2 == 1);
      ASSERT_EQ(got.ok(), !wanted.contains("error")) << got.status() << wanted;
      if (!got.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(got.status())) << got.status();
        if (wanted.contains("message")) {
          EXPECT_EQ(MessageOf(got.status()),
                    "the chat template refuses the chat: " + wanted["message"].get<std::string>());
        }
        continue;
      }
      EXPECT_EQ(got->text, wanted["text"].get<std::string>());
      Json generated = Json::array();
      for (const TextRange& range : got->generated) generated.push_back({range.begin, range.end});
      EXPECT_EQ(generated, wanted["generated"]);
    }
  }
}

TEST(ChatTemplate, RendersTheFirstMessagesAlone) {
  const std::string source =
      "{% for m in messages %}{{ m.content }}{% endfor %}{{ '!' if add_generation_prompt }}";
  const std::string chat = R"({"messages": [{"content": "a"}, {"content": "b"}, {"content": "c"}]})";
  EXPECT_EQ(Rendered(source, chat, {}, false, 0)->text, "");
  EXPECT_EQ(Rendered(source, chat, {}, true, 2)->text, "ab!");
}

TEST(ChatTemplate, NamesTheBytesWhereTheConversationSpellsASpecialToken) {
  const ChatTemplateSettings settings{.special_tokens = {"<end>", "[X]", "<endless>", "\xc2\xabq\xc2\xbb"}};
  const std::string source =
      "<end>{% for m in messages %}{{ m.content|trim }}<end>{{ m.content|length }}{% endfor %}";
  const auto got = Rendered(
      source, R"({"messages": [{"content": " é<end> [X]<en"}, {"content": "<<endless>\u00abq\u00bb"}]})",
      settings);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->text, "<end>é<end> [X]<en<end>14<<endless>«q»<end>13");
  EXPECT_EQ(got->spelled, (std::vector<uint64_t>{7, 13, 27, 36}));
}

TEST(ChatTemplate, TellsATokenFromALetterOfThePrivatePlane) {
  const ChatTemplateSettings settings{.special_tokens = {"<end>"}};
  const std::string source = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const std::string letter = "\xf4\x80\x80\xbc";  // U+10003C
  const auto alone = Rendered(source, R"({"messages": [{"content": ")" + letter + R"("}]})", settings);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->text, letter);
  EXPECT_TRUE(alone->spelled.empty());
  const auto both = Rendered(source, R"({"messages": [{"content": "<end>)" + letter + R"("}]})", settings);
  EXPECT_TRUE(absl::IsInvalidArgument(both.status())) << both.status();
}

// A macro takes variables of the code around it, which are looked for where it is declared, and none of other macros.
TEST(ChatTemplate, MacrosTakeTheVariablesAroundThem) {
  const ChatTemplateSettings settings{.variables = R"({"bos_token": "<s>"})"};
  const std::pair<const char*, const char*> cases[] = {
      {"{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}", "1"},
      {"{% set x = 1 %}{% macro m() %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "21"},
      {"{% macro a() %}{% set x = 5 %}{{ x }}{% endmacro %}{% macro b() %}[{{ x }}]{% endmacro %}{{ a() }}{{ "
       "b() }}",
       "5[]"},
      {"{% macro a() %}{% set x = 5 %}{% macro b() %}{{ x }}{{ y }}{% endmacro %}{{ b() }}{% endmacro %}"
       "{% set y = 7 %}{{ a() }}",
       "57"},
      {"{% macro a(n) %}{{ n }}{% if n > 0 %}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(2) }}", "210"},
      {"{% macro a() %}{{ bos_token }}{{ messages[0].content }}{{ messages | length }}{% endmacro %}{{ a() "
       "}}",
       "<s>?1"},
      {"{% macro a() %}{{ caller() }}{% endmacro %}{% for m in messages %}{% set x = m.role %}"
       "{% call a() %}{{ x }}{{ loop.index }}{% endcall %}{% endfor %}",
       "user1"},
      {"{% macro a() %}{% for i in range(2) %}{{ i }}{{ x is defined }}{% endfor %}{% endmacro %}{{ a() }}",
       "0False1False"},
  };
  for (const auto& [source, expected] : cases) {
    const auto got = Rendered(source, kOneTurn, settings);
    ASSERT_TRUE(got.ok()) << source << ": " << got.status();
    EXPECT_EQ(got->text, expected) << source;
  }
}

TEST(ChatTemplate, NeedsADateOfTheJobForTheDate) {
  const auto got = Rendered("{{ strftime_now('%Y') }}", kOneTurn);
  EXPECT_TRUE(absl::IsFailedPrecondition(got.status())) << got.status();
  EXPECT_THAT(MessageOf(got.status()), HasSubstr("processor.date"));
  EXPECT_EQ(Rendered("{{ strftime_now('%Y') }}", kOneTurn, {.date = "2024-02-29"})->text, "2024");
  EXPECT_EQ(Rendered("{{ strftime_now('%A %j') }}", kOneTurn, {.date = "2024-12-31"})->text, "Tuesday 366");
  for (const char* date : {"2023-02-29", "2024-2-29", "today", "2024-13-01", "0000-01-01"})
    EXPECT_TRUE(absl::IsInvalidArgument(Rendered("", kOneTurn, {.date = date}).status())) << date;
}

TEST(ChatTemplate, IsLimitedByCountedWork) {
  const std::vector<std::string> endless = {
      // Loops in loops, macros that call themselves, texts that double, a megabyte of output.
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}",
      "{% set ns = namespace(x='ab') %}{% for a in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for a in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{{ 'ab' * 1000000000 }}",
      "{{ (messages * 100000000) | length }}",
      "{% for a in range(100000) %}{{ 'a line of text that is written very often' }}{% endfor %}",
      "{% for a in range(100000) %}a line of text that is written very often{% endfor %}",
      "{% set ns = namespace(x='a') %}{% for a in range(100) %}{% set ns.x = ns.x | replace('a', 'aaaa') "
      "%}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for a in range(100) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset "
      "%}{% endfor %}",
      "{% set ns = namespace(x=['ab']) %}{% for a in range(100) %}{% set ns.x = [ns.x | join, ns.x | join] "
      "%}{% endfor %}",
  };
  const ChatTemplateSettings settings{.max_output_bytes = 1 << 20};
  for (const std::string& source : endless) {
    const auto got = Rendered(source, kOneTurn, settings);
    EXPECT_TRUE(absl::IsResourceExhausted(got.status())) << source << ": " << got.status();
  }
}

TEST(ChatTemplate, IsUsedByManyThreads) {
  auto loaded = ChatTemplate::Load(
      "{% for m in messages %}{% generation %}{{ m.content * 3 }}{% endgeneration %}{% endfor %}", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE((*loaded)->has_generation());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&loaded, i] {
      const std::string letter(1, static_cast<char>('a' + i));
      auto chat = (*loaded)->Parse(R"({"messages": [{"content": ")" + letter + R"("}]})");
      ASSERT_TRUE(chat.ok());
      RenderedChat out;
      for (int n = 0; n < 50; ++n) {
        ASSERT_TRUE((*loaded)->Render(**chat, 1, false, out).ok());
        EXPECT_EQ(out.text, letter + letter + letter);
        EXPECT_EQ(out.generated, (std::vector<TextRange>{{0, 3}}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ChatTemplate, RefusesWhatIsNoChat) {
  for (const char* json :
       {"", "[]", "{}", R"({"messages": 1})", R"({"messages": ["a"]})", R"({"messages": []} x)",
        R"({"messages": [{"a": "\ud800"}]})", R"({"messages": [{"a": 1)"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Rendered("x", json).status())) << json;
  }
  std::string deep = R"({"messages": )";
  for (int i = 0; i < 100000; ++i) deep += '[';
  EXPECT_TRUE(absl::IsInvalidArgument(Rendered("x", deep).status()));
}

TEST(ChatTemplate, SaysWhereATemplateIsWrong) {
  EXPECT_THAT(MessageOf(Rendered("a\nb {% if %}", kOneTurn).status()), HasSubstr("line 2 of the template"));
  EXPECT_THAT(MessageOf(Rendered("a\n\n{{ missing.name }}", kOneTurn).status()),
              HasSubstr("line 3 of the template"));
  EXPECT_THAT(MessageOf(Rendered("{% set ns = namespace() %}{% set ns._x = 1 %}", kOneTurn).status()),
              HasSubstr("_x"));
}

}  // namespace
}  // namespace evenkeel::preprocess
