// Reads the sizes of a model's towers from its config.json, family by family.
#include "cli/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/implied_media.h"
#include "core/read_file.h"
#include "core/status.h"
#include "dataset/format/json.h"
#include "reorder/by_name.h"

namespace evenkeel::cli {
namespace {

using Json = dataset::JsonValue;
using advise::PhaseModel;
using advise::TrainingModel;

constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr uint32_t kMaxDepth = 32;

// What transformers takes where a config.json leaves a size out: hidden_size, num_hidden_layers, intermediate_size,
// num_attention_heads, num_key_value_heads (0: as many as heads), head_dim (0: hidden_size / heads), vocab_size.
struct LlmDefaults {
  double hidden, layers, inner, heads, key_heads, head, vocabulary;
};
struct LlmFamily {
  std::string_view name;  // model_type
  LlmDefaults defaults;
  bool tied = false;          // whether embeddings are tied where the file has no tie_word_embeddings
  uint32_t full_every = 0;    // of this many layers one has no sliding window; 0: no layer has one by default
  double sliding_window = 0;  // default
  bool all_layers_slide = false;  // if there is a sliding window
};
constexpr LlmDefaults kQwen2Vl = {8192, 80, 29568, 64, 8, 0, 152064};
constexpr LlmDefaults kQwen3Moe = {2048, 24, 6144, 32, 4, 0, 151936};
constexpr LlmFamily kLlms[] = {
    {"llama", {4096, 32, 11008, 32, 0, 0, 32000}},
    {"mistral", {4096, 32, 14336, 32, 8, 0, 32000}, false, 0, 0, /*all_layers_slide=*/true},
    {"mixtral", {4096, 32, 14336, 32, 8, 0, 32000}, false, 0, 0, /*all_layers_slide=*/true},
    {"qwen2", {4096, 32, 22016, 32, 32, 0, 151936}},
    {"qwen3", {4096, 32, 22016, 32, 32, 128, 151936}},
    {"qwen3_moe", kQwen3Moe},
    {"qwen2_vl", kQwen2Vl},
    {"qwen2_vl_text", kQwen2Vl},
    {"qwen2_5_vl", kQwen2Vl},
    {"qwen2_5_vl_text", kQwen2Vl},
    {"qwen2_5_omni_text", {3584, 28, 18944, 28, 4, 0, 152064}},
    {"qwen3_vl_text", {4096, 32, 22016, 32, 32, 128, 151936}},
    {"qwen3_vl_moe_text", kQwen3Moe},
    {"gemma3_text",
     {2304, 26, 9216, 8, 4, 256, 262208},
     /*tied=*/true,
     /*full_every=*/6,
     /*sliding_window=*/4096},
};

// How an encoder's output becomes rows of the llm. With w the encoder's width, t the llm's and m merged tokens:
enum class Projector : uint8_t {
  kNone,
  kQwen,    // m w x m w and m w x t, a block for each level of features
  kLinear,  // w x t
  kTwo,     // w x t and t x t
  kMerged,  // m w x t and t x t
  kMixed,   // m w x w, w x t and t x t
};
struct EncoderFamily {
  std::string_view name;                   // model_type of the encoder's part, or of the file
  uint32_t matrices = 2;                   // of a feed-forward block: 3 with a gate
  Projector projector = Projector::kNone;  // kNone: by the model_type of the file
  bool has_fixed_images = false;           // every image or tile is as large
};
constexpr EncoderFamily kVisions[] = {
    {"qwen2_vl", 2, Projector::kQwen},
    {"qwen2_vl_vision", 2, Projector::kQwen},
    {"qwen2_5_vl", 3, Projector::kQwen},
    {"qwen2_5_vl_vision", 3, Projector::kQwen},
    {"qwen2_5_omni_vision_encoder", 3, Projector::kQwen},
    {"qwen3_vl", 2, Projector::kQwen},
    {"qwen3_vl_vision", 2, Projector::kQwen},
    {"qwen3_vl_moe", 2, Projector::kQwen},
    {"qwen3_vl_moe_vision", 2, Projector::kQwen},
    {"siglip_vision_model", 2, Projector::kNone, /*has_fixed_images=*/true},
    {"clip_vision_model", 2, Projector::kNone, /*has_fixed_images=*/true},
    {"internvl_vision", 2, Projector::kNone, /*has_fixed_images=*/true},
    {"pixtral", 3},
};
struct OfFile {
  std::string_view name;  // model_type of the file
  Projector projector;
};
constexpr OfFile kProjectors[] = {
    {"llava", Projector::kTwo},           {"llava_next", Projector::kTwo},
    {"llava_onevision", Projector::kTwo}, {"llava_next_video", Projector::kTwo},
    {"internvl", Projector::kMerged},     {"gemma3", Projector::kLinear},
    {"mistral3", Projector::kMixed},
};
constexpr EncoderFamily kAudios[] = {{"qwen2_audio_encoder"}, {"qwen2_5_omni_audio_encoder"}};

// A part of the file, and its name for messages.
class Part {
 public:
  Part(std::string path, std::string name, const Json& json)
      : path_(std::move(path)), name_(std::move(name)), json_(&json) {}

