// Gemma 3: every picture becomes one square, and a fixed number of tokens between line breaks.
//
// The rules are those of transformers' models/gemma3/{image_processing,processing}_gemma3.py.
#include "preprocess/families/gemma3.h"

#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {
namespace {

constexpr FixedSizeClass kGemma3Pictures = {
    kHalves, kHalves, {.height = 224, .width = 224}, 0, ResizeFilter::kBilinear, NumberIs::kSquare};

// Keys of pan-and-scan, which cuts elongated pictures into several. Gemma3Processor disables it in every call
// that does not ask for it, whatever the image processor's file has; the image processor alone follows its
// file.
void ReadPanAndScan(ConfigFile& config, bool asked) {
  if (asked) {
    config.Inert({"do_pan_and_scan"});
  } else {
    config.Pin("do_pan_and_scan", false);
  }
  config.Inert(
      {"pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops", "pan_and_scan_min_ratio_to_activate"});
}

}  // namespace

MadeFamily MakeGemmaPictures(const GemmaClass& of, const FixedSize& fixed, ConfigFile outer,
                             const FamilySource& source) {
  const auto tokens = static_cast<uint32_t>(outer.Uint("image_seq_length", 256, 1, 1 << 16));
  outer.NotNull({"image_seq_length"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t patch, VisionPatchSize(source.checkpoint, of.patch));
  const MediumStyle style{.begin = "<start_of_image>",
                          .placeholder = "<image_soft_token>",
                          .end = "<end_of_image>",
                          .before = "\n\n",
                          .after = "\n\n",
                          .in_template = of.in_template};
  return MakeFixedSize(of.family, fixed, patch, {tokens, style}, source);
}

MadeFamily MakeGemma3(ConfigFile config, const FamilySource& source) {
  const bool asked = config.Text("processor_class", "") == "Gemma3Processor";
  ReadPanAndScan(config, asked);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  if (asked) config.Passed("do_convert_rgb", true);
  EVENKEEL_ASSIGN_OR_RETURN(const FixedSize fixed, ReadFixedSize(config, source.spec, kGemma3Pictures));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  return MakeGemmaPictures({.family = "gemma3", .patch = 14, .in_template = "<start_of_image>"}, fixed,
                           std::move(outer), source);
}

}  // namespace evenkeel::preprocess
