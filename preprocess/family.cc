#include "preprocess/family.h"

namespace evenkeel {

absl::StatusOr<VisionGrid> MediaFamily::Grid(const MediaFacts&) const {
  return absl::InternalError("this family has no grid");
}

absl::StatusOr<std::unique_ptr<MediaFamily>> LoadVisionFamily(const std::string& folder, const ProcessorSpec&,
                                                              const Limits&) {
  return absl::InvalidArgumentError(absl::StrCat(folder, ": no vision family yet"));
}

absl::StatusOr<std::unique_ptr<MediaFamily>> LoadAudioFamily(const std::string& folder, const ProcessorSpec&,
                                                             const Limits&) {
  return absl::InvalidArgumentError(absl::StrCat(folder, ": no audio family yet"));
}

}  // namespace evenkeel