  const Json* Find(std::string_view key) const {
    const Json* const value = json_->Find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  // The first of the keys that has a number, or the first number of its list; else `otherwise`.
  double Number(std::initializer_list<std::string_view> keys, double otherwise) const {
    for (std::string_view key : keys) {
      const Json* value = Find(key);
      if (value != nullptr && value->is_array() && !value->values().empty())
        value = &*value->values().begin();
      double number = 0;
      if (value != nullptr && value->kind == Json::Kind::kNumber &&
          absl::SimpleAtod(absl::string_view(value->text.data(), value->text.size()), &number) &&
          number >= 0) {
        return number;
      }
    }
    return otherwise;
  }
  // The same, with an error if the first key that is there has no positive number, or none is and `otherwise` is 0.
  absl::StatusOr<double> Size(std::initializer_list<std::string_view> keys, double otherwise = 0) const {
    const auto given = std::find_if(keys.begin(), keys.end(), [&](auto key) { return Find(key) != nullptr; });
    const double number = given == keys.end() ? otherwise : Number({*given}, 0);
    if (number > 0 && number < 1e9) return number;
    return Error(given == keys.end() ? *(keys.end() - 1) : *given,
                 "is missing or not a positive number; write it");
  }
  std::optional<bool> Bool(std::string_view key) const {
    const Json* const value = Find(key);
    if (value == nullptr || value->kind != Json::Kind::kBool) return std::nullopt;
    return value->text == "true";
  }
  std::string Text(std::string_view key) const {
    const Json* const value = Find(key);
    return value != nullptr && value->is_string() ? std::string(value->text) : "";
  }
  size_t Count(std::string_view key) const {
    const Json* const list = Find(key);
    if (list == nullptr || !list->is_array()) return 0;
    size_t count = 0;
    for (auto at = list->values().begin(); !(at == list->values().end()); ++at) ++count;
    return count;
  }
  absl::Status Error(std::string_view key, std::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", name_, name_.empty() ? "" : ".",
                                                   std::string(key), " ", std::string(why),
                                                   ", or give a model file with its sizes"));
  }
  Part Of(std::string_view key, const Json& json) const {
    return Part(path_, absl::StrCat(name_, name_.empty() ? "" : ".", std::string(key)), json);
  }

