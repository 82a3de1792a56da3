// A model's configuration file, read key by key: every key is consumed, pinned to its only implemented value,
// or known to be inert. Any other is an error that names file and key, never an approximation.
//
//   EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::Read(folder, "image_processor"));
//   uint64_t patch = config.Uint("patch_size", 14, 1, 64);
//   config.Pin("do_resize", true);
//   config.Inert({"processor_class"});
//   EVENKEEL_RETURN_IF_ERROR(config.Finish());   // the first wrong value, or the first unknown key
//
// Thread safety: none; used by one thread while loading.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel {

class ConfigFile {
 public:
  // Reads `folder`/preprocessor_config.json, or the object `nested` of `folder`/processor_config.json.
  // NotFound: neither is there; InvalidArgument: not JSON, or not an object.
  static absl::StatusOr<ConfigFile> Read(const std::string& folder, std::string_view nested);

  ConfigFile(ConfigFile&&) noexcept;
  ConfigFile& operator=(ConfigFile&&) noexcept;
  ~ConfigFile();

  // Each of these marks its key as known. A null or absent key is the fallback; a value of another type or
  // outside [min, max] is remembered for Finish().
  uint64_t Uint(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max);
  double Real(std::string_view key, double fallback);
  std::string Text(std::string_view key, std::string_view fallback);
  std::vector<double> Reals(std::string_view key,
                            std::vector<double> fallback);  // as many as the fallback has
  // The unsigned member `inner` of the object `key`; 0 where there is none. Other members than those asked
  // for of the same object are unknown keys.
  uint64_t UintIn(std::string_view key, std::string_view inner, uint64_t min, uint64_t max);

  // The only value that is implemented; absent counts as that value.
  void Pin(std::string_view key, bool value);
  void Pin(std::string_view key, double value);
  void Pin(std::string_view key, std::string_view value);
  void Inert(std::initializer_list<std::string_view> keys);

  // InvalidArgument with file and key: the first wrong value or unknown key.
  absl::Status Finish() const;
  // InvalidArgument "file: key: message".
  absl::Status Error(std::string_view key, std::string_view message) const;

 private:
  struct State;
  explicit ConfigFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace evenkeel
