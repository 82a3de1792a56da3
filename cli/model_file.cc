// Finds the model of `evenkeel simulate`, and reads and writes model files.
#include "cli/model_file.h"

#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/model_config.h"
#include "cli/yaml_file.h"
#include "core/implied_media.h"
#include "core/job_syntax.h"
#include "core/status.h"

namespace evenkeel::cli {
namespace {

using advise::PhaseModel;
using advise::TrainingModel;

constexpr double kMaxWhole = 4294967295;

// The whole numbers of a phase.
struct WholeKey {
  const char* name;
  uint32_t PhaseModel::*value;
  uint32_t least;
};
constexpr WholeKey kWholes[] = {{"layers", &PhaseModel::layers, 1},
                                {"hidden", &PhaseModel::hidden, 1},
                                {"heads", &PhaseModel::heads, 0},
                                {"attention_width", &PhaseModel::attention_width, 0},
                                {"key_width", &PhaseModel::key_width, 0},
                                {"window", &PhaseModel::window, 0},
                                {"windowed_layers", &PhaseModel::windowed_layers, 0},
                                {"lengths_per_token", &PhaseModel::lengths_per_token, 1}};
constexpr const char* kRequired[] = {"parameters", "layers", "hidden"};

class Reader {
 public:
  explicit Reader(YamlFile file) : file_(std::move(file)) {}

  absl::StatusOr<GivenModel> Read() {
    const YamlNode& root = file_.root;
    EVENKEEL_RETURN_IF_ERROR(file_.CheckMap(root, "the model file", {"name", "source", "phases", "machine"}));
    GivenModel given;
    given.model.name = std::filesystem::path(file_.path).stem().string();
    given.model.source = file_.path;
    for (const auto& [key, text] :
         {std::pair("name", &given.model.name), std::pair("source", &given.model.source)}) {
      const YamlNode* const node = Find(root, key);
      if (node == nullptr) continue;
      EVENKEEL_ASSIGN_OR_RETURN(*text, file_.Text(*node, key));
    }
    EVENKEEL_RETURN_IF_ERROR(ReadPhases(given.model));
    EVENKEEL_RETURN_IF_ERROR(ReadMachine(given.machine));
    return given;
  }

