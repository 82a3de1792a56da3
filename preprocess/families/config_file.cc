// Reads keys of a JSON configuration and remembers which were used, so that Finish can refuse the rest.
#include "preprocess/families/config_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/read_file.h"
#include "core/status.h"

namespace evenkeel::preprocess {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxConfigBytes = 16ull << 20;
constexpr int kMaxDepth = 64;
using UintPairList = std::vector<std::pair<uint64_t, uint64_t>>;

constexpr char kOuterFile[] = "processor_config.json";

absl::StatusOr<Json> ReadJson(const std::string& path) {
  absl::StatusOr<std::string> text = ReadAtMost(path, kMaxConfigBytes + 1);
  if (!text.ok()) return AddContext(text.status(), path);
  if (text->size() > kMaxConfigBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, ": larger than 16 MiB"));
  bool too_deep = false;
  auto depth_guard = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMaxDepth;
    return !too_deep;
  };
  Json json = Json::parse(*text, depth_guard, /*allow_exceptions=*/false);
  if (too_deep || json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object of at most 64 levels"));
  }
  return json;
}

// A part without a processor class gets the one of the whole file.
void TakeClassOf(const Json& outer, Json& part) {
  constexpr char kKey[] = "processor_class";
  if (!part.contains(kKey) && outer.contains(kKey)) part[kKey] = outer[kKey];
}

// A wrong value as an error shows it.
std::string Shown(const Json& value) {
  return value.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true).substr(0, 80);
}

// The one value of a list of equal ones, as in "patch_size": [14, 14]; else the value itself.
const Json& OneOfEqual(const Json& value) {
  if (!value.is_array() || value.empty()) return value;
  const bool equal =
      std::all_of(value.begin(), value.end(), [&](const Json& one) { return one == value[0]; });
  return equal ? value[0] : value;
}

// Not a number, which the same key could have instead.
std::string FlagText(bool value) { return value ? "true" : "false"; }

}  // namespace

struct ConfigFile::State {
  std::string where;
  std::string part;  // of the checkpoint, in the digest's text: "image_processor"
  std::shared_ptr<ConsumedKeys> consumed;
  bool is_open = false;  // keys that nobody asks for are allowed
  Json json;
  std::set<std::string> known;
  std::set<std::string> known_inner;  // "key.inner"
  absl::Status first_error;

