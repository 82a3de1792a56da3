// Model files, and the sizes of released models as transformers counts them.
#include "cli/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "cli/model_config.h"
#include "dataset/format/json.h"
#include "tests/source_dir.h"

namespace evenkeel::cli {
namespace {

using ::testing::HasSubstr;
using Json = dataset::JsonValue;

std::string Write(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "model_file" / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

std::string Message(const std::string& name, const std::string& text) {
  return std::string(FindModel(Write(name, text)).status().message());
}

void AppendJson(const Json& value, std::string& out) {
  const char* comma = "";
  switch (value.kind) {
    case Json::Kind::kObject:
    case Json::Kind::kArray:
      out += value.is_object() ? "{" : "[";
      for (const Json& member : value.values()) {
        out += comma;
        comma = ",";
        if (value.is_object()) out += "\"" + std::string(member.key) + "\":";
        AppendJson(member, out);
      }
      out += value.is_object() ? "}" : "]";
      break;
    case Json::Kind::kString:
      out += "\"" + std::string(value.text) + "\"";
      break;
    case Json::Kind::kNull:
      out += "null";
      break;
    default:
      out += value.text;
  }
}

double NumberOf(const Json& value) {
  double number = -1;
  EXPECT_TRUE(absl::SimpleAtod(absl::string_view(value.text.data(), value.text.size()), &number));
  return number;
}

TEST(ModelConfig, ParametersAreThoseThatTransformersCounts) {
  std::ifstream file(SourceDir() + "/tests/golden/models.json");
  std::stringstream read;
  read << file.rdbuf();
  const std::string text = read.str();
  dataset::JsonDocument document;
  const Json* const root = *document.Parse(text, 32);
  int models = 0;
  for (const Json& golden : root->Find("models")->values()) {
    std::string config;
    AppendJson(*golden.Find("config"), config);
    const std::string name(golden.key);
    const auto model = ReadModelConfig(Write(name + "/config.json", config));
    ASSERT_TRUE(model.ok()) << name << ": " << model.status();
    EXPECT_EQ(model->name, name);
    size_t towers = 0;
    for (const Json& tower : golden.Find("parameters")->values()) {
      const advise::PhaseModel* const phase = model->phase(Phase(tower.key));
      ASSERT_NE(phase, nullptr) << name << " " << tower.key;
      const double counted = NumberOf(tower);
      EXPECT_NEAR(phase->parameters / counted, 1, 0.005) << name << " " << tower.key;
      EXPECT_LE(phase->ActiveParameters(), phase->parameters) << name << " " << tower.key;
      ++towers;
    }
    EXPECT_EQ(model->phases.size(), towers) << name;
    const advise::PhaseModel& llm = model->phases.front();
    const double experts = NumberOf(*golden.Find("experts"));
    EXPECT_EQ(experts > 0, llm.ActiveParameters() < 0.5 * llm.parameters) << name;
    ++models;
  }
  EXPECT_GE(models, 17);
}

// What the publishers say: 3.3e9 of 30.5e9, and 12.9e9 of 46.7e9 with both embeddings.
TEST(ModelConfig, ATokenPassesFewOfTheExperts) {
  const auto model =
      ReadModelConfig(Write("moe/config.json", R"({"model_type": "qwen3_moe", "hidden_size": 2048,
      "num_hidden_layers": 48, "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4,
      "vocab_size": 151936, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
      "tie_word_embeddings": false})"));
  ASSERT_TRUE(model.ok()) << model.status();
  const advise::PhaseModel& llm = model->phases.front();
  EXPECT_NEAR(llm.parameters, 30.53e9, 0.02e9);
  EXPECT_NEAR(llm.ActiveParameters() + 151936.0 * 2048, 3.35e9, 0.05e9);
  EXPECT_EQ(llm.attention_width, 4096);
  EXPECT_EQ(llm.key_width, 512);
}

TEST(ModelConfig, AttentionFollowsWindowsTilesAndFrames) {
  const auto qwen =
      ReadModelConfig(Write("windows/config.json", R"({"model_type": "qwen2_5_vl", "vision_config": {
      "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14, "window_size": 112,
      "fullatt_block_indexes": [7, 15, 23, 31]}})"));
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  const Cost cost = advise::ForwardFlops(qwen->phases[1]);
  EXPECT_EQ(cost.quadratic, 4.0 * 1280 * 4) << "four layers attend to everything";
  EXPECT_NEAR(cost.linear - 2 * qwen->phases[1].ActiveParameters(), 4.0 * 1280 * 28 * 64, 1);
  const auto gemma = ReadModelConfig(Write("sliding/config.json", R"({"model_type": "gemma3_text",
      "num_hidden_layers": 34, "sliding_window": 1024})"));
  ASSERT_TRUE(gemma.ok()) << gemma.status();
  EXPECT_EQ(gemma->phases[0].windowed_layers, 29) << "every sixth layer has no window";
  EXPECT_EQ(gemma->phases[0].window, 2048);
  const auto audio = ReadModelConfig(Write("audio/config.json", R"({"model_type": "qwen2_audio",
      "text_config": {"model_type": "qwen2"}, "audio_config": {"model_type": "qwen2_audio_encoder"}})"));
  ASSERT_TRUE(audio.ok()) << audio.status();
  EXPECT_EQ(advise::ForwardFlops(audio->phases[1]).quadratic, 32.0 * 1280) << "a token is two frames";
}

TEST(ModelConfig, WhatIsNotReadIsAnErrorThatSaysWhatToWrite) {
  const auto message = [](const std::string& text) { return Message("wrong/config.json", text); };
  EXPECT_THAT(message("[1]"), HasSubstr("an object is expected"));
  EXPECT_THAT(message("{"), HasSubstr("wrong/config.json"));
  EXPECT_THAT(message(R"({"model_type": "rwkv"})"),
              HasSubstr("model_type 'rwkv' is not known; write one of llama"));
  EXPECT_THAT(message(R"({"model_type": "llama", "kv_lora_rank": 512})"),
              HasSubstr("kv_lora_rank is not read"));
  EXPECT_THAT(message(R"({"model_type": "llama", "num_hidden_layers": -1})"), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(message(R"({"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config":
      {"model_type": "clip_vision_model"}})"),
              HasSubstr("vision_config.hidden_size is missing"));
  EXPECT_THAT(message(R"({"model_type": "mine", "text_config": {"model_type": "llama"}, "vision_config":
      {"model_type": "clip_vision_model"}})"),
              HasSubstr("model_type 'mine' is not known; write one of llava"));
}

TEST(ModelFile, HasPhasesAndAMachine) {
  const auto given = FindModel(Write("own.yaml", R"(
name: omni
phases:
  llm: {parameters: 30.5e9, active_parameters: 3.3e9, layers: 48, hidden: 2048, heads: 32, key_width: 512}
  tower: {parameters: 5e8, layers: 24, hidden: 1024, window: 64, windowed_layers: 20}
machine: {peak_tflops: 313, memory_gb: 64, tensor_parallel: 2, recompute: false}
)"));
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->model.name, "omni");
  const advise::PhaseModel& llm = *given->model.phase(Phase::kLlm);
  EXPECT_TRUE(llm.causal);
  EXPECT_EQ(advise::ForwardFlops(llm).linear, 2 * 3.3e9);
  const advise::PhaseModel& tower = *given->model.phase(Phase("tower"));
  EXPECT_FALSE(tower.causal);
  EXPECT_EQ(advise::ForwardFlops(tower).quadratic, 4.0 * 1024 * 4);
  EXPECT_EQ(given->machine.peak_tflops, 313);
  EXPECT_EQ(given->machine.tensor_parallel, 2);
  EXPECT_EQ(given->machine.recompute, false);
  EXPECT_FALSE(given->machine.inter_node_gbs.has_value());
}

TEST(ModelFile, APrintedModelIsReadAsTheSame) {
  for (const char* name : {"mllm-10b", "internvl3-8b"}) {
    const advise::TrainingModel known = FindModel(name)->model;
    const auto read = FindModel(Write("printed.yaml", ModelFileText(known)));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ModelFileText(read->model), ModelFileText(known));
    ASSERT_EQ(read->model.phases.size(), known.phases.size());
    for (size_t p = 0; p < known.phases.size(); ++p) {
      const Cost a = advise::ForwardFlops(read->model.phases[p]), b = advise::ForwardFlops(known.phases[p]);
      EXPECT_EQ(std::pair(a.linear, a.quadratic), std::pair(b.linear, b.quadratic)) << name;
    }
  }
}