 private:
  absl::Status ReadPhases(TrainingModel& model) const {
    const YamlNode* const phases = Find(file_.root, "phases");
    if (phases == nullptr || phases->kind != YamlNode::Kind::kMap || phases->keys.empty()) {
      return file_.Error(
          phases == nullptr ? file_.root.line : phases->line,
          "phases: a map of phases by name is expected; write llm: {parameters: ..., layers: ..., "
          "hidden: ...}");
    }
    for (size_t p = 0; p < phases->keys.size(); ++p) {
      EVENKEEL_ASSIGN_OR_RETURN(PhaseModel phase,
                                PhaseOf(phases->keys[p], phases->values[p], phases->key_lines[p]));
      model.phases.push_back(std::move(phase));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PhaseModel> PhaseOf(const std::string& name, const YamlNode& node, int line) const {
    if (!IsPhaseName(name)) {
      return file_.Error(line, absl::StrCat("phases: '", ShortText(name),
                                            "' is not the name of a phase; write llm, "
                                            "vision, audio or the name of an encoder of the job"));
    }
    std::vector<std::string> known = {"parameters", "active_parameters", "causal"};
    for (const WholeKey& key : kWholes) known.push_back(key.name);
    const std::string what = absl::StrCat("phases.", name);
    EVENKEEL_RETURN_IF_ERROR(file_.CheckMap(node, what, known));
    for (const char* key : kRequired) {
      if (Find(node, key) == nullptr)
        return file_.Error(line, absl::StrCat(what, ": ", key, " is missing; write it"));
    }
    const Phase other = name == ImpliedGenerator().name() ? ImpliedGenerator() : Phase(name);
    PhaseModel phase{.phase = PhaseOfImpliedMedia(name).value_or(other)};
    phase.causal = phase.phase == Phase::kLlm;
    EVENKEEL_ASSIGN_OR_RETURN(phase.parameters, Positive(node, what, "parameters", 0));
    EVENKEEL_ASSIGN_OR_RETURN(phase.active_parameters, Positive(node, what, "active_parameters", 0));
    EVENKEEL_ASSIGN_OR_RETURN(phase.causal, Bool(node, what, "causal", phase.causal));
    for (const WholeKey& key : kWholes) {
      EVENKEEL_ASSIGN_OR_RETURN(phase.*key.value, Whole(node, what, key.name, key.least, phase.*key.value));
    }
    if (phase.active_parameters > phase.parameters)
      return file_.Error(line, absl::StrCat(what, ": active_parameters are more than parameters"));
    if (phase.windowed_layers > phase.layers)
      return file_.Error(line, absl::StrCat(what, ": windowed_layers are more than layers"));
    if (phase.windowed_layers > 0 && phase.window == 0)
      return file_.Error(line, absl::StrCat(what, ": windowed_layers need window, in tokens; write it"));
    return phase;
  }

  absl::Status ReadMachine(GivenMachine& machine) const {
    const YamlNode* const node = Find(file_.root, "machine");
    if (node == nullptr) return absl::OkStatus();
    const std::pair<const char*, std::optional<double>*> numbers[] = {
        {"peak_tflops", &machine.peak_tflops},
        {"intra_node_gbs", &machine.intra_node_gbs},
        {"inter_node_gbs", &machine.inter_node_gbs},
        {"memory_gb", &machine.memory_gb}};
    std::vector<std::string> known = {"tensor_parallel", "recompute"};
    for (const auto& [key, value] : numbers) known.push_back(key);
    EVENKEEL_RETURN_IF_ERROR(file_.CheckMap(*node, "machine", known));
    for (const auto& [key, value] : numbers) {
      if (Find(*node, key) == nullptr) continue;
      EVENKEEL_ASSIGN_OR_RETURN(*value, Positive(*node, "machine", key, 0));
    }
    if (Find(*node, "tensor_parallel") != nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(machine.tensor_parallel, Whole(*node, "machine", "tensor_parallel", 1, 1));
    }
    if (Find(*node, "recompute") != nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(machine.recompute, Bool(*node, "machine", "recompute", true));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Positive(const YamlNode& map, const std::string& what, const char* key,
                                  double otherwise) const {
    const YamlNode* const node = Find(map, key);
    if (node == nullptr) return otherwise;
    if (const std::optional<double> number = NumberOf(*node); number && *number > 0) return *number;
    return file_.Error(node->line, absl::StrCat(what, ".", key, ": '", ShortText(node->scalar),
                                                "' is not a number above 0, such as 7.6e9"));
  }

  absl::StatusOr<uint32_t> Whole(const YamlNode& map, const std::string& what, const char* key,
                                 uint32_t least, uint32_t otherwise) const {
    const YamlNode* const node = Find(map, key);
    if (node == nullptr) return otherwise;
    const std::optional<double> number = NumberOf(*node);
    if (number && *number >= least && *number <= kMaxWhole && *number == std::floor(*number))
      return static_cast<uint32_t>(*number);
    return file_.Error(node->line, absl::StrCat(what, ".", key, ": '", ShortText(node->scalar),
                                                "' is not a whole number of at least ", least));
  }

  absl::StatusOr<bool> Bool(const YamlNode& map, const std::string& what, const char* key,
                            bool otherwise) const {
    const YamlNode* const node = Find(map, key);
    if (node == nullptr) return otherwise;
    if (node->kind == YamlNode::Kind::kScalar && !node->quoted &&
        (node->scalar == "true" || node->scalar == "false"))
      return node->scalar == "true";
    return file_.Error(node->line, absl::StrCat(what, ".", key, ": write true or false"));
  }

  const YamlFile file_;
};

}  // namespace

absl::StatusOr<GivenModel> FindModel(const std::string& name) {
  if (const TrainingModel* known = advise::FindTrainingModel(name); known != nullptr)
    return GivenModel{*known, {}};
  std::error_code error;
  const std::filesystem::path path(name);
  const bool is_folder = std::filesystem::is_directory(path, error);
  if (is_folder || path.extension() == ".json") {
    EVENKEEL_ASSIGN_OR_RETURN(TrainingModel model,
                              ReadModelConfig(is_folder ? (path / "config.json").string() : name));
    return GivenModel{std::move(model), {}};
  }
  if (!std::filesystem::exists(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name, "' is not a known model, model file, config.json or folder with one; the models are ",
        advise::TrainingModelNames()));
  }
  EVENKEEL_ASSIGN_OR_RETURN(YamlFile file, YamlFile::Read(name));
  return Reader(std::move(file)).Read();
}

std::string ModelFileText(const TrainingModel& model) {
  std::string out = absl::StrCat("name: \"", model.name, "\"\nphases:\n");
  for (const PhaseModel& phase : model.phases) {
    absl::StrAppendFormat(&out, "  %s:\n    parameters: %.9g\n", std::string(phase.phase.name()),
                          phase.parameters);
    if (phase.active_parameters > 0)
      absl::StrAppendFormat(&out, "    active_parameters: %.9g\n", phase.active_parameters);
    for (const WholeKey& key : kWholes) {
      if (phase.*key.value != PhaseModel().*key.value)
        absl::StrAppend(&out, "    ", key.name, ": ", phase.*key.value, "\n");
    }
    absl::StrAppend(&out, "    causal: ", phase.causal ? "true" : "false", "\n");
  }
  return out;
}

}  // namespace evenkeel::cli
