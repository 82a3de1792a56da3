// Sizes under the names that configurations of transformers have for them.
#include "cli/model_costs.h"

#include <fstream>
#include <initializer_list>
#include <iterator>

#include "absl/strings/numbers.h"
#include "dataset/format/json.h"

namespace evenkeel::cli {
namespace {

using Json = dataset::JsonValue;

constexpr double kGiga = 1e9;
constexpr Cost kUnknown{.linear = 0};

// The first of the keys with a positive number; 0: none.
double Size(const Json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* const value = config.Find(key);
    double number = 0;
    if (value != nullptr && value->kind == Json::Kind::kNumber &&
        absl::SimpleAtod(absl::string_view(value->text.data(), value->text.size()), &number) && number > 0) {
      return number;
    }
  }
  return 0;
}

// The first of the keys with an object, or null.
const Json* Part(const Json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* const value = config.Find(key);
    if (value != nullptr && value->is_object()) return value;
  }
  return nullptr;
}

// Weights of a feed-forward block: three matrices with a gate, else two.
double FeedForward(const Json& config, double width, double inner) {
  const Json* const act = config.Find("hidden_act");
  const bool gated = act != nullptr && act->is_string() && (act->text == "silu" || act->text == "swish");
  return (gated ? 3 : 2) * width * inner;
}

Cost OfLlm(const Json& config) {
  const double width = Size(config, {"hidden_size"}), layers = Size(config, {"num_hidden_layers"});
  const double heads = Size(config, {"num_attention_heads"}), words = Size(config, {"vocab_size"});
  if (width == 0 || layers == 0 || heads == 0) return kUnknown;
  double inner = Size(config, {"intermediate_size"});
  const double experts = Size(config, {"num_experts_per_tok"}),
               of_expert = Size(config, {"moe_intermediate_size"});
  if (experts > 0) inner = experts * (of_expert > 0 ? of_expert : inner);
  if (inner == 0) return kUnknown;
  double head = Size(config, {"head_dim"}), kv_heads = Size(config, {"num_key_value_heads"});
  if (head == 0) head = width / heads;
  if (kv_heads == 0) kv_heads = heads;
  const double attention = 2 * width * head * (heads + kv_heads);  // queries and outputs; keys and values
  const double weights = layers * (attention + 3 * width * inner) + width * words;
  return {.linear = 2 * weights / kGiga, .quadratic = 2 * layers * heads * head / kGiga};
}

Cost OfVision(const Json& config) {
  const double width = Size(config, {"embed_dim", "hidden_size"});
  const double layers = Size(config, {"depth", "num_hidden_layers"});
  double inner = Size(config, {"intermediate_size"});
  if (inner == 0) inner = Size(config, {"mlp_ratio"}) * width;
  if (width == 0 || layers == 0 || inner == 0) return kUnknown;
  return {.linear = 2 * layers * (4 * width * width + FeedForward(config, width, inner)) / kGiga};
}

// An item's length is in frames of the spectrogram, of which convolutions make half as many.
Cost OfAudio(const Json& config) {
  const double width = Size(config, {"d_model"}), layers = Size(config, {"encoder_layers"});
  const double inner = Size(config, {"encoder_ffn_dim"});
  if (width == 0 || layers == 0 || inner == 0) return kUnknown;
  return {.linear = layers * (4 * width * width + 2 * width * inner) / kGiga};
}

bool IsKnown(const Cost& cost) { return cost.linear > 0 && cost.linear < 1e6 && cost.quadratic < 1e6; }

}  // namespace

std::map<std::string, Cost> ModelCosts(const std::string& folder) {
  std::ifstream file(folder + "/config.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  dataset::JsonDocument document;
  constexpr uint32_t kDepth = 32;
  const absl::StatusOr<const Json*> root = document.Parse(text, kDepth);
  if (!root.ok() || !(*root)->is_object()) return {};
  const Json* const thinker = Part(**root, {"thinker_config"});
  const Json& model = thinker != nullptr ? *thinker : **root;
  const Json* const llm = Part(model, {"text_config", "llm_config"});
  const Json* const vision = Part(model, {"vision_config"});
  const Json* const audio = Part(model, {"audio_config"});
  std::map<std::string, Cost> costs = {{"llm", OfLlm(llm != nullptr ? *llm : model)},
                                       {"vision", vision != nullptr ? OfVision(*vision) : kUnknown},
                                       {"audio", audio != nullptr ? OfAudio(*audio) : kUnknown}};
  std::erase_if(costs, [](const auto& named) { return !IsKnown(named.second); });
  if (!costs.contains("llm")) costs.clear();
  return costs;
}

}  // namespace evenkeel::cli
