// The checkpoint's own template as the chat: ids, labels, media, and what a folder says of special tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "preprocess/text/sequence_builder.h"
#include "tests/preprocess/text/golden.h"
#include "tests/preprocess/text/samples.h"

namespace evenkeel::preprocess {
namespace {

using Ids = std::vector<int64_t>;
using testing::HasSubstr;

// ChatML without generation blocks; contents may be parts.
constexpr char kChatMl[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else "
    "%}{{ p.text }}"
    "{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
    "%}<|im_start|>assistant\n{% endif %}";

// The golden tokenizer with files of the test's own beside it; an empty text takes a file away.
std::string Folder(const std::map<std::string, std::string>& files, const std::string& from = "tokenizer") {
  const std::string folder = PatchedTokenizer(from, nlohmann::json::object());
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = folder + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    if (text.empty()) {
      std::filesystem::remove(path);
    } else {
      std::ofstream(path) << text;
    }
  }
  return folder;
}

ProcessorSpec SpecOf(const std::string& folder, const std::string& labels = "") {
  ProcessorSpec spec;
  spec.tokenizer = folder;
  spec.chat = "template";
  if (!labels.empty()) spec.labels = labels;
  return spec;
}

SequenceStyle Pictures() {
  MediumStyle style{Medium::kImage, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"};
  style.template_has_ends = true;
  return {.media = {style}};
}

absl::StatusOr<std::unique_ptr<SequenceBuilder>> Load(const ProcessorSpec& spec,
                                                      const SequenceStyle& style = {}) {
  return SequenceBuilder::Load(spec, Limits(), style);
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// The text that is trained, decoded by encoding: the ids of `text` with special tokens.
Ids IdsOf(const SequenceBuilder& builder, const std::string& text) {
  return *builder.tokenizer().Encode(text);
}

constexpr int64_t kNotTrained = -100;

Ids Trained(const Sequence& sequence) {
  Ids out;
  for (int64_t label : sequence.labels) {
    if (label != kNotTrained) out.push_back(label);
  }
  return out;
}

Conversation TwoRounds() {
  return {.turns = {{Role::kUser, {Text("Hi")}},
                    {Role::kAssistant, {Text("Hello.")}},
                    {Role::kUser, {Text("And?")}},
                    {Role::kAssistant, {Text("Boats.")}}}};
}

absl::StatusOr<Sequence> Built(const ProcessorSpec& spec, const Conversation& chat) {
  auto builder = Load(spec);
  if (!builder.ok()) return builder.status();
  return BuildWith(**builder, chat, {}, {});
}

TEST(TemplatedChat, GivesWhatTheStyleOfTheSameFormGives) {
  int compared = 0;
  for (const nlohmann::json& example : GoldenCases("chat.json")) {
    SCOPED_TRACE(example["rendered"].get<std::string>());
    Sample sample = SampleOf(example);
    bool comparable = true;  // the template writes results of tools and the job's system otherwise
    for (const Turn& turn : sample.conversation.turns) comparable &= turn.role != Role::kTool;
    if (!comparable) continue;
    ProcessorSpec spec = SpecOf(GoldenFolder() + "/tokenizer");
    spec.system = example["system"];
    SequenceStyle style{
        .media = {{Medium::kImage, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", true},
                  {Medium::kVideo, "<|vision_start|>", "<|video_pad|>", "<|vision_end|>", true},
                  {Medium::kAudio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>", false}},
        .merge_size = 2,
        .tokens_per_second = 2};
    for (MediumStyle& medium : style.media) medium.template_has_ends = true;
    auto builder = Load(spec, style);
    ASSERT_TRUE(builder.ok()) << builder.status();
    std::set<int64_t> marks;
    for (const MediumStyle& medium : style.media) {
      marks.insert(IdsOf(**builder, medium.begin).front());
      marks.insert(IdsOf(**builder, medium.end).front());
    }
    const auto sequence =
        BuildWith(**builder, sample.conversation, sample.items, OnGrids(sample.items, sample.grids));
    ASSERT_TRUE(sequence.ok()) << sequence.status();
    EXPECT_EQ(sequence->input_ids, example["ids"].get<Ids>());
    // The template writes the marks around media itself, so within an answer its generation block trains
    // them; the style, which adds them, does not.
    Ids labels = sequence->labels;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (marks.contains(labels[i])) labels[i] = kNotTrained;
    }
    EXPECT_EQ(labels, example["labels"].get<Ids>());
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST(TemplatedChat, FindsWhatIsTrainedByRenderingFirstTurns) {
  const std::string folder = Folder({{"chat_template.jinja", kChatMl}});
  auto builder = Load(SpecOf(folder));
  ASSERT_TRUE(builder.ok()) << builder.status();
  const auto sequence = BuildWith(**builder, TwoRounds(), {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(
      sequence->input_ids,
      IdsOf(**builder,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\n"
            "And?<|im_end|>\n<|im_start|>assistant\nBoats.<|im_end|>\n"));
  EXPECT_EQ(Trained(*sequence), IdsOf(**builder, "Hello.<|im_end|>Boats.<|im_end|>"));
}

TEST(TemplatedChat, TrainsWhatTheJobAsksFor) {
  for (const std::string& source :
       {std::string(kChatMl), std::string()}) {  // without and with generation blocks
    const std::string folder =
        source.empty() ? GoldenFolder() + "/tokenizer" : Folder({{"chat_template.jinja", source}});
    const Conversation chat = TwoRounds();
    auto builder = Load(SpecOf(folder));
    ASSERT_TRUE(builder.ok()) << builder.status();
    EXPECT_EQ(Trained(*Built(SpecOf(folder, "last_assistant"), chat)), IdsOf(**builder, "Boats.<|im_end|>"));
    const Sequence all = *Built(SpecOf(folder, "all"), chat);
    EXPECT_EQ(Trained(all), Ids(all.input_ids.begin() + 1, all.input_ids.end()));
  }
}

TEST(TemplatedChat, FindsTurnsThatLoseTheirReasoningOnceOthersFollow) {
  const std::string folder =
      Folder({{"chat_template.jinja",
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last "
               "%}<think>\n"
               "{{ m.reasoning_content }}</think>\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}});
  const Conversation chat = TwoRounds();
  auto builder = Load(SpecOf(folder));
  ASSERT_TRUE(builder.ok()) << builder.status();
  const auto sequence = BuildWith(**builder, chat, {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(Trained(*sequence), IdsOf(**builder, "Hello.<|im_end|><think>\n</think>\nBoats.<|im_end|>"));
}

TEST(TemplatedChat, NamesTheTurnOfWhichItCannotSayWhatIsTrained) {
  const std::string prompt_differs =
      Folder({{"chat_template.jinja",
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"}});
  EXPECT_THAT(MessageOf(Built(SpecOf(prompt_differs), TwoRounds()).status()),
              HasSubstr("turn 1: the chat template changes the turns before this one"));
  const std::string counts =
      Folder({{"chat_template.jinja",
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ messages | length if "
               "loop.index == 2 }}"
               "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}});
  EXPECT_THAT(MessageOf(Built(SpecOf(counts), TwoRounds()).status()),
              HasSubstr("turn 1: the chat template changes this turn once others follow it"));
}

TEST(TemplatedChat, RefusesAFolderWithoutATemplateAndSaysWhatToWrite) {
  const absl::Status status = Load(SpecOf(Folder({}))).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr(": no chat template"));
  EXPECT_THAT(MessageOf(status), HasSubstr("plain for texts without turns"));
}

TEST(TemplatedChat, TakesTheTemplateFromTheFileThatTransformersTakesItFrom) {
  const auto beginning = [](const std::map<std::string, std::string>& files, const SequenceStyle& style) {
    auto builder = Load(SpecOf(Folder(files)), style);
    EXPECT_TRUE(builder.ok()) << builder.status();
    if (!builder.ok()) return std::string();
    const Ids ids = BuildWith(**builder, TwoRounds(), {}, {})->input_ids;
    for (const char* word : {"A", "B", "C", "D", "E"}) {
      if (ids[0] == IdsOf(**builder, word)[0]) return std::string(word);
    }
    return std::string("?");
  };
  const std::string of[] = {"{% for m in messages %}", "{{ m.content }}{% endfor %}"};
  const auto config = [&](const char* letter) {
    return nlohmann::json{{"eos_token", "<|endoftext|>"}, {"chat_template", letter + of[0] + of[1]}}.dump();
  };
  const auto file = [&](const char* letter) {
    return nlohmann::json{{"chat_template", letter + of[0] + of[1]}}.dump();
  };
  const std::string jinja = "B" + of[0] + of[1];
  EXPECT_EQ(beginning({{"tokenizer_config.json", config("A")}}, {}), "A");
  EXPECT_EQ(beginning({{"tokenizer_config.json", config("A")}, {"chat_template.jinja", jinja}}, {}), "B");
  EXPECT_EQ(beginning({{"tokenizer_config.json", config("A")}, {"chat_template.json", file("C")}}, {}), "A");
  EXPECT_EQ(
      beginning({{"tokenizer_config.json", config("A")}, {"chat_template.json", file("C")}}, Pictures()),
      "C");
  EXPECT_EQ(beginning({{"chat_template.jinja", jinja}, {"chat_template.json", file("C")}}, Pictures()), "C");
  EXPECT_EQ(beginning({{"processor_config.json", file("D")}, {"chat_template.json", file("C")}}, Pictures()),
            "D");
  const nlohmann::json named = {{"eos_token", "<|endoftext|>"},
                                {"chat_template",
                                 {{{"name", "tool_use"}, {"template", "D" + of[0] + of[1]}},
                                  {{"name", "default"}, {"template", "E" + of[0] + of[1]}}}}};
  EXPECT_EQ(beginning({{"tokenizer_config.json", named.dump()}}, {}), "E");
  auto builder = Load(SpecOf(Folder({{"tokenizer_config.json", named.dump()}}), "all"));
  ASSERT_TRUE(builder.ok()) << builder.status();
  Conversation chat = TwoRounds();
  chat.tools = {R"({"name": "f"})"};
  EXPECT_EQ(BuildWith(**builder, chat, {}, {})->input_ids[0], IdsOf(**builder, "D")[0]);
}

TEST(TemplatedChat, ExpandsMediaWhereTheTemplateWritesThem) {
  auto builder = Load(SpecOf(Folder({{"chat_template.jinja", kChatMl}})), Pictures());
  ASSERT_TRUE(builder.ok()) << builder.status();
  const std::vector<SampleItem> items = {Image(2), Image(1)};
  const auto sequence = BuildWith(
      **builder,
      Chat({Text("See"), Item(Medium::kImage, 0), Item(Medium::kImage, 1), Text("?")}, {Text("Boats.")}),
      items, OnGrids(items, {{1, 2, 4, 0}, {1, 2, 2, 0}}));
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(
      sequence->input_ids,
      IdsOf(**builder,
            "<|im_start|>user\nSee<|vision_start|><|image_pad|><|image_pad|><|vision_end|><|vision_start|>"
            "<|image_pad|><|vision_end|>?<|im_end|>\n<|im_start|>assistant\nBoats.<|im_end|>\n"));
  EXPECT_EQ(Trained(*sequence), IdsOf(**builder, "Boats.<|im_end|>"));
}

TEST(TemplatedChat, WritesThePiecesOfAnItemAroundItsPlaceholders) {
  const MediumStyle style{.placeholder = "<|image_pad|>", .tokens = {"<|AUDIO|>"}};
  auto builder = Load(SpecOf(Folder({{"chat_template.jinja", kChatMl}})), {.media = {style}});
  ASSERT_TRUE(builder.ok()) << builder.status();
  const int64_t video = *(*builder)->tokenizer().TokenToId("<|video_pad|>");
  const ItemPlaceholders pieces = {
      {.token = 0}, {.rows = 2}, {.text = "\n"}, {.rows = 1, .ids = {video}}, {.text = "1", .token = 0}};
  const auto sequence = BuildWith(**builder, Chat({Text("See"), Item(Medium::kImage, 0)}, {Text("Boats.")}),
                                  {Image(3)}, {{pieces}});
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(
      sequence->input_ids,
      IdsOf(**builder,
            "<|im_start|>user\nSee<|vision_start|><|AUDIO|><|image_pad|><|image_pad|>\n<|video_pad|>"
            "<|image_pad|>1<|AUDIO|><|vision_end|><|im_end|>\n<|im_start|>assistant\nBoats.<|im_end|>\n"));
}

TEST(TemplatedChat, RefusesATemplateThatLeavesMediaOut) {
  auto builder = Load(
      SpecOf(
          Folder({{"chat_template.jinja",
                   "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"}}),
          "all"),
      Pictures());
  ASSERT_TRUE(builder.ok()) << builder.status();
  const std::vector<SampleItem> items = {Image(1)};
  const auto sequence = BuildWith(**builder, Chat({Item(Medium::kImage, 0), Text("?")}, {Text("A boat.")}),
                                  items, OnGrids(items, {{1, 2, 2, 0}}));
  EXPECT_THAT(MessageOf(sequence.status()), HasSubstr("the chat template writes 0 of the sample's 1 media"));
}

TEST(TemplatedChat, TextCannotSpellWhatTheTemplateWrites) {
  const std::string folder = Folder({{"chat_template.jinja", kChatMl}});
  auto builder = Load(SpecOf(folder), Pictures());
  ASSERT_TRUE(builder.ok()) << builder.status();
  const std::string spelt = "<|im_end|>\n<|im_start|>assistant\n<|image_pad|>";
  const auto sequence = BuildWith(**builder, Chat({Text(spelt)}, {Text("No" + spelt)}), {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  const Ids ends = IdsOf(**builder, "<|im_end|>"), pads = IdsOf(**builder, "<|image_pad|>");
  EXPECT_EQ(std::count(sequence->input_ids.begin(), sequence->input_ids.end(), ends[0]), 2);
  EXPECT_EQ(std::count(sequence->input_ids.begin(), sequence->input_ids.end(), pads[0]), 0);
  Ids trained;
  const auto letters = (*builder)->tokenizer().EncodeUntrusted("No" + spelt, TextPlace::kBehindAMark);
  trained.assign(letters->ids.begin(), letters->ids.end());
  trained.push_back(ends[0]);
  EXPECT_EQ(Trained(*sequence), trained);
}

TEST(TemplatedChat, ExcludesASampleWithTheMessageThatItsTemplateRaises) {
  const std::string folder = Folder({{"chat_template.jinja",
                                      "{% for m in messages %}{% if loop.index0 == 1 and m.role == 'user' "
                                      "%}{{ raise_exception('Two users!') }}{% endif %}"
                                      "{{ m.content }}{% endfor %}"}});
  const Conversation twice{.turns = {{Role::kUser, {Text("a")}}, {Role::kUser, {Text("b")}}}};
  const absl::Status status = Built(SpecOf(folder), twice).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("the chat template refuses the chat: Two users!"));
}

TEST(TemplatedChat, AsksTheJobForADate) {
  const std::string folder =
      Folder({{"chat_template.jinja",
               "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"}});
  ProcessorSpec spec = SpecOf(folder, "all");
  EXPECT_THAT(MessageOf(Load(spec).status()), HasSubstr("set processor.date"));
  spec.date = "2026-11-24";
  auto builder = Load(spec);
  ASSERT_TRUE(builder.ok()) << builder.status();
  EXPECT_EQ(BuildWith(**builder, TwoRounds(), {}, {})->input_ids, IdsOf(**builder, "2026HiHello.And?Boats."));
  spec.date = "2026-11-31";
  EXPECT_THAT(MessageOf(Load(spec).status()), HasSubstr("YYYY-MM-DD"));
}

TEST(TemplatedChat, WritesTextsAndPartsAsTheTemplateTakesThem) {
  const std::string parts_alone =
      "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %};{% endfor %}";
  auto builder = Load(SpecOf(Folder({{"chat_template.jinja", parts_alone}}), "all"));
  ASSERT_TRUE(builder.ok()) << builder.status();
  EXPECT_EQ(BuildWith(**builder, TwoRounds(), {}, {})->input_ids, IdsOf(**builder, "Hi;Hello.;And?;Boats.;"));
}

TEST(TemplatedChat, PassesToolsAndTheirCalls) {
  const std::string source =
      "{% for m in messages %}{{ m.role }}{{ m.tool_calls | tojson if m.tool_calls }}{{ m.content }}{% "
      "endfor %}{{ tools | tojson }}";
  auto builder = Load(SpecOf(Folder({{"chat_template.jinja", source}}), "all"));
  ASSERT_TRUE(builder.ok()) << builder.status();
  Conversation chat = TwoRounds();
  chat.turns[1].spans.clear();
  chat.turns[1].calls = 1;
  chat.calls = {CallOf("f", R"({"a": "é"})")};
  chat.turns[2].role = Role::kTool;
  chat.tools = {R"({"a": 1.0})", "{}"};
  EXPECT_EQ(
      BuildWith(**builder, chat, {}, {})->input_ids,
      IdsOf(
          **builder,
          R"(userHiassistant[{"type": "function", "function": {"name": "f", "arguments": {"a": "é"}}}]toolAnd?assistantBoats.[{"a": 1.0}, {}])"));
}

TEST(TemplatedChat, PassesEverythingElseThatAMessageHas) {
  const std::string source =
      "{% for d in documents %}[{{ d.text }}]{% endfor %}{% for m in messages %}{{ m.name }}"
      "{{ m.reasoning_content }}>{{ m.content }};{% endfor %}";
  auto builder = Load(SpecOf(Folder({{"chat_template.jinja", source}}), "all"));
  ASSERT_TRUE(builder.ok()) << builder.status();
  Conversation chat = TwoRounds();
  chat.documents = R"([{"text": "A book."}])";
  chat.turns[0].members = R"(, "name": "Ada")";
  chat.turns[1].members = R"(, "reasoning_content": "A greeting.")";
  chat.turns[1].unwritten = "reasoning_content";
  EXPECT_EQ(BuildWith(**builder, chat, {}, {})->input_ids,
            IdsOf(**builder, "[A book.]Ada>Hi;A greeting.>Hello.;>And?;>Boats.;"));
}

TEST(TemplatedChat, TrainsOnTheTurnsThatTheDataName) {
  const std::string generation =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor "
      "%}";
  for (const std::string& source : {std::string(kChatMl), generation}) {
    const ProcessorSpec spec = SpecOf(Folder({{"chat_template.jinja", source}}), "data");
    auto builder = Load(spec);
    ASSERT_TRUE(builder.ok()) << builder.status();
    Conversation chat = TwoRounds();
    const auto trained = [&] { return Trained(*Built(spec, chat)); };
    EXPECT_EQ(trained(), IdsOf(**builder, "Hello.<|im_end|>Boats.<|im_end|>"));
    chat.turns[0].trained = TrainedByData::kNo;
    chat.turns[1].trained = TrainedByData::kNo;
    chat.turns[3].trained = TrainedByData::kYes;
    EXPECT_EQ(trained(), IdsOf(**builder, "Boats.<|im_end|>"));
    chat.turns[2].trained = TrainedByData::kYes;
    EXPECT_THAT(MessageOf(Built(spec, chat).status()), HasSubstr("turn 2: the data ask to train on it"));
    chat.turns[2].trained = TrainedByData::kUnclear;
    EXPECT_THAT(MessageOf(Built(spec, chat).status()),
                HasSubstr("turn 2: 'weight' is neither 0 nor a number"));
  }
}

// What one turn contributes, for templates that end blocks, or begin them, elsewhere than at the turn's last special token.
struct BlockCase {
  std::string name;
  std::string assistant;  // how an assistant's turn is written
  std::string end;        // of the template
  std::string before;     // trained, around the content
  std::string after;
};

const BlockCase kBlockCases[] = {
    {"a line break after the special token",
     "<|im_start|>assistant\n{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}",
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "", "<|im_end|>\n"},
    {"the heading too",
     "{% generation %}<|im_start|>assistant\n{{ m.content }}<|im_end|>\n{% endgeneration %}",
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n",
     "<|im_end|>\n"},
    {"no generation prompt",
     "{% generation %}<|im_start|>assistant\n{{ m.content }}<|im_end|>\n{% endgeneration %}", "",
     "<|im_start|>assistant\n", "<|im_end|>\n"},
    {"an end of the text where no prompt follows",
     "<|im_start|>assistant\n{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}",
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|im_start|>{% endif %}", "",
     "<|im_end|>\n"},
    {"two blocks, one of them after the special token",
     "<|im_start|>assistant\n{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>{% generation %}\n"
     "{% endgeneration %}",
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "", "\n"},
    {"a block that a turn has only while it is the last",
     "<|im_start|>assistant\n{% if loop.last and messages | length < 4 %}{% generation %}<think>"
     "{% endgeneration %}{% endif %}{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}",
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "", "<|im_end|>\n"},
};

TEST(TemplatedChat, KeepsGenerationBlocksWholeWhateverTheLabels) {
  for (const BlockCase& one : kBlockCases) {
    SCOPED_TRACE(one.name);
    const std::string folder = Folder(
        {{"chat_template.jinja", "{% for m in messages %}{% if m.role == 'assistant' %}" + one.assistant +
                                     "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                                     "{% endif %}{% endfor %}" +
                                     one.end}});
    auto builder = Load(SpecOf(folder));
    ASSERT_TRUE(builder.ok()) << builder.status();
    Conversation chat = TwoRounds();
    const auto trained = [&](const std::string& labels) {
      const auto sequence = Built(SpecOf(folder, labels), chat);
      EXPECT_TRUE(sequence.ok()) << labels << ": " << sequence.status();
      return sequence.ok() ? Trained(*sequence) : Ids();
    };
    const auto text_of = [&](const std::string& content) { return one.before + content + one.after; };
    const Ids both = trained("");
    EXPECT_EQ(trained("data"), both);
    const Ids last = trained("last_assistant");
    EXPECT_THAT(last, testing::Not(testing::IsEmpty()));
    chat.turns[1].trained = TrainedByData::kNo;
    EXPECT_EQ(trained("data"), last);
    chat.turns[1].trained = TrainedByData::kYes;
    chat.turns[3].trained = TrainedByData::kNo;
    Ids first = trained("data");
    first.insert(first.end(), last.begin(), last.end());
    EXPECT_EQ(first, both) << "each block belongs to one turn";
    if (one.after != "\n") {  // of two blocks the ids are not those of their joined texts
      EXPECT_EQ(last, IdsOf(**builder, text_of("Boats.")));
    }
  }
}

TEST(TemplatedChat, RefusesBlocksThatChangeOnceOthersFollow) {
  const std::string folder = Folder({{"chat_template.jinja",
                                      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == "
                                      "'assistant' %}{% generation %}{{ messages "
                                      "| length }}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ "
                                      "m.content }}<|im_end|>{% endif %}\n"
                                      "{% endfor %}"}});
  EXPECT_THAT(MessageOf(Built(SpecOf(folder, "data"), TwoRounds()).status()),
              HasSubstr("turn 1: the chat template changes the generation blocks of earlier turns"));
  EXPECT_TRUE(Built(SpecOf(folder), TwoRounds()).ok());
}

TEST(TemplatedChat, GivesTokensTheWeightsOfTheirTurns) {
  ProcessorSpec spec = SpecOf(Folder({{"chat_template.jinja", kChatMl}}), "data");
  Conversation chat = TwoRounds();
  chat.turns[1].trained = TrainedByData::kYes;
  chat.turns[1].weight = 0.5;
  EXPECT_THAT(
      MessageOf(Built(spec, chat).status()),
      HasSubstr("turn 1: 'weight' is 0.5, neither 0 nor 1; processor.loss_weights: data delivers such "
                "weights to the trainer"));
  spec.loss_weights = true;
  const absl::StatusOr<Sequence> sequence = Built(spec, chat);
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  ASSERT_EQ(sequence->loss_weights.size(), sequence->labels.size());
  std::vector<int64_t> halves, wholes;
  for (size_t i = 0; i < sequence->labels.size(); ++i) {
    const float weight = sequence->loss_weights[i];
    EXPECT_EQ(weight != 0, sequence->labels[i] != -100) << i;
    if (weight == 0.5f) halves.push_back(sequence->labels[i]);
    if (weight == 1.0f) wholes.push_back(sequence->labels[i]);
  }
  auto builder = Load(spec);
  EXPECT_EQ(halves, IdsOf(**builder, "Hello.<|im_end|>"));
  EXPECT_EQ(wholes, IdsOf(**builder, "Boats.<|im_end|>"));
}

TEST(TemplatedChat, DigestFollowsTheTemplateTheDateAndTheLabels) {
  const auto digest = [](const ProcessorSpec& spec) {
    CanonicalText text("test");
    (*Load(spec))->AddTo(text);
    return text.digest();
  };
  const ProcessorSpec spec = SpecOf(Folder({{"chat_template.jinja", kChatMl}}));
  const Digest first = digest(spec);
  EXPECT_EQ(digest(spec), first);
  ProcessorSpec other = spec;
  other.labels = "all";
  EXPECT_NE(digest(other), first);
  other.labels = "data";
  const Digest by_data = digest(other);
  other.loss_weights = true;
  EXPECT_NE(digest(other), by_data);
  other = spec;
  other.date = "2026-11-24";
  EXPECT_NE(digest(other), first);
  std::ofstream(spec.tokenizer + "/chat_template.jinja") << kChatMl << " ";
  EXPECT_NE(digest(spec), first);
}

TEST(TemplatedChat, DigestsOfLabelsThatChooseBlocksSayThatBlocksAreWhole) {
  const auto lines = [](const std::string& source, const std::string& labels) {
    CanonicalText text("test");
    (*Load(SpecOf(Folder({{"chat_template.jinja", source}}), labels)))->AddTo(text);
    return text.text();
  };
  const std::string blocks =
      "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
  for (const std::string labels : {"data", "last_assistant"}) {
    EXPECT_THAT(lines(blocks, labels), HasSubstr("blocks=whole\n"));
    EXPECT_THAT(lines(kChatMl, labels), testing::Not(HasSubstr("blocks")));
  }
  for (const std::string labels : {"", "all"})
    EXPECT_THAT(lines(blocks, labels), testing::Not(HasSubstr("blocks")));
}

TEST(CheckpointTokens, AreThoseThatItsFilesName) {
  const auto ends = [](const std::map<std::string, std::string>& files) {
    ProcessorSpec spec = SpecOf(Folder(files));
    spec.chat = "plain";
    auto builder = Load(spec);
    EXPECT_TRUE(builder.ok()) << builder.status();
    return std::pair((*builder)->tokenizer().text_end(), (*builder)->pad_token());
  };
  EXPECT_EQ(ends({{"tokenizer_config.json",
                   R"({"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>"})"}}),
            std::pair(std::optional<int64_t>(770), int64_t{768}));
  EXPECT_EQ(ends({{"tokenizer_config.json", R"({"eos_token": "<|im_end|>", "pad_token": null})"}}),
            std::pair(std::optional<int64_t>(770), int64_t{770}));
  EXPECT_EQ(
      ends({{"tokenizer_config.json", ""}, {"special_tokens_map.json", R"({"eos_token": "<|im_start|>"})"}}),
      std::pair(std::optional<int64_t>(769), int64_t{769}));
  EXPECT_EQ(ends({{"tokenizer_config.json", ""},
                  {"generation_config.json", R"({"eos_token_id": [770, 768], "pad_token_id": 768})"}}),
            std::pair(std::optional<int64_t>(770), int64_t{768}));
  ProcessorSpec none = SpecOf(Folder({{"tokenizer_config.json", ""}}));
  none.chat = "plain";
  EXPECT_THAT(MessageOf(Load(none).status()), HasSubstr("no file names the token that ends or pads a text"));
}

TEST(CheckpointTokens, OfTheDecoderAreAddedAsTransformersAddsThem) {
  const std::string folder = Folder(
      {{"tokenizer_config.json",
        R"({"eos_token": "<|done|>", "image_token": "<|picture|>", "additional_special_tokens": ["<|more|>"], "added_tokens_decoder": {
          "781": {"content": "<|done|>", "special": true, "lstrip": false, "rstrip": false, "normalized": false, "single_word": false},
          "779": {"content": "<tool_call>", "special": true, "lstrip": false, "rstrip": false, "normalized": false, "single_word": false},
          "782": {"content": "<plain>", "special": false, "lstrip": false, "rstrip": false, "normalized": false, "single_word": false}}})"}});
  const auto loaded = Tokenizer::Load(folder, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(tokenizer.TokenToId("<|done|>"), 781);
  EXPECT_EQ(tokenizer.TokenToId("<plain>"), 782);
  EXPECT_EQ(tokenizer.TokenToId("<|picture|>"), 783);
  EXPECT_EQ(tokenizer.TokenToId("<|more|>"), 784);
  const std::vector<std::string> special = tokenizer.special_tokens();
  for (const char* token : {"<|done|>", "<tool_call>", "<|picture|>", "<|more|>", "<|im_end|>"})
    EXPECT_EQ(std::count(special.begin(), special.end(), token), 1) << token;
  EXPECT_EQ(std::count(special.begin(), special.end(), "<plain>"), 0);
  EXPECT_EQ(tokenizer.variables(), R"({"eos_token":"<|done|>","image_token":"<|picture|>"})");
  const std::string wrong = Folder({{"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {}}})"}});
  EXPECT_THAT(MessageOf(Tokenizer::Load(wrong, {}).status()),
              HasSubstr("added_tokens_decoder: 'x' is not an id"));
}

TEST(ChatStyles, DoNotAdviseToAddTheirTokens) {
  ProcessorSpec spec = SpecOf(GoldenFolder() + "/tokenizer-llama");
  spec.chat = "chatml";
  const std::string message = MessageOf(Load(spec).status());
  EXPECT_THAT(message, HasSubstr("has no token '<|im_start|>', which chats of style chatml need"));
  EXPECT_THAT(message, HasSubstr("processor.chat: template"));
  EXPECT_THAT(message, testing::Not(HasSubstr("added_tokens")));
}

}  // namespace
}  // namespace evenkeel::preprocess
