// The text that a family has in the processor's digest: every key that it reads, and nothing that it ignores.
#include "preprocess/families/consumed_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "preprocess/families/config_file.h"
#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using Files = std::map<std::string, json>;

const char* const kParts[] = {"image_processor", "video_processor", "feature_extractor", "audio_processor"};

std::string TextOf(const ConsumedKeys& keys) {
  CanonicalText text("t");
  keys.AddTo(text);
  return text.text();
}

TEST(ConsumedKeys, AreSortedAndReplaceTheirMembers) {
  ConsumedKeys keys;
  keys.Set("size.width", {uint64_t{3}});
  keys.Set("sizes", {std::string("a\nb")});
  keys.Set("fps", {2.0});
  keys.Set("mean", {0.5, 0.25});
  keys.Set("none", {});
  EXPECT_EQ(TextOf(keys), "t\nfps=0x1p+1\nmean=0x1p-1\nmean=0x1p-2\nsize.width=3\nsizes=a\\nb\n");
  keys.Set("size", {uint64_t{1}, uint64_t{2}});
  EXPECT_THAT(TextOf(keys), HasSubstr("size=1\nsize=2\nsizes="));
  EXPECT_THAT(TextOf(keys), Not(HasSubstr("size.width")));
}

// A checkpoint's files, and which of its processors are loaded.
struct Fixture {
  std::string name;
  Files files;
  bool vision = false;
  bool audio = false;
};

// Of the families that the fixture loads, or the error of one of them that refuses the files.
absl::StatusOr<std::string> Load(const Fixture& fixture) {
  ProcessorSpec spec = FolderSpec(fixture.files);
  spec.frame_rule = "transformers";  // by which the files' frames count
  CanonicalText text("t");
  if (fixture.vision) {
    auto family = LoadVisionFamily(spec.vision, spec, Limits{});
    if (!family.ok()) return family.status();
    (*family)->AddTo(text);
  }
  if (fixture.audio) {
    auto family = LoadAudioFamily(spec.vision, spec, Limits{});
    if (!family.ok()) return family.status();
    (*family)->AddTo(text);
  }
  return text.text();
}

// The same; nullopt where one of them refuses the files.
std::optional<std::string> TextOf(const Fixture& fixture) {
  absl::StatusOr<std::string> text = Load(fixture);
  if (!text.ok()) return std::nullopt;
  return *std::move(text);
}

// The golden checkpoints, and one of each family that has none of its own there.
std::vector<Fixture> Fixtures() {
  std::vector<Fixture> out;
  for (const auto& folder : std::filesystem::directory_iterator(GoldenPath("processors"))) {
    Fixture& fixture = out.emplace_back(Fixture{.name = folder.path().filename()});
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
      std::ifstream golden(file.path());
      fixture.files[file.path().filename()] = json::parse(golden);
    }
  }
  const auto add = [&out](const char* type, const char* of) {
    json config = {{"image_processor_type", type}};
    if (*of != '\0') config["processor_class"] = of;
    out.push_back({type, {{"preprocessor_config.json", config}}});
  };
  add("GotOcr2ImageProcessor", "AyaVisionProcessor");
  add("Cohere2VisionImageProcessor", "");
  add("PerceptionLMImageProcessor", "");
  add("DeepseekOcr2ImageProcessor", "");
  add("DeepseekVLHybridImageProcessor", "");
  add("DeepseekVLImageProcessor", "");
  add("Ernie4_5_VLMoeImageProcessor", "");
  add("JanusImageProcessor", "");
  add("Lfm2VlImageProcessor", "");
  add("MiniCPMV4_6ImageProcessor", "");
  add("Molmo2ImageProcessor", "");
  add("Ovis2ImageProcessor", "");
  add("PaddleOCRVLImageProcessor", "");
  add("Phi4MultimodalImageProcessor", "");
  add("Siglip2ImageProcessor", "");
  add("VideoLlama3ImageProcessor", "");
  add("VideoMAEImageProcessor", "");
  add("ViTImageProcessor", "");
  for (Fixture& fixture : out) {
    Fixture vision = fixture, audio = fixture;
    vision.vision = audio.audio = true;
    fixture.vision = TextOf(vision).has_value();
    fixture.audio = TextOf(audio).has_value();
    EXPECT_TRUE(fixture.vision || fixture.audio) << fixture.name;
  }
  return out;
}

// A key of a file.
struct Key {
  std::string file;
  json::json_pointer path;
};

Fixture With(Fixture fixture, const Key& key, const json& value) {
  fixture.files[key.file][key.path] = value;
  return fixture;
}

Fixture Without(Fixture fixture, const Key& key) {
  const auto file = fixture.files.find(key.file);
  if (file == fixture.files.end()) return fixture;
  json& parent = file->second[key.path.parent_pointer()];
  if (parent.is_object()) parent.erase(key.path.back());
  return fixture;
}