  // Marks the key as known. Returns null if it is absent or null.
  const Json* Find(std::string_view key) {
    known.emplace(key);
    auto it = json.find(std::string(key));
    return it == json.end() || it->is_null() ? nullptr : &*it;
  }
  void Consume(std::string_view key, std::vector<ConsumedKeys::Value> values) {
    consumed->Set(absl::StrCat(part, ".", std::string(key)), std::move(values));
  }
  // Keeps the first error, which Finish returns: readers can go on without checking each value.
  void Wrong(std::string_view key, std::string_view message) {
    if (first_error.ok()) {
      first_error =
          absl::InvalidArgumentError(absl::StrCat(where, ": ", std::string(key), ": ", std::string(message)));
    }
  }
  const Json* FindIn(std::string_view key, std::string_view inner) {
    known_inner.insert(absl::StrCat(std::string(key), ".", std::string(inner)));
    const Json* object = Find(key);
    if (object == nullptr) return nullptr;
    if (!object->is_object()) {
      Wrong(key, absl::StrCat("is ", Shown(*object), ", not an object"));
      return nullptr;
    }
    auto it = object->find(std::string(inner));
    return it == object->end() || it->is_null() ? nullptr : &*it;
  }
  double RealOf(std::string_view key, double fallback) {
    const Json* value = Find(key);
    if (value == nullptr) return fallback;
    if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
    Wrong(key, absl::StrCat("is ", Shown(*value), ", not a number"));
    return fallback;
  }
  bool FlagOf(std::string_view key, bool fallback) {
    const Json* value = Find(key);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    Wrong(key, absl::StrCat("is ", Shown(*value), ", neither true nor false"));
    return fallback;
  }
  std::string TextOf(std::string_view key, std::string_view fallback) {
    const Json* value = Find(key);
    if (value == nullptr) return std::string(fallback);
    if (value->is_string()) return value->get<std::string>();
    Wrong(key, absl::StrCat("is ", Shown(*value), ", not a string"));
    return std::string(fallback);
  }
  std::vector<double> RealsOf(std::string_view key, std::vector<double> fallback) {
    const Json* value = Find(key);
    return value == nullptr ? fallback : RealsOf(key, *value, std::move(fallback));
  }
  std::vector<double> WrappedRealsOf(std::string_view key, size_t count) {
    const Json* value = Find(key);
    if (value == nullptr) return {};
    while (value->is_array() && value->size() == 1 && value->front().is_array()) value = &value->front();
    return RealsOf(key, *value, std::vector<double>(count));
  }
  std::vector<double> RealsOf(std::string_view key, const Json& value, std::vector<double> fallback) {
    std::vector<double> out;
    if (value.is_array()) {
      for (const Json& element : value) {
        if (element.is_number()) out.push_back(element.get<double>());
      }
    }
    if (out.size() == fallback.size() && value.size() == out.size()) return out;
    Wrong(key, absl::StrCat("is ", Shown(value), ", not a list of ", fallback.size(), " numbers"));
    return fallback;
  }
  std::vector<uint64_t> UintsOf(std::string_view key, size_t count, uint64_t min, uint64_t max) {
    std::vector<uint64_t> out(count, 0);
    const Json* value = Find(key);
    if (value == nullptr) return out;
    if (!value->is_array() || value->size() != count) {
      Wrong(key, absl::StrCat("is ", Shown(*value), ", not a list of ", count, " whole numbers"));
      return out;
    }
    for (size_t i = 0; i < count; ++i) out[i] = Checked((*value)[i], key, 0, min, max);
    return out;
  }
  UintPairList UintPairsOf(std::string_view key, UintPairList fallback, uint64_t min, uint64_t max) {
    const Json* value = Find(key);
    if (value == nullptr) return fallback;
    const bool of_pairs = value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& one) {
                            return one.is_array() && one.size() == 2;
                          });
    if (!of_pairs) {
      Wrong(key, absl::StrCat("is ", Shown(*value), ", not a list of pairs of whole numbers"));
      return fallback;
    }
    UintPairList out;
    for (const Json& one : *value) {
      const uint64_t first = Checked(one[0], key, 0, min, max);
      out.emplace_back(first, Checked(one[1], key, 0, min, max));
    }
    return out;
  }
  uint64_t Checked(const Json& value, std::string_view key, uint64_t fallback, uint64_t min, uint64_t max) {
    if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) {
      Wrong(key, absl::StrCat("is ", Shown(value), ", not a whole number"));
      return fallback;
    }
    uint64_t number = value.get<uint64_t>();
    if (number < min || number > max) {
      Wrong(key, absl::StrCat("is ", number, ", not between ", min, " and ", max));
      return fallback;
    }
    return number;
  }
  void Pinned(std::string_view key, bool holds, const std::string& only) {
    if (!holds) {
      Wrong(key, absl::StrCat("is ", Shown(json[std::string(key)]), "; only ", only, " is implemented"));
    }
  }
};

ConfigFile::ConfigFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
ConfigFile::ConfigFile(ConfigFile&&) noexcept = default;
ConfigFile& ConfigFile::operator=(ConfigFile&&) noexcept = default;
ConfigFile::~ConfigFile() = default;

absl::StatusOr<ConfigFile> ConfigFile::ReadImageProcessor(const CheckpointFolder& checkpoint) {
  return Read(checkpoint, "image_processor", {"preprocessor_config.json"});
}

absl::StatusOr<ConfigFile> ConfigFile::ReadVideoProcessor(const CheckpointFolder& checkpoint) {
  return Read(checkpoint, "video_processor", {"video_preprocessor_config.json", "preprocessor_config.json"});
}

absl::StatusOr<ConfigFile> ConfigFile::ReadOwnVideoProcessor(const CheckpointFolder& checkpoint) {
  absl::StatusOr<ConfigFile> own = Read(checkpoint, "video_processor", {"video_preprocessor_config.json"});
  if (absl::IsNotFound(own.status())) return ReadIfThere(checkpoint, "video_preprocessor_config.json");
  return own;
}

absl::StatusOr<ConfigFile> ConfigFile::ReadFeatureExtractor(const CheckpointFolder& checkpoint) {
  // Some processors of transformers name the part otherwise.
  constexpr std::string_view kUsual = "feature_extractor", kOther = "audio_processor";
  EVENKEEL_ASSIGN_OR_RETURN(const ConfigFile outer, ReadIfThere(checkpoint, kOuterFile));
  const bool other = !outer.Has(kUsual) && outer.Has(kOther);
  return Read(checkpoint, other ? kOther : kUsual, {"preprocessor_config.json"});
}

absl::StatusOr<ConfigFile> ConfigFile::ReadModel(const CheckpointFolder& checkpoint) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ReadIfThere(checkpoint, "config.json"));
  model.state_->is_open = true;
  return model;
}

absl::StatusOr<ConfigFile> ConfigFile::ReadIfThere(const CheckpointFolder& checkpoint,
                                                   std::string_view file) {
  auto state = std::make_unique<State>();
  state->where = absl::StrCat(checkpoint.folder, "/", std::string(file));
  state->part = std::string(file.substr(0, file.find('.')));
  state->consumed = checkpoint.consumed;
  absl::StatusOr<Json> json = ReadJson(state->where);
  if (absl::IsNotFound(json.status())) {
    state->json = Json::object();
    return ConfigFile(std::move(state));
  }
  if (!json.ok()) return json.status();
  state->json = *std::move(json);
  return ConfigFile(std::move(state));
}

