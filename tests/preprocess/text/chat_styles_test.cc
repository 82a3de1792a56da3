// Chats in every style against the checkpoints' own templates, and what is cut where a sequence is too long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "preprocess/text/rendering.h"
#include "preprocess/text/trim.h"
#include "tests/preprocess/text/golden.h"
#include "tests/preprocess/text/samples.h"

namespace evenkeel::preprocess {
namespace {

using Ids = std::vector<int64_t>;

const std::vector<std::string> kGemmaTokens = {
    "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"};
const std::vector<std::string> kMistralTokens = {
    "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]", "[IMG_END]"};

SequenceStyle StyleOf(const std::string& chat) {
  MediumStyle image{Medium::kImage, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", false};
  if (chat == "internvl") image = {Medium::kImage, "<img>", "<IMG_CONTEXT>", "</img>", false};
  if (chat == "llava" || chat == "vicuna") return {.media = {{Medium::kImage, "", "<image>", "", false}}};
  if (chat == "mistral" || chat == "pixtral") return {.media = {{Medium::kImage, "", "[IMG]", "[IMG_END]"}}};
  if (chat == "gemma") {
    return {.media = {{.begin = "<start_of_image>",
                       .placeholder = "<image_soft_token>",
                       .end = "<end_of_image>",
                       .before = "\n\n",
                       .after = "\n\n"}}};
  }
  return {.media = {image, {Medium::kAudio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>", false}}};
}

ProcessorSpec SpecOf(const std::string& chat) {
  ProcessorSpec spec;
  spec.chat = chat;
  spec.tokenizer = GoldenFolder() + (chat == "llava" || chat == "vicuna" ? "/tokenizer-llama" : "/tokenizer");
  if (chat == "internvl") spec.added_tokens = {"<img>", "</img>", "<IMG_CONTEXT>"};
  if (chat == "gemma") spec.added_tokens = kGemmaTokens;
  if (chat == "mistral" || chat == "pixtral") spec.added_tokens = kMistralTokens;
  return spec;
}

std::unique_ptr<SequenceBuilder> Load(const ProcessorSpec& spec, const Limits& limits = {}) {
  absl::StatusOr<std::unique_ptr<SequenceBuilder>> builder =
      SequenceBuilder::Load(spec, limits, StyleOf(spec.chat));
  EXPECT_TRUE(builder.ok()) << builder.status();
  return builder.ok() ? *std::move(builder) : nullptr;
}

TEST(ChatStyles, GiveTheTokensOfTheCheckpointsOwnTemplates) {
  for (const nlohmann::json& example : GoldenCases("styles.json")) {
    SCOPED_TRACE(example["style"].get<std::string>() + ": " + example["rendered"].get<std::string>());
    ProcessorSpec spec = SpecOf(example["style"]);
    spec.added_tokens = example["added"].get<std::vector<std::string>>();
    auto builder = Load(spec);
    ASSERT_NE(builder, nullptr);
    Sample sample = SampleOf(example);
    absl::StatusOr<Sequence> sequence =
        BuildWith(*builder, sample.conversation, sample.items, OnGrids(sample.items, sample.grids));
    ASSERT_TRUE(sequence.ok()) << sequence.status();
    EXPECT_EQ(sequence->input_ids, example["ids"].get<Ids>());
    EXPECT_EQ(sequence->labels, example["labels"].get<Ids>());
  }
}

TEST(ChatStyles, ToolsAndTheirCallsAreWrittenAsQwensTemplatesWriteThem) {
  for (const nlohmann::json& example : GoldenCases("tools.json")) {
    SCOPED_TRACE(example["rendered"].get<std::string>());
    ProcessorSpec spec = SpecOf("chatml");
    spec.system = example["system"];
    absl::StatusOr<Sequence> sequence = BuildWith(*Load(spec), SampleOf(example).conversation, {}, {});
    ASSERT_TRUE(sequence.ok()) << sequence.status();
    EXPECT_EQ(sequence->input_ids, example["ids"].get<Ids>());
    EXPECT_EQ(sequence->labels, example["labels"].get<Ids>());
  }
}

TEST(ChatStyles, RefuseWhatOnlyTemplatesWrite) {
  auto builder = Load(SpecOf("chatml"));
  Conversation chat = Chat({Text("How warm is it?")}, {Text("I look.")});
  chat.turns[1].members = R"(, "name": "Ada")";
  EXPECT_TRUE(BuildWith(*builder, chat, {}, {}).ok()) << "a name changes no text";
  chat.turns[1].unwritten = "reasoning_content";
  EXPECT_THAT(std::string(BuildWith(*builder, chat, {}, {}).status().message()),
              testing::HasSubstr("turn 1 has 'reasoning_content', which chats of style chatml do not write"));
  chat.turns[1].unwritten = "";
  chat.turns[1].calls = 1;
  chat.calls = {CallOf("weather", "")};
  EXPECT_THAT(std::string(BuildWith(*builder, chat, {}, {}).status().message()),
              testing::HasSubstr("call 0 of a tool has 'arguments' in a text"));
}

TEST(ChatStyles, ThatDoNotWriteToolsRefuseThem) {
  auto builder = Load(SpecOf("plain"));
  Conversation chat = Chat({Text("How warm is it?")}, {Text("I look.")});
  chat.calls = {CallOf("weather", "{}")};
  chat.turns[1].calls = 1;
  absl::Status status = BuildWith(*builder, chat, {}, {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("turn 1 has 'tool_calls', which chats of style plain"));
  EXPECT_EQ(builder->Measure(chat, {}, {}).status(), status);
  chat.tools = {"{}"};
  EXPECT_THAT(std::string(BuildWith(*builder, chat, {}, {}).status().message()),
              testing::HasSubstr("the chat has 'tools', which chats of style plain"));
}

// What the job says goes where a sample's own system turn goes.
TEST(ChatStyles, WriteTheJobsSystemPromptAsASamplesOwn) {
  std::map<std::string, int> compared;
  for (const nlohmann::json& example : GoldenCases("styles.json")) {
    ProcessorSpec spec = SpecOf(example["style"]);
    spec.added_tokens = example["added"].get<std::vector<std::string>>();
    Sample sample = SampleOf(example);
    std::vector<Turn>& turns = sample.conversation.turns;
    if (spec.chat == "pixtral" || turns[0].role != Role::kSystem || !sample.items.empty()) continue;
    spec.system = turns[0].spans[0].text;
    if (spec.system.empty()) continue;  // of a job it is none
    turns.erase(turns.begin());
    absl::StatusOr<Sequence> sequence = BuildWith(*Load(spec), sample.conversation, {}, {});
    ASSERT_TRUE(sequence.ok()) << sequence.status();
    EXPECT_EQ(sequence->input_ids, example["ids"].get<Ids>()) << spec.chat;
    ++compared[spec.chat];
  }
  for (const char* style : {"gemma", "internvl", "llama3", "llava", "mistral"}) EXPECT_GT(compared[style], 0);
}

TEST(ChatStyles, OfMistralHaveNoSystemPromptWhereNobodySaysOne) {
  auto builder = Load(SpecOf("mistral"));
  absl::StatusOr<Sequence> sequence = BuildWith(*builder, Chat({Text("Hi")}, {Text("Hello.")}), {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(sequence->input_ids, *builder->tokenizer().Encode("<s>[INST]Hi[/INST]Hello.</s>"));
}

TEST(ChatStyles, RefuseTurnsThatTheirTemplatesFailOn) {
  const Conversation twice{
      .turns = {{Role::kUser, {Text("Hi")}}, {Role::kUser, {Text("?")}}, {Role::kAssistant, {Text("!")}}}};
  const Conversation answer{.turns = {{Role::kSystem, {Text("Be brief.")}}, {Role::kAssistant, {Text("!")}}}};
  const Conversation tool{.turns = {{Role::kUser, {Text("Hi")}}, {Role::kTool, {Text("4")}}}};
  const auto said = [&](const std::string& style, const Conversation& chat) {
    auto builder = Load(SpecOf(style));
    const absl::Status status = BuildWith(*builder, chat, {}, {}).status();
    EXPECT_EQ(builder->Measure(chat, {}, {}).status(), status);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    Conversation plain = chat;
    plain.plain = true;
    EXPECT_TRUE(BuildWith(*builder, plain, {}, {}).ok());
    return std::string(status.message());
  };
  for (const std::string style : {"gemma", "pixtral"}) {
    EXPECT_THAT(said(style, twice),
                testing::StartsWith("turn 1 is not an assistant's, and chats of style " + style));
    EXPECT_THAT(said(style, answer), testing::StartsWith("turn 1 is not a user's"));
    EXPECT_THAT(said(style, tool), testing::StartsWith("turn 1 is not an assistant's"));
  }
  EXPECT_EQ(said("mistral", twice), "");
  EXPECT_EQ(said("mistral", answer), "");
  EXPECT_THAT(said("mistral", tool), testing::StartsWith("turn 1 is a tool's, and chats of style mistral"));
}

TEST(ChatStyles, VicunaEndsAnswersWithTheEndOfTheText) {
  auto builder = Load(SpecOf("vicuna"));
  std::vector<SampleItem> items = {Image(2)};
  Conversation chat = Chat({Item(Medium::kImage, 0), Text("\nWhat?")}, {Text("A boat.")});
  chat.turns.push_back({Role::kUser, {Text("And?")}});
  chat.turns.push_back({Role::kAssistant, {Text("No.")}});
  absl::StatusOr<Sequence> sequence = BuildWith(*builder, chat, items, OnGrids(items, {}));
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(sequence->input_ids,
            *builder->tokenizer().Encode("<s>USER: <image><image>\nWhat? ASSISTANT: A boat.</s>"
                                         "USER: And? ASSISTANT: No.</s>"));
  EXPECT_EQ(sequence->labels.back(), builder->pad_token());
  EXPECT_EQ(std::count(sequence->labels.begin(), sequence->labels.end(), builder->pad_token()), 2);
}

// Where a tokenizer writes a space before the first word of a sequence only, what stands behind marks and
// media has none, as in the whole sequence tokenised at once.
TEST(ChatStyles, GiveTheTokensOfTheWholeWhereOnlyTheFirstWordHasASpace) {
  const nlohmann::json first = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  const std::string folder =
      PatchedTokenizer("tokenizer-llama", {{"normalizer", nullptr}, {"pre_tokenizer", first}});
  std::vector<SampleItem> items = {Image(2), Image(1)};
  Conversation chat = Chat({Item(Medium::kImage, 0), Text("What is the boat?")}, {Text("On the water.")});
  chat.turns.push_back({Role::kUser, {Text("the "), Item(Medium::kImage, 1), Text("other")}});
  chat.turns.push_back({Role::kAssistant, {Text(" one")}});
  const std::map<std::string, std::string> wholes = {
      {"vicuna",
       "USER: <image><image>What is the boat? ASSISTANT: On the water.</s>"
       "USER: the <image>other ASSISTANT:  one</s>"},
      {"llava",
       "USER: <image><image>\nWhat is the boat? ASSISTANT: On the water. "
       "USER: <image>\nthe  other ASSISTANT:  one "},
      {"plain", "<image><image>What is the boat?On the water.the <image>other one</s>"}};
  for (const auto& [style, whole] : wholes) {
    ProcessorSpec spec = SpecOf(style);
    spec.tokenizer = folder;
    absl::StatusOr<std::unique_ptr<SequenceBuilder>> builder =
        SequenceBuilder::Load(spec, Limits(), StyleOf("llava"));
    ASSERT_TRUE(builder.ok()) << builder.status();
    absl::StatusOr<Sequence> sequence = BuildWith(**builder, chat, items, OnGrids(items, {}));
    ASSERT_TRUE(sequence.ok()) << sequence.status();
    const bool begins = style != "plain";
    EXPECT_EQ(sequence->input_ids, *(*builder)->tokenizer().Encode(whole, /*add_special_tokens=*/begins))
        << style;
    // A text alone is the first.
    sequence = BuildWith(**builder, Plain({Text("boat")}), {}, {});
    EXPECT_EQ(sequence->input_ids, *(*builder)->tokenizer().Encode("boat</s>", begins)) << style;
  }
}

TEST(ChatStyles, PlainSamplesBeginAsTheStyleBegins) {
  ProcessorSpec spec = SpecOf("llama3");
  spec.added_tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  auto builder = Load(spec);
  absl::StatusOr<Sequence> sequence = BuildWith(*builder, Plain({Text("boat")}), {}, {});
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ(sequence->input_ids, *builder->tokenizer().Encode("<|begin_of_text|>boat<|endoftext|>"));
}

TEST(ChatStyles, MarksThatTheTokenizerLacksAreNamed) {
  absl::Status status = SequenceBuilder::Load(SpecOf("llama3"), Limits(), StyleOf("llama3")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("<|start_header_id|>"));
}

TEST(Trim, TakesAwayWhatPythonTakesAway) {
  EXPECT_EQ(WithoutLeading(" \t\n\xe3\x80\x80 a b\xc2\xa0\x1f"), "a b\xc2\xa0\x1f");
  EXPECT_EQ(WithoutTrailing(" \t\n\xe3\x80\x80 a b\xc2\xa0\x1f"), " \t\n\xe3\x80\x80 a b");
  EXPECT_EQ(WithoutLeading("\xe2\x80\x8b"), "\xe2\x80\x8b") << "a zero-width space is none";
  EXPECT_EQ(WithoutLeading("  "), "");
  EXPECT_EQ(WithoutTrailing("  "), "");
}

// What is rendered of spans, media as '#'.
std::string TrimmedLine(const std::vector<Span>& spans) {
  Rendering rendering;
  rendering.TrimmedContent(spans, /*trained=*/true);
  std::string out;
  for (const Stretch& stretch : rendering.stretches()) {
    out += stretch.kind == Stretch::Kind::kItem ? "#" : std::string(stretch.text);
  }
  return out;
}

TEST(Trim, OfATurnIsThatOfAllItsTextsTogether) {
  EXPECT_EQ(TrimmedLine({Text(" "), Text("\n a "), Item(Medium::kImage, 0), Text(" b"), Text(" \t")}),
            "a # b");
  EXPECT_EQ(TrimmedLine({Text(" "), Item(Medium::kImage, 0), Text(" ")}), "#");
  EXPECT_EQ(TrimmedLine({Text(" a "), Text(" "), Text(" b ")}), "a   b");
  EXPECT_EQ(TrimmedLine({Text(" \n"), Text("\t")}), "");
  EXPECT_EQ(TrimmedLine({}), "");
}

// Runs of an item with text between them, as a video that tells its times has.
TEST(Runs, StandBetweenTheirTexts) {
  ProcessorSpec spec = SpecOf("chatml");
  SequenceStyle style{
      .media = {{Medium::kVideo, "<|vision_start|>", "<|video_pad|>", "<|vision_end|>", true}},
      .merge_size = 2};
  auto builder = *SequenceBuilder::Load(spec, Limits(), style);
  std::vector<SampleItem> items = {{Medium::kVideo, {16, 16, 4}}};
  std::vector<ItemPlaceholders> runs = {
      {{"<0.5 seconds>", 2, {1, 2, 4, 0}}, {"<1.5 seconds>", 2, {1, 2, 4, 0}}}};
  Conversation chat = Chat({Text("a "), Item(Medium::kVideo, 0), Text("b")}, {Text("c")});
  absl::StatusOr<Sequence> sequence = BuildWith(*builder, chat, items, runs);
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  const std::string whole =
      "<|im_start|>user\na <0.5 seconds><|vision_start|><|video_pad|><|video_pad|><|vision_end|><1.5 seconds>"
      "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>b<|im_end|>\n<|im_start|>assistant\nc<|im_end|"
      ">\n";
  EXPECT_EQ(sequence->input_ids, *builder->tokenizer().Encode(whole));
  EXPECT_EQ(builder->Measure(chat, items, runs)->llm_length, sequence->input_ids.size());
  // Each run is a grid of its own: two columns, then on from the larger side.
  const size_t first = std::find(sequence->token_types.begin(), sequence->token_types.end(), 2) -
                       sequence->token_types.begin();
  const size_t length = sequence->input_ids.size();
  EXPECT_EQ(sequence->positions[2 * length + first + 1], sequence->positions[2 * length + first] + 1);
  EXPECT_EQ(sequence->positions[first + 1], sequence->positions[first]);
}

// The tokens of "Look: ", the golden's video, and what follows.
Ids IdsOfVideo(const ProcessorSpec& spec, const nlohmann::json& golden) {
  absl::StatusOr<std::unique_ptr<Processor>> processor = Processor::Load(spec, Limits());
  EXPECT_TRUE(processor.ok()) << processor.status();
  if (!processor.ok()) return {};
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = golden["width"];
  facts.height = golden["height"];
  facts.num_frames = golden["frames"];
  facts.fps_num = golden["fps"];
  facts.fps_den = 1;
  std::vector<SampleItem> items = {{Medium::kVideo, *(*processor)->Measure(facts)}};
  Conversation chat;
  chat.turns = {{Role::kUser, {Text("Look: "), Item(Medium::kVideo, 0), Text("What?")}}};
  Sequence sequence;
  const absl::Status built = (*processor)->BuildSequence(chat, items, {&facts, 1}, sequence);
  EXPECT_TRUE(built.ok()) << built;
  return sequence.input_ids;
}

TEST(Runs, OfAVideoAreThoseOfQwen3VlsOwnProcessor) {
  const nlohmann::json golden = ReadGolden("timed_video.json");
  ProcessorSpec spec = SpecOf("chatml");
  spec.vision = GoldenFolder() + "/data/processors/qwen3-vl";
  EXPECT_EQ(IdsOfVideo(spec, golden), golden["ids"].get<Ids>());
}

TEST(Runs, OfAVideoAreThoseOfInternVlsOwnProcessor) {
  const nlohmann::json golden = ReadGolden("framed_video.json");
  const std::string folder = testing::TempDir() + "framed_video";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(GoldenFolder() + "/data/processors/internvl", folder);
  nlohmann::json outer = {{"image_seq_length", golden["rows"]}, {"processor_class", "InternVLProcessor"}};
  std::ofstream(folder + "/processor_config.json") << outer;
  ProcessorSpec spec = SpecOf("internvl");
  spec.vision = folder;
  EXPECT_EQ(spec.added_tokens.size(), golden["added"].size());
  spec.added_tokens = golden["added"].get<std::vector<std::string>>();
  EXPECT_EQ(IdsOfVideo(spec, golden), golden["ids"].get<Ids>());
  std::filesystem::remove_all(folder);
}

TEST(Truncation, CutsTextAndNeverAMedium) {
  ProcessorSpec spec = SpecOf("chatml");
  std::vector<SampleItem> items = {Image(6)};
  Conversation chat =
      Chat({Text("one two "), Item(Medium::kImage, 0), Text("three four")}, {Text("five six seven")});
  chat.turns.push_back({Role::kUser, {Text("eight")}});
  chat.turns.push_back({Role::kAssistant, {Text("nine")}});
  const std::vector<ItemPlaceholders> placeholders = OnGrids(items, {});
  const Sequence whole = *BuildWith(*Load(spec), chat, items, placeholders);
  const size_t media_end = std::find(whole.token_types.rbegin(), whole.token_types.rend(), 1).base() -
                           whole.token_types.begin() + 1;
  spec.truncate = "text";
  for (uint64_t limit = 1; limit <= whole.input_ids.size() + 1; ++limit) {
    Limits limits;
    limits.max_llm_length = limit;
    auto builder = Load(spec, limits);
    absl::StatusOr<Sequence> cut = BuildWith(*builder, chat, items, placeholders);
    if (limit < media_end) {
      EXPECT_TRUE(absl::IsResourceExhausted(cut.status())) << limit;
      continue;
    }
    ASSERT_TRUE(cut.ok()) << cut.status();
    const size_t length = std::min<size_t>(limit, whole.input_ids.size());
    EXPECT_EQ(cut->input_ids, Ids(whole.input_ids.begin(), whole.input_ids.begin() + length));
    EXPECT_EQ(cut->labels, Ids(whole.labels.begin(), whole.labels.begin() + length));
    EXPECT_EQ(std::count(cut->token_types.begin(), cut->token_types.end(), 1), 6);
    absl::StatusOr<SequenceLengths> lengths = builder->Measure(chat, items, placeholders);
    EXPECT_EQ(lengths->llm_length, length);
    EXPECT_EQ(lengths->loss_tokens, LossTokens(*cut));
  }
}

// Random chats of every style and limit: what is delivered is the beginning of the whole, with all
// placeholders of all items and the marks around them, or nothing is.
TEST(Truncation, KeepsAllOfEveryMediumOrRefuses) {
  std::mt19937 random(17);
  for (const std::string style : {"chatml", "internvl", "llava", "mistral", "qwen2_audio", "plain"}) {
    ProcessorSpec spec = SpecOf(style);
    auto builder = Load(spec);
    ASSERT_NE(builder, nullptr);
    spec.truncate = "text";
    const bool hears = style != "internvl" && style != "llava" && style != "mistral";
    for (int round = 0; round < 20; ++round) {
      Conversation chat;
      std::vector<SampleItem> items;
      for (uint32_t turns = 1 + random() % 4; turns > 0; --turns) {
        Turn& turn = chat.turns.emplace_back();
        turn.role = turns % 2 == 0 ? Role::kUser : Role::kAssistant;
        for (uint32_t spans = random() % 4; spans > 0; --spans) {
          const Medium medium = hears && random() % 2 == 0 ? Medium::kAudio : Medium::kImage;
          if (random() % 2 == 0) {
            turn.spans.push_back(
                Text(std::string(1 + random() % 30, "a \n8"[random() % 4]) + "\xe8\x88\xb9"));
            continue;
          }
          turn.spans.push_back(Item(medium, static_cast<uint32_t>(items.size())));
          items.push_back({medium, {1, 1, static_cast<uint32_t>(1 + random() % 6)}});
        }
      }
      const std::vector<ItemPlaceholders> placeholders = OnGrids(items, {});
      const absl::StatusOr<Sequence> whole = BuildWith(*builder, chat, items, placeholders);
      ASSERT_TRUE(whole.ok()) << whole.status();
      const size_t length = whole->input_ids.size();
      Limits limits;
      limits.max_llm_length = 1 + random() % length;
      auto cutting = Load(spec, limits);
      const absl::StatusOr<Sequence> cut = BuildWith(*cutting, chat, items, placeholders);
      const absl::StatusOr<SequenceLengths> measured = cutting->Measure(chat, items, placeholders);
      EXPECT_EQ(cut.status().code(), measured.status().code());
      uint64_t rows = 0;
      for (const SampleItem& item : items) rows += item.lengths.output_rows;
      const auto placed = [](auto begin, auto end) {
        return static_cast<uint64_t>(std::count_if(begin, end, [](uint8_t type) { return type != 0; }));
      };
      const auto limit = whole->token_types.begin() + static_cast<ptrdiff_t>(limits.max_llm_length);
      if (!cut.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(cut.status())) << cut.status();
        // At most the last mark of the last medium is beyond the limit.
        EXPECT_TRUE(placed(whole->token_types.begin(), limit) < rows || (rows > 0 && *(limit - 1) != 0));
        continue;
      }
      ASSERT_EQ(cut->input_ids.size(), limits.max_llm_length);
      EXPECT_TRUE(std::equal(cut->input_ids.begin(), cut->input_ids.end(), whole->input_ids.begin()));
      EXPECT_TRUE(std::equal(cut->labels.begin(), cut->labels.end(), whole->labels.begin()));
      EXPECT_EQ(placed(cut->token_types.begin(), cut->token_types.end()), rows);
      EXPECT_EQ(measured->llm_length, limits.max_llm_length);
      EXPECT_EQ(measured->loss_tokens, LossTokens(*cut));
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
