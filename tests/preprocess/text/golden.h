// What tests/golden/make_text_goldens.py wrote, for the tests of this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace evenkeel::preprocess {

std::string GoldenFolder();                          // tests/golden
std::string SharedFolder();                          // EVENKEEL_SHARED, or the folder beside the sources
nlohmann::json ReadGolden(const std::string& name);  // tests/golden/text/name

nlohmann::json GoldenCases(const std::string& name);  // its "cases", a list that is not empty

// A folder of the test's own with tokenizer.json of the folder `from` of tests/golden, changed by `patch`
// (RFC 7386: a null takes a key away), and its tokenizer_config.json.
std::string PatchedTokenizer(const std::string& from, const nlohmann::json& patch);

// FNV-1a over the numbers as 8 little-endian bytes: how goldens name lists that are too long to be written
// out.
std::string FnvOf(const std::vector<int64_t>& ids);

}  // namespace evenkeel::preprocess