// A number, a list or a word as a text has it.
json ValueOf(const std::string& line) {
  if (line == "true" || line == "false") return line == "true";
  char* end = nullptr;
  const double number = std::strtod(line.c_str(), &end);
  if (line.empty() || *end != '\0') return line;
  if (line.find('x') != std::string::npos) return number;
  return static_cast<uint64_t>(number);
}

// What the text has of each key, a list if it is several values.
std::map<std::string, json> ValuesIn(const std::string& text) {
  std::map<std::string, json> out;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const json value = ValueOf(line.substr(equals + 1));
    auto [it, is_new] = out.try_emplace(line.substr(0, equals), value);
    if (is_new) continue;
    if (!it->second.is_array()) it->second = json::array({it->second});
    it->second.push_back(value);
  }
  return out;
}

// Where the part's keys are.
Key PlaceOf(const Fixture& fixture, const std::string& part) {
  if (part == "processor_config") return {"processor_config.json", json::json_pointer()};
  const auto outer = fixture.files.find("processor_config.json");
  if (outer != fixture.files.end() && outer->second.contains(part)) {
    return {outer->first, json::json_pointer("/" + part)};
  }
  const bool own = part == "video_processor" && fixture.files.contains("video_preprocessor_config.json");
  return {own ? "video_preprocessor_config.json" : "preprocessor_config.json", json::json_pointer()};
}

// Every key of the files, and every key that is read and is not there, with a value.
std::vector<std::pair<Key, json>> KeysOf(const Fixture& fixture, const std::string& text) {
  // They choose the family, or the release that wrote the file.
  const std::set<std::string> choices = {"image_processor_type", "feature_extractor_type",
                                         "video_processor_type", "processor_class"};
  std::map<std::pair<std::string, std::string>, json> found;
  const auto add_all = [&](const std::string& file, const json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
      if (!choices.contains(key)) found[{file, prefix + "/" + key}] = value;
    }
  };
  for (const auto& [file, values] : fixture.files) {
    if (file == "config.json") continue;  // most keys of which are the model's
    json own = values;
    for (const char* part : kParts) {
      if (!own.contains(part)) continue;
      add_all(file, own[part], absl::StrCat("/", part));
      own.erase(part);
    }
    add_all(file, own, "");
  }
  for (const auto& [name, value] : ValuesIn(text)) {
    const size_t dot = name.find('.');
    const std::string part = name.substr(0, dot), key = name.substr(dot + 1);
    if (part == "config" || key.find('.') != std::string::npos || choices.contains(key)) continue;
    const Key place = PlaceOf(fixture, part);
    found.try_emplace({place.file, place.path.to_string() + "/" + key}, value);
  }
  std::vector<std::pair<Key, json>> out;
  for (const auto& [at, value] : found) out.push_back({{at.first, json::json_pointer(at.second)}, value});
  return out;
}

// The value of a key that the files lack; nullopt where they do not read it, or two parts read one file and have other
// defaults.
std::optional<json> DefaultOf(const Fixture& fixture, const Key& key, const std::string& text) {
  std::optional<json> out;
  for (const auto& [name, value] : ValuesIn(text)) {
    const size_t dot = name.find('.');
    const Key place = PlaceOf(fixture, name.substr(0, dot));
    if (place.file != key.file || place.path / name.substr(dot + 1) != key.path) continue;
    if (out.has_value() && *out != value) return std::nullopt;
    out = value;
  }
  return out;
}

// Values of about the same kind, some of which a family may refuse.
std::vector<json> OthersThan(const json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_integer()) {
    const auto number = value.get<uint64_t>();
    return {number + 1, number * 2, number / 2};
  }
  if (value.is_number()) return {value.get<double>() * 2, value.get<double>() + 0.25};
  if (value.is_string()) return {value.get<std::string>() + "x", "full", "default", "anyres_max_3", "thumb"};
  std::vector<json> out;
  json all = value;  // with every member changed: squares stay squares
  for (const auto& [key, member] : value.items()) {
    const std::vector<json> others = OthersThan(member);
    if (others.empty()) continue;
    json one = value;
    one[json::json_pointer("/" + key)] = others.front();
    out.push_back(one);
    all[json::json_pointer("/" + key)] = others[others.size() > 1 ? 1 : 0];
  }
  if (all != value) out.push_back(all);
  return out;
}

