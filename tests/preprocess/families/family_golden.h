// What tests/golden/make_family_goldens.py wrote, and items of the families made to compare with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "preprocess/families/family.h"
#include "preprocess/families/patches.h"
#include "tests/preprocess/items.h"
#include "tests/source_dir.h"

namespace evenkeel::preprocess {

inline nlohmann::json FamilyGolden(const std::string& section) {
  std::ifstream file(SourceDir() + "/tests/golden/families.json");
  nlohmann::json out = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(out.is_object() && out.contains(section)) << section;
  return out[section];
}
// A value of its own, so that a loop over it does not outlive what it loops over.
inline nlohmann::json FamilyGolden(const std::string& section, const std::string& name) {
  return FamilyGolden(section)[name];
}

// As the generator's `mix`: depends on every bit of every value and on its place.
inline std::string MixOf(const Bytes& floats) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  uint64_t sum = 0, place = 0;
  for (size_t i = 0; i + 4 <= floats.size(); i += 4) {
    uint32_t bits;
    std::memcpy(&bits, &floats[i], 4);
    place += kStep;
    sum += (bits + place) * (place | 1);
  }
  return absl::StrFormat("%016x", sum);
}

// The names of the golden checkpoints, sorted.
inline std::vector<std::string> GoldenCheckpoints() {
  std::vector<std::string> out;
  for (const auto& folder : std::filesystem::directory_iterator(GoldenPath("processors"))) {
    out.push_back(folder.path().filename());
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline ProcessorSpec VisionSpec(const std::string& processor, const std::string& resampler = "pil") {
  ProcessorSpec spec;
  spec.vision = GoldenPath("processors/" + processor);
  spec.resampler = resampler;
  spec.wire = Wire::kF32;
  return spec;
}

// The family of a golden checkpoint.
inline std::unique_ptr<MediaFamily> FamilyOf(const std::string& processor) {
  const ProcessorSpec spec = VisionSpec(processor);
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  EXPECT_TRUE(family.ok()) << family.status();
  return family.ok() ? *std::move(family) : nullptr;
}

// How the pictures of a family look that takes nothing else.
inline MediumStyle PictureStyleOf(const MediaFamily& family) {
  const std::vector<MediumStyle> styles = family.styles();
  EXPECT_EQ(styles.size(), 1u);
  return styles.empty() ? MediumStyle() : styles[0];
}

// What the model is told of a picture's size.
inline void ExpectImageSizes(const std::string& processor, const std::string& picture, ImageSize size) {
  const Item item = Make(VisionSpec(processor), Medium::kImage, picture);
  ASSERT_TRUE(item.status.ok()) << item.status;
  ASSERT_EQ(item.fields.size(), 2u);
  int64_t sides[2];
  ASSERT_EQ(item.fields[1].size(), sizeof(sides));
  std::memcpy(sides, item.fields[1].data(), sizeof(sides));
  EXPECT_EQ(sides[0], size.height);
  EXPECT_EQ(sides[1], size.width);
}

// A checkpoint of these files, for the test that runs.
inline ProcessorSpec FolderSpec(const std::map<std::string, nlohmann::json>& files) {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  ProcessorSpec spec;
  spec.vision = absl::StrFormat("%s%s_%s", testing::TempDir(), test->test_suite_name(), test->name());
  std::filesystem::remove_all(spec.vision);
  std::filesystem::create_directories(spec.vision);
  for (const auto& [name, values] : files) std::ofstream(spec.vision + "/" + name) << values;
  return spec;
}

// A checkpoint whose preprocessor_config.json is `config` with other `keys`, and further files.
inline ProcessorSpec ConfiguredSpec(nlohmann::json config, const nlohmann::json& keys,
                                    std::map<std::string, nlohmann::json> files = {}) {
  for (const auto& [key, value] : keys.items()) config[key] = value;
  files["preprocessor_config.json"] = std::move(config);
  ProcessorSpec spec = FolderSpec(files);
  spec.wire = Wire::kF32;
  return spec;
}

// A golden checkpoint with other keys in one of its files; null: without the key.
inline ProcessorSpec EditedSpec(const std::string& processor, const nlohmann::json& keys,
                                const std::string& edited = "preprocessor_config.json") {
  std::map<std::string, nlohmann::json> files;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenPath("processors/" + processor))) {
    std::ifstream golden(entry.path());
    files[entry.path().filename()] = nlohmann::json::parse(golden);
  }
  for (const auto& [key, value] : keys.items()) {
    files[edited][key] = value;
    if (value.is_null()) files[edited].erase(key);
  }
  return FolderSpec(files);
}