TEST(ModelFile, ErrorsNameTheLineAndTheNearestKey) {
  const auto message = [](const std::string& text) { return Message("wrong.yaml", text); };
  const std::string sizes = "parameters: 1e9, layers: 2, hidden: 8";
  EXPECT_THAT(message("phases:\n  llm: {" + sizes + ", key_widht: 4}\n"),
              HasSubstr("wrong.yaml:2: unknown key 'key_widht' in phases.llm; nearest is 'key_width'"));
  EXPECT_THAT(message("phase: {}\n"), HasSubstr("nearest is 'phases'"));
  EXPECT_THAT(message("name: a\n"), HasSubstr("phases: a map of phases by name is expected"));
  EXPECT_THAT(message("phases: {llm: {layers: 2, hidden: 8}}\n"), HasSubstr("parameters is missing"));
  EXPECT_THAT(message("phases: {llm: {parameters: -1, layers: 2, hidden: 8}}\n"),
              HasSubstr("not a number above 0"));
  EXPECT_THAT(message("phases: {llm: {parameters: 1e9, layers: 2.5, hidden: 8}}\n"),
              HasSubstr("'2.5' is not a whole number of at least 1"));
  EXPECT_THAT(message("phases: {LLM: {" + sizes + "}}\n"), HasSubstr("'LLM' is not the name of a phase"));
  EXPECT_THAT(message("phases: {llm: {" + sizes + ", active_parameters: 2e9}}\n"),
              HasSubstr("more than parameters"));
  EXPECT_THAT(message("phases: {llm: {" + sizes + ", windowed_layers: 1}}\n"), HasSubstr("need window"));
  EXPECT_THAT(message("phases: {llm: {" + sizes + "}}\nmachine: {memory: 1}\n"),
              HasSubstr("nearest is 'memory_gb'"));
  EXPECT_THAT(message("phases: {llm: {" + sizes + "}}\nmachine: {recompute: 1}\n"),
              HasSubstr("write true or false"));
  EXPECT_THAT(std::string(FindModel("gpt").status().message()), HasSubstr("the models are mllm-10b"));
  EXPECT_THAT(std::string(FindModel(::testing::TempDir()).status().message()), HasSubstr("config.json"));
}

}  // namespace
}  // namespace evenkeel::cli