 private:
  std::string path_, name_;
  const Json* json_;
};

// The family of the part, by its model_type or, where it has none, the file's.
template <typename Family, size_t kCount>
absl::StatusOr<const Family*> FamilyOf(const Family (&families)[kCount], const Part& part, const Part& file) {
  const std::string own = part.Text("model_type"), name = own.empty() ? file.Text("model_type") : own;
  for (const Family& family : families) {
    if (family.name == name) return &family;
  }
  return (own.empty() ? file : part)
      .Error("model_type",
             absl::StrCat("'", name, "' is not known; write one of ", reorder::NamesOf(families)));
}

// Layers with a sliding window, and its tokens.
struct Sliding {
  double layers = 0, window = 0;
};
Sliding SlidingOf(const Part& config, const LlmFamily& family, double layers) {
  const double window = config.Number({"sliding_window"}, family.sliding_window);
  if (window == 0 || config.Bool("use_sliding_window") == false) return {};
  if (const Json* types = config.Find("layer_types"); types != nullptr) {
    double sliding = 0;
    for (const Json& type : types->values()) sliding += type.text == "sliding_attention";
    return {sliding, window};
  }
  if (config.Bool("use_sliding_window") == true)
    return {std::max(0.0, layers - config.Number({"max_window_layers"}, layers)), window};
  const uint32_t every = static_cast<uint32_t>(config.Number({"sliding_window_pattern"}, family.full_every));
  if (every > 0) return {layers - std::floor(layers / every), window};
  return {family.all_layers_slide ? layers : 0, window};
}

// Weights of all layers' feed-forward blocks.
struct FeedForward {
  double all = 0, active = 0;
};
absl::StatusOr<FeedForward> FeedForwardOf(const Part& config, const LlmFamily& family, double hidden,
                                          double layers) {
  const double experts = config.Number({"num_experts", "num_local_experts", "n_routed_experts"}, 0);
  if (experts == 0) {
    EVENKEEL_ASSIGN_OR_RETURN(const double inner, config.Size({"intermediate_size"}, family.defaults.inner));
    return FeedForward{3 * hidden * inner * layers, 3 * hidden * inner * layers};
  }
  for (std::string_view key :
       {"shared_expert_intermediate_size", "n_shared_experts", "first_k_dense_replace"}) {
    if (config.Number({key}, 0) > 0) return config.Error(key, "is not read; leave it out");
  }
  EVENKEEL_ASSIGN_OR_RETURN(const double chosen, config.Size({"num_experts_per_tok"}));
  EVENKEEL_ASSIGN_OR_RETURN(const double of_expert,
                            config.Size({"moe_intermediate_size", "intermediate_size"}));
  const double every = std::max(1.0, config.Number({"decoder_sparse_step"}, 1));
  const double dense = std::min(layers, static_cast<double>(config.Count("mlp_only_layers")));
  const double sparse = every > 1 ? std::floor(layers / every) : layers - dense;
  if (every > 1 && dense > 0)
    return config.Error("decoder_sparse_step", "with mlp_only_layers is not read; write 1");
  double of_dense = 0;
  if (sparse < layers) {
    EVENKEEL_ASSIGN_OR_RETURN(const double inner, config.Size({"intermediate_size"}, family.defaults.inner));
    of_dense = 3 * hidden * inner * (layers - sparse);
  }
  const double of_router = hidden * experts * sparse, one = 3 * hidden * of_expert * sparse;
  return FeedForward{of_dense + of_router + one * experts, of_dense + of_router + one * chosen};
}

absl::StatusOr<PhaseModel> LlmOf(const Part& config, const Part& file) {
  EVENKEEL_ASSIGN_OR_RETURN(const LlmFamily* family, FamilyOf(kLlms, config, file));
  const LlmDefaults& defaults = family->defaults;
  for (std::string_view key : {"kv_lora_rank", "linear_num_value_heads", "mamba_d_state"}) {
    if (config.Number({key}, 0) > 0) return config.Error(key, "is not read; leave it out");
  }
  EVENKEEL_ASSIGN_OR_RETURN(const double hidden, config.Size({"hidden_size"}, defaults.hidden));
  EVENKEEL_ASSIGN_OR_RETURN(const double layers, config.Size({"num_hidden_layers"}, defaults.layers));
  EVENKEEL_ASSIGN_OR_RETURN(const double heads, config.Size({"num_attention_heads"}, defaults.heads));
  EVENKEEL_ASSIGN_OR_RETURN(
      const double key_heads,
      config.Size({"num_key_value_heads"}, defaults.key_heads > 0 ? defaults.key_heads : heads));
  EVENKEEL_ASSIGN_OR_RETURN(
      const double head,
      config.Size({"head_dim"}, defaults.head > 0 ? defaults.head : std::floor(hidden / heads)));
  EVENKEEL_ASSIGN_OR_RETURN(const double vocabulary, config.Size({"vocab_size"}, defaults.vocabulary));
  EVENKEEL_ASSIGN_OR_RETURN(const FeedForward feed_forward, FeedForwardOf(config, *family, hidden, layers));
  const std::optional<bool> of_file = file.Bool("tie_word_embeddings"),
                            of_part = config.Bool("tie_word_embeddings");
  const bool tied = of_file.has_value() ? *of_file : of_part.value_or(family->tied);
  const double attention = 2 * hidden * head * (heads + key_heads) * layers, embedding = vocabulary * hidden;
  const Sliding sliding = SlidingOf(config, *family, layers);
  PhaseModel llm{.phase = Phase::kLlm,
                 .parameters = attention + feed_forward.all + (tied ? 1 : 2) * embedding,
                 .layers = static_cast<uint32_t>(layers),
                 .hidden = static_cast<uint32_t>(hidden),
                 .causal = true,
                 .key_width = static_cast<uint32_t>(key_heads * head),
                 .heads = static_cast<uint32_t>(heads),
                 .active_parameters = attention + feed_forward.active + embedding,
                 .attention_width = static_cast<uint32_t>(heads * head)};
  if (sliding.layers > 0) {
    llm.window = static_cast<uint32_t>(2 * sliding.window);
    llm.windowed_layers = static_cast<uint32_t>(sliding.layers);
  }
  return llm;
}

// Weights of the projector; `merged` tokens become one.
struct Projection {
  double weights = 0, merged = 1;
};
absl::StatusOr<Projection> ProjectionOf(Projector projector, const Part& config, const Part& file,
                                        double width, double llm) {
  switch (projector) {
    case Projector::kQwen: {
      EVENKEEL_ASSIGN_OR_RETURN(const double side, config.Size({"spatial_merge_size"}, 2));
      const double m = side * side, out = config.Number({"out_hidden_size"}, llm);
      const double levels = 1 + static_cast<double>(config.Count("deepstack_visual_indexes"));
      return Projection{levels * (m * width * m * width + m * width * out), m};
    }
    case Projector::kLinear:
      return Projection{width * llm};
    case Projector::kTwo:
      return Projection{width * llm + llm * llm};
    case Projector::kMerged: {
      EVENKEEL_ASSIGN_OR_RETURN(const double ratio, file.Size({"downsample_ratio"}, 0.5));
      const double m = 1 / (ratio * ratio);
      return Projection{m * width * llm + llm * llm, m};
    }
    case Projector::kMixed: {
      EVENKEEL_ASSIGN_OR_RETURN(const double side, file.Size({"spatial_merge_size"}, 2));
      const double m = side * side;
      return Projection{m * width * width + width * llm + llm * llm, m};
    }
    case Projector::kNone:
      break;
  }
  return Projection{};
}

absl::StatusOr<Projector> ProjectorOf(const EncoderFamily& family, const Part& file) {
  if (family.projector != Projector::kNone) return family.projector;
  EVENKEEL_ASSIGN_OR_RETURN(const OfFile* of_file, FamilyOf(kProjectors, file, file));
  return of_file->projector;
}

absl::StatusOr<PhaseModel> VisionOf(const Part& config, const Part& file, double llm_width) {
  EVENKEEL_ASSIGN_OR_RETURN(const EncoderFamily* family, FamilyOf(kVisions, config, file));
  EVENKEEL_ASSIGN_OR_RETURN(const Projector projector, ProjectorOf(*family, file));
  EVENKEEL_ASSIGN_OR_RETURN(const double width, config.Size({"embed_dim", "hidden_size"}));
  EVENKEEL_ASSIGN_OR_RETURN(const double layers, config.Size({"depth", "num_hidden_layers"}));
  EVENKEEL_ASSIGN_OR_RETURN(const double heads, config.Size({"num_heads", "num_attention_heads"}));
  EVENKEEL_ASSIGN_OR_RETURN(const double inner,
                            config.Size({"intermediate_size"}, config.Number({"mlp_ratio"}, 0) * width));
  EVENKEEL_ASSIGN_OR_RETURN(const double patch, config.Size({"patch_size"}));
  const double channels = config.Number({"in_channels", "in_chans", "num_channels"}, 3);
  const double frames = projector == Projector::kQwen ? config.Number({"temporal_patch_size"}, 2) : 1;
  EVENKEEL_ASSIGN_OR_RETURN(const Projection projection,
                            ProjectionOf(projector, config, file, width, llm_width));
  double places = config.Number({"num_position_embeddings"}, 0), window = 0, windowed = 0;
  if (family->has_fixed_images) {
    EVENKEEL_ASSIGN_OR_RETURN(const double image, config.Size({"image_size"}));
    places = window = std::pow(std::floor(image / patch), 2);
  } else if (const double side = config.Number({"window_size"}, 0); side > 0) {
    window = std::pow(std::floor(side / patch), 2);
    windowed = std::max(0.0, layers - static_cast<double>(config.Count("fullatt_block_indexes")));
  }
  const double body = layers * (4 * width * width + family->matrices * width * inner) +
                      channels * frames * patch * patch * width;
  PhaseModel vision{.phase = *PhaseOfImpliedMedia("vision"),
                    .parameters = body + places * width + projection.weights,
                    .layers = static_cast<uint32_t>(layers),
                    .hidden = static_cast<uint32_t>(width),
                    .heads = static_cast<uint32_t>(heads),
                    .active_parameters = body + projection.weights / projection.merged};
  vision.window = static_cast<uint32_t>(window);
  vision.windowed_layers = static_cast<uint32_t>(windowed);
  return vision;
}

// A token of the encoder's layers is two frames of the spectrogram.
absl::StatusOr<PhaseModel> AudioOf(const Part& config, const Part& file, double llm_width) {
  EVENKEEL_ASSIGN_OR_RETURN(const EncoderFamily* family, FamilyOf(kAudios, config, file));
  EVENKEEL_ASSIGN_OR_RETURN(const double width, config.Size({"d_model"}, 1280));
  EVENKEEL_ASSIGN_OR_RETURN(const double layers, config.Size({"encoder_layers"}, 32));
  EVENKEEL_ASSIGN_OR_RETURN(const double heads, config.Size({"encoder_attention_heads"}, 20));
  EVENKEEL_ASSIGN_OR_RETURN(const double inner, config.Size({"encoder_ffn_dim"}, 5120));
  EVENKEEL_ASSIGN_OR_RETURN(const double bins, config.Size({"num_mel_bins"}, 128));
  const double convolutions = 3 * bins * width + 3 * width * width;
  const double parameters = layers * (4 * width * width + family->matrices * width * inner) + convolutions +
                            width * config.Number({"output_dim"}, llm_width);
  return PhaseModel{.phase = *PhaseOfImpliedMedia("audio"),
                    .parameters = parameters,
                    .layers = static_cast<uint32_t>(layers),
                    .hidden = static_cast<uint32_t>(width),
                    .window = static_cast<uint32_t>(config.Number({"n_window"}, 0)),
                    .heads = static_cast<uint32_t>(heads),
                    .lengths_per_token = 2};
}

absl::StatusOr<TrainingModel> ModelOf(const Part& file) {
  TrainingModel model;
  const Json* const text =
      file.Find("text_config") != nullptr ? file.Find("text_config") : file.Find("llm_config");
  EVENKEEL_ASSIGN_OR_RETURN(PhaseModel llm,
                            LlmOf(text != nullptr ? file.Of("text_config", *text) : file, file));
  const double width = llm.hidden;
  model.phases.push_back(std::move(llm));
  if (const Json* vision = file.Find("vision_config"); vision != nullptr) {
    EVENKEEL_ASSIGN_OR_RETURN(PhaseModel phase, VisionOf(file.Of("vision_config", *vision), file, width));
    model.phases.push_back(std::move(phase));
  }
  if (const Json* audio = file.Find("audio_config"); audio != nullptr) {
    EVENKEEL_ASSIGN_OR_RETURN(PhaseModel phase, AudioOf(file.Of("audio_config", *audio), file, width));
    model.phases.push_back(std::move(phase));
  }
  return model;
}

}  // namespace

absl::StatusOr<TrainingModel> ReadModelConfig(const std::string& path) {
  absl::StatusOr<std::string> text = ReadAtMost(path, kMaxConfigBytes);
  if (!text.ok()) return AddContext(text.status(), path);
  dataset::JsonDocument document;
  const absl::StatusOr<const Json*> root = document.Parse(*text, kMaxDepth);
  if (!root.ok()) return AddContext(root.status(), path);
  if (!(*root)->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": an object is expected; give a model's config.json"));
  }
  const Part whole(path, "", **root);
  const Json* const thinker = whole.Find("thinker_config");
  EVENKEEL_ASSIGN_OR_RETURN(TrainingModel model,
                            ModelOf(thinker != nullptr ? whole.Of("thinker_config", *thinker) : whole));
  const std::filesystem::path file(path);
  const std::string folder =
      std::filesystem::absolute(file).lexically_normal().parent_path().filename().string();
  model.name = folder.empty() ? file.stem().string() : folder;
  model.source = path;
  return model;
}

}  // namespace evenkeel::cli
