// The families, and what they share. One line here, one file, one test for each.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "preprocess/config_file.h"
#include "preprocess/family.h"

namespace evenkeel {

absl::StatusOr<std::unique_ptr<MediaFamily>> MakeQwen2Vl(ConfigFile config, const ProcessorSpec& spec,
                                                         const Limits& limits);  // qwen2_vl.cc
absl::StatusOr<std::unique_ptr<MediaFamily>> MakeWhisper(ConfigFile config, const ProcessorSpec& spec,
                                                         const Limits& limits);  // whisper.cc

// Internal where the caller's spans do not have the sizes of the fields.
absl::Status CheckFieldSizes(const std::vector<FieldSpec>& fields, const ItemLengths& lengths,
                             std::span<const std::span<std::byte>> field_bytes);

}  // namespace evenkeel
