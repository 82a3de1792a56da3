#include "preprocess/family.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families.h"

namespace evenkeel {
namespace {

struct NamedFamily {
  std::string_view type;
  absl::StatusOr<std::unique_ptr<MediaFamily>> (*make)(ConfigFile, const ProcessorSpec&, const Limits&);
};

constexpr NamedFamily kVisionFamilies[] = {
    {"Qwen2VLImageProcessor", MakeQwen2Vl},
    {"Qwen2VLImageProcessorFast", MakeQwen2Vl},
    {"Qwen2VLImageProcessorPil", MakeQwen2Vl},
};
constexpr NamedFamily kAudioFamilies[] = {
    {"WhisperFeatureExtractor", MakeWhisper},
};

absl::StatusOr<std::unique_ptr<MediaFamily>> LoadFamily(std::span<const NamedFamily> families,
                                                        const std::string& folder, std::string_view nested,
                                                        std::string_view key, const ProcessorSpec& spec,
                                                        const Limits& limits) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::Read(folder, nested));
  std::string type = config.Text(key, "");
  if (type.empty()) return config.Error(key, "is missing; it names the processor");
  for (const NamedFamily& family : families) {
    if (family.type == type) return family.make(std::move(config), spec, limits);
  }
  std::string known;
  for (const NamedFamily& family : families) absl::StrAppend(&known, " ", std::string(family.type));
  return config.Error(key, absl::StrCat("'", type, "' is not implemented; these are:", known));
}

}  // namespace

absl::StatusOr<std::vector<PlaceholderRun>> MediaFamily::Placeholders(const MediaFacts& facts) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(facts));
  return std::vector<PlaceholderRun>{{.rows = lengths.output_rows}};
}

absl::StatusOr<std::unique_ptr<MediaFamily>> LoadVisionFamily(const std::string& folder,
                                                              const ProcessorSpec& spec,
                                                              const Limits& limits) {
  if (spec.resampler != "pil") {
    return absl::InvalidArgumentError(
        absl::StrCat("processor.resampler: '", spec.resampler, "'; only 'pil' is implemented"));
  }
  return LoadFamily(kVisionFamilies, folder, "image_processor", "image_processor_type", spec, limits);
}

absl::StatusOr<std::unique_ptr<MediaFamily>> LoadAudioFamily(const std::string& folder,
                                                             const ProcessorSpec& spec,
                                                             const Limits& limits) {
  return LoadFamily(kAudioFamilies, folder, "feature_extractor", "feature_extractor_type", spec, limits);
}

absl::Status CheckFieldSizes(const std::vector<FieldSpec>& fields, const ItemLengths& lengths,
                             std::span<const std::span<std::byte>> field_bytes) {
  if (field_bytes.size() != fields.size())
    return absl::InternalError("another number of fields than the processor has");
  for (size_t i = 0; i < fields.size(); ++i) {
    if (field_bytes[i].size() != fields[i].num_bytes(lengths)) {
      return absl::InternalError(absl::StrCat(fields[i].name, ": ", field_bytes[i].size(), " bytes given, ",
                                              fields[i].num_bytes(lengths), " needed"));
    }
  }
  return absl::OkStatus();
}

}  // namespace evenkeel
