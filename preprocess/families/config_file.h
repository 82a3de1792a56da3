// A model's configuration file, read key by key. Every key is consumed, pinned to its only implemented value,
// or known to have no effect. Any other key is an error that names file and key, never an approximation. Only
// in the model's own config.json are keys allowed that nobody asks for.
//
// The text of the processor's digest is written here: every key that is consumed enters it with the value that applies,
// so that a default that is written out makes no difference. A pinned key has one value, and no line.
//
// Example:
//     CheckpointFolder checkpoint(folder);
//     EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadImageProcessor(checkpoint));
//     uint64_t patch = config.Uint("patch_size", 14, 1, 64);
//     config.Pin("do_resize", true);
//     config.Inert({"processor_class"});
//     EVENKEEL_RETURN_IF_ERROR(config.Finish());  // the first wrong value, or the first unknown key
//     checkpoint.consumed->AddTo(text);           // "image_processor.patch_size=14"
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
#include "preprocess/families/consumed_keys.h"

namespace evenkeel::preprocess {

// A checkpoint's folder, and the keys that its files were asked for.
struct CheckpointFolder {
  explicit CheckpointFolder(std::string of_folder) : folder(std::move(of_folder)) {}

  std::string folder;
  std::shared_ptr<ConsumedKeys> consumed = std::make_shared<ConsumedKeys>();  // shared by its files
};

class ConfigFile {
 public:
  // The configuration of a part of the checkpoint's processor, from where transformers reads it: the part's
  // object in `folder`/processor_config.json ("image_processor", ...) if there is one, else the first of its
  // own files: preprocessor_config.json; for video video_preprocessor_config.json before that. NotFound: none
  // of them exists; InvalidArgument: not JSON, or not an object. A feature extractor's object may be "audio_processor".
  static absl::StatusOr<ConfigFile> ReadImageProcessor(const CheckpointFolder& checkpoint);
  static absl::StatusOr<ConfigFile> ReadVideoProcessor(const CheckpointFolder& checkpoint);
  static absl::StatusOr<ConfigFile> ReadFeatureExtractor(const CheckpointFolder& checkpoint);
  // The video processor's own file; empty if transformers would use the image processor's file instead.
  static absl::StatusOr<ConfigFile> ReadOwnVideoProcessor(const CheckpointFolder& checkpoint);
  // The model's config.json; empty if it does not exist. Its other keys are the model's, so Finish() reports
  // wrong values alone. InvalidArgument as above.
  static absl::StatusOr<ConfigFile> ReadModel(const CheckpointFolder& checkpoint);
  // A file of the folder; empty if it does not exist. InvalidArgument as above.
  static absl::StatusOr<ConfigFile> ReadIfThere(const CheckpointFolder& checkpoint, std::string_view file);

  ConfigFile(ConfigFile&&) noexcept;
  ConfigFile& operator=(ConfigFile&&) noexcept;
  ~ConfigFile();

  bool Has(std::string_view key) const;     // present and not null
  bool IsNull(std::string_view key) const;  // present and null
  bool IsNumber(std::string_view key) const;
  bool IsList(std::string_view key) const;
  bool IsText(std::string_view key) const;

  // Each of these consumes its key: the result enters the digest's text. A null or absent key gives the fallback (see
  // NotNull()). A value of another type or outside [min, max] also gives the fallback, and Finish() reports it. If a key
  // is read again, the last result counts.
  uint64_t Uint(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max);
  // A number, or a list of equal ones: the side of a square that may be written as [height, width].
  uint64_t Side(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max);
  double Real(std::string_view key, double fallback);
  bool Flag(std::string_view key, bool fallback);
  std::string Text(std::string_view key, std::string_view fallback);
  std::vector<double> Reals(std::string_view key,
                            std::vector<double> fallback);  // exactly as many as the fallback has
  // Exactly `count` numbers, also as the only element of another list, as transformers saves an array of [1, 1, count]; none
  // if the key is absent.
  std::vector<double> WrappedReals(std::string_view key, size_t count);
  // Exactly `count` numbers; zeros if the key is absent.
  std::vector<uint64_t> Uints(std::string_view key, size_t count, uint64_t min, uint64_t max);
  // A list of pairs.
  std::vector<std::pair<uint64_t, uint64_t>> UintPairs(std::string_view key,
                                                       std::vector<std::pair<uint64_t, uint64_t>> fallback,
                                                       uint64_t min, uint64_t max);
  // The unsigned member `inner` of the object `key`: a number, or a list of equal ones. Once one member of an object was
  // asked for, all members that are not asked for are unknown keys.
  uint64_t UintIn(std::string_view key, std::string_view inner, uint64_t fallback, uint64_t min,
                  uint64_t max);
  // True if the object `key` has the member, which is known from now on, and not consumed.
  bool HasIn(std::string_view key, std::string_view inner);
  // The object `key` as a file of its own, which is finished by itself; nullopt if it is absent.
  std::optional<ConfigFile> Member(std::string_view key);
  // A text that only chooses the family, which is in the digest's text in its place.
  std::string Choice(std::string_view key, std::string_view fallback);

  // Puts into the digest's text what applies and is not in the file as such: what the job decides, and values with more
  // than one notation. A key of the file loses its own lines, and those of its members.
  void Resolved(std::string_view name, std::vector<ConsumedKeys::Value> values);
  // The processor passes `value` in every call, so what the file has for the key is ignored.
  void Passed(std::string_view key, bool value);

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
  // The error of a processor_class that is not one of these names for the family's, of which the first is the usual one.
  absl::Status CheckProcessorClass(std::string_view given,
                                   std::initializer_list<std::string_view> known) const;

 private:
  struct State;
  static absl::StatusOr<ConfigFile> Read(const CheckpointFolder& checkpoint, std::string_view nested,
                                         std::initializer_list<std::string_view> files);
  explicit ConfigFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace evenkeel::preprocess