TEST(ConsumedKeys, WhatIsReadCountsAndWhatIsIgnoredDoesNot) {
  const json nonsense = {{"no such member", {{"of", "anything"}}}};
  for (const Fixture& fixture : Fixtures()) {
    const std::optional<std::string> text = TextOf(fixture);
    ASSERT_TRUE(text.has_value()) << fixture.name;
    int compared = 0;
    for (const auto& [key, value] : KeysOf(fixture, *text)) {
      SCOPED_TRACE(absl::StrCat(fixture.name, "/", key.file, key.path.to_string(), ": ", value.dump()));
      const std::optional<std::string> ignored = TextOf(With(fixture, key, nonsense));
      if (ignored.has_value()) {
        EXPECT_EQ(*ignored, *text) << "the key is ignored";
        continue;
      }
      for (const json& other : OthersThan(value)) {
        if (other == value) continue;  // twice nothing
        const std::optional<std::string> changed = TextOf(With(fixture, key, other));
        if (!changed.has_value()) continue;
        EXPECT_NE(*changed, *text) << other.dump();
        ++compared;
      }
    }
    EXPECT_GE(compared, fixture.vision ? 8 : 1) << fixture.name;
  }
}

TEST(ConsumedKeys, AWrittenOutDefaultMakesNoDifference) {
  for (const Fixture& fixture : Fixtures()) {
    int compared = 0;
    for (const auto& [key, value] : KeysOf(fixture, *TextOf(fixture))) {
      const Fixture bare = Without(fixture, key);
      const std::optional<std::string> text = TextOf(bare);
      // The text has our number of a filter, and all edges of a size.
      if (!text.has_value() || key.path.back().ends_with("resample") || value.is_object()) continue;
      SCOPED_TRACE(absl::StrCat(fixture.name, "/", key.file, key.path.to_string()));
      const std::optional<json> usual = DefaultOf(bare, key, *text);
      if (!usual.has_value()) continue;
      const std::optional<std::string> written = TextOf(With(bare, key, *usual));
      if (!written.has_value()) continue;  // a name of ours, or an absent value that nothing can be
      EXPECT_EQ(*written, *text) << usual->dump();
      ++compared;
    }
    EXPECT_GE(compared, fixture.vision ? 5 : 1) << fixture.name;
  }
}

TEST(ConsumedKeys, AWrongValueInTheModelsFileIsNamed) {
  std::set<std::string> keys;
  for (const Fixture& fixture : Fixtures()) {
    const std::string prefix = "config.";
    for (const auto& [name, value] : ValuesIn(*TextOf(fixture))) {
      if (!name.starts_with(prefix)) continue;
      const std::string key = name.substr(prefix.size());
      const Key place{"config.json",
                      json::json_pointer(absl::StrCat("/", absl::StrReplaceAll(key, {{".", "/"}})))};
      SCOPED_TRACE(absl::StrCat(fixture.name, "/", key));
      const json wrong = value.is_string() ? json(1) : json("one");
      const absl::Status status = Load(With(fixture, place, wrong)).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("/config.json: ", key, ": is ", wrong.dump(), ", not a ")));
      EXPECT_EQ(TextOf(With(fixture, place, nullptr)), TextOf(Without(fixture, place))) << "null is absent";
      keys.insert(key);
    }
  }
  EXPECT_THAT(keys,
              testing::IsSupersetOf({"patch_size", "vision_config.patch_size", "image_aspect_ratio",
                                     "vision_feature_select_strategy", "vision_config.tokens_per_second",
                                     "thinker_config.position_id_per_seconds"}));
}

TEST(ConsumedKeys, NotationsOfOneValueAreOneText) {
  Fixture clip{.name = "clip", .vision = true};
  const auto text = [&clip](const json& keys) {
    clip.files["preprocessor_config.json"] = keys;
    clip.files["preprocessor_config.json"]["image_processor_type"] = "CLIPImageProcessor";
    return TextOf(clip).value_or("refused");
  };
  const std::string usual = text(json::object());
  EXPECT_THAT(usual, HasSubstr("image_processor.crop_size=224\n"));
  EXPECT_EQ(text({{"size", 224}, {"crop_size", 224}}), usual);
  EXPECT_EQ(text({{"size", {{"shortest_edge", 224}}}, {"crop_size", {{"height", 224}, {"width", 224}}}}),
            usual);
  EXPECT_EQ(text({{"resample", 3}}), usual);
  EXPECT_EQ(text({{"image_mean", 0.5}}), text({{"image_mean", {0.5, 0.5, 0.5}}}));
  EXPECT_NE(text({{"image_mean", 0.5}}), usual);
}

TEST(ConsumedKeys, ReadsAreInNoParticularOrder) {
  const CheckpointFolder one(testing::TempDir()), other(testing::TempDir());
  ConfigFile first = *ConfigFile::ReadIfThere(one, "no_such_config.json");
  ConfigFile second = *ConfigFile::ReadIfThere(other, "no_such_config.json");
  first.Uint("a", 1, 0, 9);
  first.Flag("b", true);
  second.Flag("b", true);
  second.Uint("a", 1, 0, 9);
  EXPECT_EQ(TextOf(*one.consumed), "t\nno_such_config.a=1\nno_such_config.b=true\n");
  EXPECT_EQ(TextOf(*one.consumed), TextOf(*other.consumed));
}

}  // namespace
}  // namespace evenkeel::preprocess
