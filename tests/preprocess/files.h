// Golden files for this folder's tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/mutations.h"
#include "tests/source_dir.h"

namespace evenkeel::preprocess {

inline std::string GoldenPath(const std::string& name) { return SourceDir() + "/tests/golden/data/" + name; }

// Fails the test where the file is missing.
inline Bytes Golden(const std::string& name) {
  Bytes bytes = ReadBytes(GoldenPath(name));
  EXPECT_FALSE(bytes.empty()) << GoldenPath(name);
  return bytes;
}

inline std::vector<float> GoldenFloats(const std::string& name) {
  Bytes bytes = Golden(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// The folder of media beside the tree; empty where there is none.
inline std::string SharedFolder() {
  const char* folder = std::getenv("EVENKEEL_SHARED");
  std::string path = folder != nullptr ? folder : SourceDir() + "/../shared";
  return std::filesystem::exists(path + "/media") ? path : "";
}

inline std::string SuffixOf(const std::string& name) { return name.substr(name.rfind('.') + 1); }

}  // namespace evenkeel::preprocess
