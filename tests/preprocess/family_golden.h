// What tests/golden/make_family_goldens.py wrote, and items of the families made to compare with it.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "tests/preprocess/items.h"

namespace evenkeel {

inline nlohmann::json FamilyGolden(const std::string& section) {
  std::ifstream file(std::string(EVENKEEL_SOURCE_DIR) + "/tests/golden/families.json");
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

inline ProcessorSpec VisionSpec(const std::string& processor, const std::string& resampler = "pil") {
  ProcessorSpec spec;
  spec.vision = GoldenPath("processors/" + processor);
  spec.resampler = resampler;
  spec.wire = Wire::kF32;
  return spec;
}

inline std::unique_ptr<Processor> LoadOrFail(const ProcessorSpec& spec) {
  absl::StatusOr<std::unique_ptr<Processor>> processor = Processor::LoadMedia(spec, Limits{});
  EXPECT_TRUE(processor.ok()) << processor.status();
  return processor.ok() ? *std::move(processor) : nullptr;
}

// Every golden picture of a processor, through both resamplers, bit for bit.
inline void ExpectPixelsOf(const std::string& processor) {
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
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

// The wire form u8 becomes the same floats where it is expanded.
inline void ExpectExpansionGivesTheFloats(const std::string& processor) {
  ProcessorSpec spec = VisionSpec(processor);
  Item floats = Make(spec, Medium::kImage, "pictures/wide.png");
  spec.wire = Wire::kU8;
  Item bytes = Make(spec, Medium::kImage, "pictures/wide.png");
  ASSERT_TRUE(floats.status.ok() && bytes.status.ok()) << floats.status << bytes.status;
  auto loaded = LoadOrFail(spec);
  std::vector<float> expanded(floats.fields[0].size() / sizeof(float));
  ASSERT_TRUE(ExpandPixels(*loaded->fields(Medium::kImage)[0].expansion, bytes.fields[0], expanded).ok());
  EXPECT_EQ(std::memcmp(expanded.data(), floats.fields[0].data(), floats.fields[0].size()), 0);
}

}  // namespace evenkeel
