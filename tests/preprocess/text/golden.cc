#include "tests/preprocess/text/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "tests/source_dir.h"

namespace evenkeel::preprocess {

std::string GoldenFolder() { return SourceDir() + "/tests/golden"; }

std::string SharedFolder() {
  const char* folder = std::getenv("EVENKEEL_SHARED");
  return folder != nullptr ? folder : SourceDir() + "/../shared";
}

nlohmann::json ReadGolden(const std::string& name) {
  std::ifstream file(GoldenFolder() + "/text/" + name);
  nlohmann::json out = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(out.is_object()) << name;
  return out;
}

nlohmann::json GoldenCases(const std::string& name) {
  nlohmann::json out = ReadGolden(name)["cases"];
  EXPECT_TRUE(out.is_array() && !out.empty()) << name;
  return out;
}

std::string PatchedTokenizer(const std::string& from, const nlohmann::json& patch) {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder = testing::TempDir() + test->test_suite_name() + "_" + test->name();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ifstream file(GoldenFolder() + "/" + from + "/tokenizer.json");
  nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << from;
  json.merge_patch(patch);
  std::ofstream(folder + "/tokenizer.json") << json;
  std::filesystem::copy_file(GoldenFolder() + "/" + from + "/tokenizer_config.json",
                             folder + "/tokenizer_config.json");
  return folder;
}

std::string FnvOf(const std::vector<int64_t>& ids) {
  uint64_t value = 0xcbf29ce484222325;
  for (int64_t id : ids) {
    for (int i = 0; i < 8; ++i)
      value = (value ^ ((static_cast<uint64_t>(id) >> (8 * i)) & 0xff)) * 0x100000001b3;
  }
  return absl::StrFormat("%016x", value);
}

}  // namespace evenkeel::preprocess
