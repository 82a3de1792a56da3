// The values of the job key processor.frames.
#include "preprocess/video/frame_loader.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace evenkeel::preprocess {

absl::StatusOr<FrameLoader> FrameLoaderOf(std::string_view word) {
  if (word.empty()) return FrameLoader::kTorchcodec;
  for (FrameLoader loader :
       {FrameLoader::kTorchcodec, FrameLoader::kPyav, FrameLoader::kDecord, FrameLoader::kAccurate}) {
    if (word == FrameLoaderName(loader)) return loader;
  }
  return absl::InvalidArgumentError(absl::StrCat("processor.frames: '", std::string(word),
                                                 "' is not one of torchcodec, pyav, decord, accurate"));
}

std::string_view FrameLoaderName(FrameLoader loader) {
  switch (loader) {
    case FrameLoader::kTorchcodec:
      return "torchcodec";
    case FrameLoader::kPyav:
      return "pyav";
    case FrameLoader::kDecord:
      return "decord";
    case FrameLoader::kAccurate:
      return "accurate";
  }
  return "";
}

}  // namespace evenkeel::preprocess
