// A model's configuration file, read key by key. Every key is consumed, pinned to its only implemented value,
// or known to have no effect. Any other key is an error that names file and key, never an approximation.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadImageProcessor(folder));
//     uint64_t patch = config.Uint("patch_size", 14, 1, 64);
//     config.Pin("do_resize", true);
//     config.Inert({"processor_class"});
//     EVENKEEL_RETURN_IF_ERROR(config.Finish());  // the first wrong value, or the first unknown key
//
// Thread safety: none; used by one thread while loading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::preprocess {

class ConfigFile {
 public:
  // The configuration of a part of the checkpoint's processor, from where transformers reads it: the part's
  // object in `folder`/processor_config.json ("image_processor", ...) if there is one, else the first of its
  // own files: preprocessor_config.json; for video video_preprocessor_config.json before that. NotFound: none
  // of them exists; InvalidArgument: not JSON, or not an object.
  static absl::StatusOr<ConfigFile> ReadImageProcessor(const std::string& folder);
  static absl::StatusOr<ConfigFile> ReadVideoProcessor(const std::string& folder);
  static absl::StatusOr<ConfigFile> ReadFeatureExtractor(const std::string& folder);
  // The video processor's own file; empty if transformers would use the image processor's file instead.
  static absl::StatusOr<ConfigFile> ReadOwnVideoProcessor(const std::string& folder);
  // A file of the folder; empty if it does not exist. InvalidArgument as above.
  static absl::StatusOr<ConfigFile> ReadIfThere(const std::string& folder, std::string_view file);

  ConfigFile(ConfigFile&&) noexcept;
  ConfigFile& operator=(ConfigFile&&) noexcept;
  ~ConfigFile();

  bool Has(std::string_view key) const;     // present and not null
  bool IsNull(std::string_view key) const;  // present and null
  bool IsNumber(std::string_view key) const;
  bool IsList(std::string_view key) const;
  bool IsText(std::string_view key) const;

  // Each of these marks its key as known. A null or absent key gives the fallback (see NotNull()). A value of
  // another type or outside [min, max] also gives the fallback, and Finish() reports it.
  uint64_t Uint(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max);
  double Real(std::string_view key, double fallback);
  bool Flag(std::string_view key, bool fallback);
  std::string Text(std::string_view key, std::string_view fallback);
  std::vector<double> Reals(std::string_view key,
                            std::vector<double> fallback);  // exactly as many as the fallback has
  // Exactly `count` numbers; zeros if the key is absent.
  std::vector<uint64_t> Uints(std::string_view key, size_t count, uint64_t min, uint64_t max);
  // A list of pairs; empty if the key is absent.
  std::vector<std::pair<uint64_t, uint64_t>> UintPairs(std::string_view key, uint64_t min, uint64_t max);
  // The unsigned member `inner` of the object `key`: a number, or a list of equal ones; 0 if absent. Once one
  // member of an object was asked for, all members that are not asked for are unknown keys.
  uint64_t UintIn(std::string_view key, std::string_view inner, uint64_t min, uint64_t max);

  // Accepts only `value`; an absent key counts as that value.
  void Pin(std::string_view key, bool value);
  void Pin(std::string_view key, double value);
  void Pin(std::string_view key, std::string_view value);
  void Inert(std::initializer_list<std::string_view> keys);
  // A null for one of these keys is an error: transformers uses the null instead of its default, which then
  // means "no" or makes its calls fail.
  void NotNull(std::initializer_list<std::string_view> keys);
  // Numbers of these keys, and members of their objects, that are integers written as floats (3136.0) are
  // integers from now on: transformers only compares with them, so the two are equivalent.
  void Whole(std::initializer_list<std::string_view> keys);
  // Accepts only one of `values`; the first if the key is absent.
  std::string OneOf(std::string_view key, std::initializer_list<std::string_view> values);

  // InvalidArgument with file and key for the first wrong value or unknown key.
  absl::Status Finish() const;
  // Returns InvalidArgument "file: key: message".
  absl::Status Error(std::string_view key, std::string_view message) const;

 private:
  struct State;
  static absl::StatusOr<ConfigFile> Read(const std::string& folder, std::string_view nested,
                                         std::initializer_list<std::string_view> files);
  explicit ConfigFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace evenkeel::preprocess
