// The fast path of `chat: template`: a style against a template of its form, on generated conversations. The templates
// that checkpoints publish are compared in test_parity_templates.py.
#include "preprocess/text/known_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

#include "preprocess/text/templated_chat.h"
#include "tests/preprocess/text/golden.h"
#include "tests/preprocess/text/samples.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxTextBytes = 1 << 20;

constexpr char kChatMlForm[] =
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr char kLlamaForm[] =
    "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}<|start_header_id|>{{ m.role }}"
    "<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";
constexpr char kGemmaForm[] =
    "{{ bos_token }}{% set turns = messages %}{% set before = '' %}{% if messages[0].role == 'system' %}"
    "{% set turns = messages[1:] %}{% set before = messages[0].content + '\n\n' %}{% endif %}"
    "{% for m in turns %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('odd') }}"
    "{% endif %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ before if loop.first else '' }}{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}";

constexpr char kGemma4Form[] =
    "{{ bos_token }}{% for m in messages %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content.split('<channel|>')[-1] | trim }}<turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn>model\n{% endif %}";
constexpr std::string_view kChannel[] = {"<channel|>"};

struct Form {
  const char* source;
  KnownTemplate known;
  std::string bos;
  std::vector<std::string> added;
};

const std::vector<Form>& Forms() {
  static const std::vector<Form>* const forms = new std::vector<Form>{
      {kChatMlForm, {"", &kChatMl, "Be kind."}, "", {}},
      {kLlamaForm,
       {"", &kLlama3, ""},
       "<|begin_of_text|>",
       {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      {kGemmaForm, {"", &kGemma, ""}, "<bos>", {"<bos>", "<start_of_turn>", "<end_of_turn>"}},
      {kGemma4Form, {"", &kGemma4, "", true, kChannel}, "<bos>", {"<bos>", "<|turn>", "<turn|>"}}};
  return *forms;
}

// A text of ordinary and odd pieces; `special`: one of them.
std::string DrawText(std::mt19937& random, const std::string& special) {
  const std::string pieces[] = {"Hello",  " world",     "\n",     "  ",        "\t",     "船",     "é",
                                "\u0301", "😀",          "<",      "|>",        "\u3000", "\x1f",   "\"q\"",
                                "{a}",    "\\n",        "\u00a0", "\u2028",    "<th",    "tail  ", "\u200b",
                                "\r\n",   "<channel|>", special,  "\U000fffff"};
  std::string out;
  for (uint32_t i = random() % 6; i > 0; --i) {
    const bool odd = random() % 20 == 0;
    out += pieces[random() % (std::size(pieces) - (odd ? 0 : 2))];
  }
  return out;
}

// Mostly of the plain shape: users and assistants, also several of one kind in a row.
Conversation DrawChat(std::mt19937& random, const std::string& special) {
  Conversation chat;
  const auto add = [&](Role role) {
    Turn turn{.role = role};
    const uint32_t kind = random() % 20;
    if (kind != 0) turn.spans.push_back(Text(DrawText(random, special)));
    if (kind == 1) turn.spans.push_back(Text(DrawText(random, special)));
    if (kind == 2) turn.members = R"(, "name": "Ada")";
    chat.turns.push_back(turn);
  };
  if (random() % 3 == 0) add(Role::kSystem);
  const bool in_turns = random() % 4 != 0;
  for (uint32_t i = 0, count = random() % 7; i < count; ++i) {
    const Role any[] = {Role::kUser, Role::kAssistant, Role::kAssistant, Role::kUser, Role::kSystem};
    add(in_turns ? any[i % 2] : any[random() % 5]);
  }
  return chat;
}

// The golden tokenizer with this template.
ProcessorSpec SpecOf(const Form& form, const std::string& labels, const std::string& system) {
  ProcessorSpec spec;
  spec.tokenizer = PatchedTokenizer("tokenizer", nlohmann::json::object());
  spec.chat = "template";
  spec.labels = labels;
  spec.system = system;
  spec.added_tokens = form.added;
  std::ofstream(spec.tokenizer + "/chat_template.jinja") << form.source;
  if (!form.bos.empty()) {
    std::ifstream in(spec.tokenizer + "/tokenizer_config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config["bos_token"] = form.bos;
    std::ofstream(spec.tokenizer + "/tokenizer_config.json") << config;
  }
  return spec;
}

std::vector<TextRange> AnswersOf(const Conversation& chat, const StyledText& styled) {
  std::vector<TextRange> out;
  for (size_t i = 0; i < chat.turns.size(); ++i) {
    if (chat.turns[i].role == Role::kAssistant) out.push_back(styled.answers[i]);
  }
  return out;
}

std::vector<TextRange> TrainedOf(const TemplatedText& text) {
  return {text.trained.begin(), text.trained.end()};
}

TEST(KnownTemplates, AStyleWritesWhatATemplateOfItsFormWrites) {
  for (const Form& form : Forms()) {
    for (const std::string system : {"", " Be brief.\n"}) {
      SCOPED_TRACE(std::string(form.known.style->name) + system);
      const ProcessorSpec spec = SpecOf(form, "", system);
      const auto tokenizer = Tokenizer::Load(spec.tokenizer, spec.added_tokens);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      ASSERT_TRUE(FitsTokenizer(form.known, **tokenizer));
      const auto templated = TemplatedChat::Load(spec, **tokenizer, {}, Limits());
      ASSERT_TRUE(templated.ok()) << templated.status();
      std::mt19937 random(7);
      int by_style = 0;
      for (int i = 0; i < 1000; ++i) {
        const Conversation chat = DrawChat(random, std::string(form.known.style->marks[0]));
        StyledText styled;
        if (!WriteInStyle(form.known, (*tokenizer)->special_tokens(), chat, system, kMaxTextBytes, styled))
          continue;
        ++by_style;
        TemplatedText text;
        const absl::Status written = (*templated)->Write(chat, text);
        ASSERT_TRUE(written.ok()) << written << ": " << styled.text;
        ASSERT_EQ(styled.text, text.text);
        ASSERT_EQ(AnswersOf(chat, styled), TrainedOf(text)) << styled.text;
        ASSERT_TRUE(text.spelled.empty());
      }
      EXPECT_GT(by_style, 200);
    }
  }
}

TEST(KnownTemplates, OddShapesAreLeftToTheTemplate) {
  const KnownTemplate& chatml = Forms()[0].known;
  const std::vector<std::string> special = {"<|im_start|>", "<|im_end|>"};
  const auto takes = [&](const KnownTemplate& known, const Conversation& chat, std::string_view system = "",
                         uint64_t max_text_bytes = kMaxTextBytes) {
    StyledText out;
    return WriteInStyle(known, special, chat, system, max_text_bytes, out);
  };
  const Conversation plain = Chat({Text("Hi")}, {Text("Hello.")});
  EXPECT_TRUE(takes(chatml, plain));
  EXPECT_FALSE(takes(chatml, plain, "", 400)) << "near the limit of texts";
  EXPECT_FALSE(takes(chatml, plain, "<|im_end|>"));
  EXPECT_FALSE(takes(chatml, {}));
  EXPECT_FALSE(takes(chatml, Plain({Text("Hi")})));
  EXPECT_FALSE(takes(chatml, Chat({Text("a<|im_end|>")}, {Text("b")})));
  EXPECT_FALSE(takes(chatml, Chat({Text("\xff")}, {Text("not UTF-8")})));
  EXPECT_FALSE(takes(chatml, Chat({Text("Hi "), Text("there")}, {Text("two texts")})));
  EXPECT_FALSE(takes(chatml, Chat({Item(Medium::kImage, 0)}, {Text("A boat.")})));
  EXPECT_FALSE(takes(chatml, {.turns = {{Role::kAssistant, {Text("first")}}}}));
  EXPECT_FALSE(takes(chatml, {.turns = {{Role::kSystem, {Text("alone")}}}}));
  Conversation odd = plain;
  odd.tools = {"{}"};
  EXPECT_FALSE(takes(chatml, odd)) << "tools";
  odd = plain;
  odd.documents = "[]";
  EXPECT_FALSE(takes(chatml, odd)) << "documents";
  odd = plain;
  odd.turns[1].members = R"(, "reasoning_content": "Hm.")";
  EXPECT_FALSE(takes(chatml, odd)) << "members";
  odd = plain;
  odd.turns.push_back({Role::kTool, {Text("5")}});
  EXPECT_FALSE(takes(chatml, odd)) << "a tool's turn";
  odd.turns.back().role = Role::kSystem;
  EXPECT_FALSE(takes(chatml, odd)) << "a later system's turn";
  const KnownTemplate gemma{"", &kGemma, "", /*has_system=*/false};
  EXPECT_TRUE(takes(gemma, plain));
  EXPECT_FALSE(takes(gemma, plain, "Be kind."));
  odd.turns.back().role = Role::kAssistant;
  EXPECT_FALSE(takes(gemma, odd)) << "two answers in a row";
}

TEST(KnownTemplates, ATokenizerWithoutTheStylesTokensLeavesAllToTheTemplate) {
  const auto tokenizer = Tokenizer::Load(GoldenFolder() + "/tokenizer", {});
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_TRUE(FitsTokenizer(Forms()[0].known, **tokenizer));
  EXPECT_FALSE(FitsTokenizer(Forms()[1].known, **tokenizer));
}

TEST(KnownTemplates, ATemplateIsKnownByItsExactText) {
  EXPECT_EQ(KnownTemplateOf(""), nullptr);
  EXPECT_EQ(KnownTemplateOf(kChatMlForm), nullptr);
}

}  // namespace
}  // namespace evenkeel::preprocess