absl::StatusOr<ConfigFile> ConfigFile::Read(const CheckpointFolder& checkpoint, std::string_view nested,
                                            std::initializer_list<std::string_view> files) {
  const std::string& folder = checkpoint.folder;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer, ReadIfThere(checkpoint, kOuterFile));
  State& state = *outer.state_;
  auto inner = state.json.find(std::string(nested));
  if (inner != state.json.end() && inner->is_object()) {
    Json json = *inner;
    TakeClassOf(state.json, json);
    state.where = absl::StrCat(folder, "/", kOuterFile, ": ", std::string(nested));
    state.json = std::move(json);
    state.part = std::string(nested);
    return outer;
  }
  std::string names;
  for (std::string_view file : files) {
    EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ReadIfThere(checkpoint, file));
    if (!config.state_->json.empty()) {
      TakeClassOf(state.json, config.state_->json);
      config.state_->part = std::string(nested);
      return config;
    }
    absl::StrAppend(&names, " ", std::string(file));
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": no such folder; expected a checkpoint's folder with", names));
  }
  return absl::NotFoundError(
      absl::StrCat(folder, ": has no", names, ", nor '", std::string(nested), "' in ", kOuterFile));
}

bool ConfigFile::Has(std::string_view key) const {
  auto it = state_->json.find(std::string(key));
  return it != state_->json.end() && !it->is_null();
}

bool ConfigFile::IsNull(std::string_view key) const {
  auto it = state_->json.find(std::string(key));
  return it != state_->json.end() && it->is_null();
}

bool ConfigFile::IsNumber(std::string_view key) const {
  return Has(key) && state_->json[std::string(key)].is_number();
}

bool ConfigFile::IsList(std::string_view key) const {
  return Has(key) && state_->json[std::string(key)].is_array();
}

bool ConfigFile::IsText(std::string_view key) const {
  return Has(key) && state_->json[std::string(key)].is_string();
}

std::string ConfigFile::OneOf(std::string_view key, std::initializer_list<std::string_view> values) {
  std::string value = Text(key, *values.begin());
  if (std::find(values.begin(), values.end(), value) == values.end()) {
    std::string known;
    for (std::string_view one : values) absl::StrAppend(&known, " ", std::string(one));
    state_->Wrong(key, absl::StrCat("'", value, "' is not implemented; these are:", known));
  }
  return value;
}

uint64_t ConfigFile::Uint(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max) {
  const Json* value = state_->Find(key);
  const uint64_t out = value == nullptr ? fallback : state_->Checked(*value, key, fallback, min, max);
  state_->Consume(key, {out});
  return out;
}

uint64_t ConfigFile::Side(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max) {
  const Json* value = state_->Find(key);
  const uint64_t out =
      value == nullptr ? fallback : state_->Checked(OneOfEqual(*value), key, fallback, min, max);
  state_->Consume(key, {out});
  return out;
}

double ConfigFile::Real(std::string_view key, double fallback) {
  const double out = state_->RealOf(key, fallback);
  state_->Consume(key, {out});
  return out;
}

bool ConfigFile::Flag(std::string_view key, bool fallback) {
  const bool out = state_->FlagOf(key, fallback);
  state_->Consume(key, {FlagText(out)});
  return out;
}

std::string ConfigFile::Text(std::string_view key, std::string_view fallback) {
  std::string out = state_->TextOf(key, fallback);
  state_->Consume(key, {out});
  return out;
}

std::vector<double> ConfigFile::Reals(std::string_view key, std::vector<double> fallback) {
  std::vector<double> out = state_->RealsOf(key, std::move(fallback));
  state_->Consume(key, {out.begin(), out.end()});
  return out;
}

std::vector<double> ConfigFile::WrappedReals(std::string_view key, size_t count) {
  std::vector<double> out = state_->WrappedRealsOf(key, count);
  state_->Consume(key, {out.begin(), out.end()});
  return out;
}

std::vector<uint64_t> ConfigFile::Uints(std::string_view key, size_t count, uint64_t min, uint64_t max) {
  std::vector<uint64_t> out = state_->UintsOf(key, count, min, max);
  state_->Consume(key, {out.begin(), out.end()});
  return out;
}

std::vector<std::pair<uint64_t, uint64_t>> ConfigFile::UintPairs(std::string_view key, UintPairList fallback,
                                                                 uint64_t min, uint64_t max) {
  UintPairList out = state_->UintPairsOf(key, std::move(fallback), min, max);
  std::vector<ConsumedKeys::Value> values;
  for (const auto& [first, second] : out) values.insert(values.end(), {first, second});
  state_->Consume(key, std::move(values));
  return out;
}

