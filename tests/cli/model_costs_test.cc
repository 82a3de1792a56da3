// Sizes of released models, and what their publishers say of them.
#include "cli/model_costs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace evenkeel::cli {
namespace {

std::map<std::string, Cost> CostsOf(const std::string& config) {
  const std::string folder = ::testing::TempDir() + "/model_costs";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << config;
  return ModelCosts(folder);
}

TEST(ModelCosts, CountTwoOperationsPerWeightAndToken) {
  // Qwen2.5-VL 7B: 7.6e9 weights of the llm, of which half a billion are the embedding, which multiplies nothing.
  const auto costs = CostsOf(R"({"model_type": "qwen2_5_vl", "hidden_size": 3584, "num_hidden_layers": 28,
    "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
                      "hidden_act": "silu"}})");
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_NEAR(costs.at("llm").linear, 2 * 7.07, 0.05);
  EXPECT_NEAR(costs.at("llm").quadratic, 2.0 * 28 * 28 * 128 / 1e9, 1e-9);
  EXPECT_NEAR(costs.at("vision").linear, 2 * 32 * (4 * 1280.0 * 1280 + 3 * 1280.0 * 3420) / 1e9, 1e-6);
  EXPECT_EQ(costs.at("vision").quadratic, 0);
}

TEST(ModelCosts, CountTheExpertsThatATokenPasses) {
  // Qwen3-30B-A3B: 3.3e9 weights are active, of which 0.3e9 are the embedding.
  const auto costs =
      CostsOf(R"({"text_config": {"hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768, "intermediate_size": 6144}})");
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_NEAR(costs.at("llm").linear, 2 * 3.03, 0.1);
}

TEST(ModelCosts, CountAudioByFramesOfTheSpectrogram) {
  const auto costs = CostsOf(R"({"thinker_config": {"text_config": {"hidden_size": 64, "num_hidden_layers": 2,
    "intermediate_size": 128, "num_attention_heads": 4},
    "audio_config": {"d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120}}})");
  EXPECT_NEAR(costs.at("audio").linear, 32 * (4 * 1280.0 * 1280 + 2 * 1280.0 * 5120) / 1e9, 1e-6);
  EXPECT_FALSE(costs.contains("vision"));
}

TEST(ModelCosts, AreNotGuessed) {
  for (const char* config :
       {"", "[]", "{", "{}", R"({"hidden_size": 64})", R"({"hidden_size": "64"})",
        R"({"text_config": [], "hidden_size": -1, "num_hidden_layers": 2})",
        R"({"hidden_size": 1e300, "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 1})",
        R"({"vision_config": {"hidden_size": 8, "depth": 2, "intermediate_size": 8}})"}) {
    EXPECT_TRUE(CostsOf(config).empty()) << config;
  }
  EXPECT_TRUE(ModelCosts("/nowhere").empty());
}

}  // namespace
}  // namespace evenkeel::cli