// What is said of such a checkpoint; nothing where it loads.
inline std::string RefusalOf(const std::string& processor, const nlohmann::json& keys,
                             const std::string& edited = "preprocessor_config.json") {
  const ProcessorSpec spec = EditedSpec(processor, keys, edited);
  return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
}

inline std::unique_ptr<Processor> LoadOrFail(const ProcessorSpec& spec) {
  absl::StatusOr<std::unique_ptr<Processor>> processor = Processor::LoadMedia(spec, Limits{});
  EXPECT_TRUE(processor.ok()) << processor.status();
  return processor.ok() ? *std::move(processor) : nullptr;
}

// What a picture as wide and as high as a golden example begins with is planned to be.
inline absl::StatusOr<ItemLengths> MeasureCanvas(const Processor& processor, const nlohmann::json& example) {
  MediaFacts facts;
  facts.width = example[0];
  facts.height = example[1];
  return processor.Measure(facts);
}

// Every golden picture of a processor, through both resamplers, bit for bit.
inline void ExpectPixelsOf(const std::string& processor, int at_least = 10) {
  int compared = 0;
  for (const nlohmann::json& example : FamilyGolden("pixels")) {
    if (example["processor"] != processor) continue;
    SCOPED_TRACE(example.dump());
    const std::string picture = example["picture"];
    Item item =
        Make(VisionSpec(processor, example["resampler"]), Medium::kImage, "pictures/" + picture + ".png");
    ASSERT_TRUE(item.status.ok()) << item.status;
    EXPECT_EQ(item.lengths.input_rows, example["rows"]);
    ASSERT_EQ(item.fields[0].size(), 4 * example["values"].get<size_t>());
    EXPECT_EQ(MixOf(item.fields[0]), example["hash"]);
    if (example.contains("further")) {
      EXPECT_EQ(MixOf(item.fields[1]), example["further"]);
    }
    ++compared;
  }
  EXPECT_GE(compared, at_least);
}

// The wire form u8 becomes the same floats where it is expanded, and bf16 is those rounded, by every
// resampler.
inline void ExpectWireFormsAgree(ProcessorSpec spec, const std::string& picture,
                                 std::initializer_list<const char*> resamplers = {"pil", "pil13",
                                                                                  "aten_u8"}) {
  for (const char* resampler : resamplers) {
    SCOPED_TRACE(resampler);
    spec.resampler = resampler;
    const auto made = [&](Wire wire) {
      spec.wire = wire;
      Item item = Make(spec, Medium::kImage, picture);
      EXPECT_TRUE(item.status.ok()) << item.status;
      return item.status.ok() ? item.fields[0] : Bytes();
    };
    const Bytes floats = made(Wire::kF32), rounded = made(Wire::kBf16), bytes = made(Wire::kU8);
    auto loaded = LoadOrFail(spec);
    ASSERT_FALSE(floats.empty() || loaded == nullptr);
    std::vector<float> expanded(floats.size() / sizeof(float));
    ASSERT_TRUE(ExpandPixels(*loaded->fields(Medium::kImage)[0].expansion, bytes, expanded).ok());
    EXPECT_EQ(std::memcmp(expanded.data(), floats.data(), floats.size()), 0);
    ASSERT_EQ(rounded.size(), expanded.size() * sizeof(uint16_t));
    size_t wrong = 0;
    for (size_t i = 0; i < expanded.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, &rounded[sizeof(bits) * i], sizeof(bits));
      wrong += bits != ToBf16(expanded[i]);
    }
    EXPECT_EQ(wrong, 0u);
  }
}
inline void ExpectWireFormsAgree(const std::string& processor) {
  ExpectWireFormsAgree(VisionSpec(processor), "pictures/wide.png");
}

}  // namespace evenkeel::preprocess