uint64_t ConfigFile::UintIn(std::string_view key, std::string_view inner, uint64_t fallback, uint64_t min,
                            uint64_t max) {
  const std::string path = absl::StrCat(std::string(key), ".", std::string(inner));
  const Json* value = state_->FindIn(key, inner);
  uint64_t out = fallback;
  if (value != nullptr) out = state_->Checked(OneOfEqual(*value), path, fallback, min, max);
  state_->Consume(path, {out});
  return out;
}

bool ConfigFile::HasIn(std::string_view key, std::string_view inner) {
  return state_->FindIn(key, inner) != nullptr;
}

std::optional<ConfigFile> ConfigFile::Member(std::string_view key) {
  const Json* value = state_->Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    state_->Wrong(key, absl::StrCat("is ", Shown(*value), ", not an object"));
    return std::nullopt;
  }
  auto state = std::make_unique<State>();
  state->where = absl::StrCat(state_->where, ": ", std::string(key));
  state->part = absl::StrCat(state_->part, ".", std::string(key));
  state->consumed = state_->consumed;
  state->is_open = state_->is_open;
  state->json = *value;
  return ConfigFile(std::move(state));
}

std::string ConfigFile::Choice(std::string_view key, std::string_view fallback) {
  return state_->TextOf(key, fallback);
}

void ConfigFile::Resolved(std::string_view name, std::vector<ConsumedKeys::Value> values) {
  state_->Consume(name, std::move(values));
}

void ConfigFile::Passed(std::string_view key, bool value) { state_->json[std::string(key)] = value; }

void ConfigFile::Pin(std::string_view key, bool value) {
  const Json* found = state_->Find(key);
  if (found != nullptr)
    state_->Pinned(key, found->is_boolean() && found->get<bool>() == value, value ? "true" : "false");
}

void ConfigFile::Pin(std::string_view key, double value) {
  const Json* found = state_->Find(key);
  if (found != nullptr)
    state_->Pinned(key, found->is_number() && found->get<double>() == value, absl::StrCat(value));
}

void ConfigFile::Pin(std::string_view key, std::string_view value) {
  const Json* found = state_->Find(key);
  if (found != nullptr) {
    state_->Pinned(key, found->is_string() && found->get<std::string>() == value,
                   absl::StrCat("\"", std::string(value), "\""));
  }
}

void ConfigFile::Inert(std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) state_->known.emplace(key);
}

void ConfigFile::NotNull(std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) {
    if (IsNull(key))
      state_->Wrong(key,
                    "is null, which transformers treats differently from an absent key, and is not "
                    "implemented; remove the key");
  }
}

void ConfigFile::Whole(std::initializer_list<std::string_view> keys) {
  constexpr double kMost = 1ull << 53;
  auto make_whole = [](Json& value) {
    if (!value.is_number_float()) return;
    const auto number = value.get<double>();
    if (number >= 0 && number <= kMost && number == std::floor(number)) value = static_cast<uint64_t>(number);
  };
  for (std::string_view key : keys) {
    auto it = state_->json.find(std::string(key));
    if (it == state_->json.end()) continue;
    make_whole(*it);
    if (!it->is_object()) continue;
    for (Json& inner : *it) make_whole(inner);
  }
}

absl::Status ConfigFile::Finish() const {
  EVENKEEL_RETURN_IF_ERROR(state_->first_error);
  if (state_->is_open) return absl::OkStatus();
  for (const auto& [key, value] : state_->json.items()) {
    if (!state_->known.contains(key)) {
      return Error(key, "unknown key: its effect is not implemented, and ignoring it could change the data");
    }
    if (!value.is_object()) continue;
    const std::string prefix = key + ".";
    bool asked = false;
    for (const std::string& path : state_->known_inner) asked |= path.starts_with(prefix);
    for (const auto& [inner, unused] : value.items()) {
      const std::string path = absl::StrCat(prefix, inner);
      if (asked && !state_->known_inner.contains(path)) {
        return Error(path, "unknown key: its effect is not implemented");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ConfigFile::CheckProcessorClass(std::string_view given,
                                             std::initializer_list<std::string_view> known) const {
  if (std::find(known.begin(), known.end(), given) != known.end()) return absl::OkStatus();
  return Error("processor_class", absl::StrCat("is ", std::string(given), "; only ",
                                               std::string(*known.begin()), " is implemented"));
}

absl::Status ConfigFile::Error(std::string_view key, std::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(state_->where, ": ", std::string(key), ": ", std::string(message)));
}

}  // namespace evenkeel::preprocess
