// The values of the job key processor.frames.
#include "preprocess/video/frame_loader.h"

#include <string>
#include <vector>

#include "preprocess/unknown_word.h"

namespace evenkeel::preprocess {

absl::StatusOr<FrameLoader> FrameLoaderOf(std::string_view word) {
  if (word.empty()) return FrameLoader::kTorchcodec;
  std::vector<std::string> known;
  for (FrameLoader loader :
       {FrameLoader::kTorchcodec, FrameLoader::kPyav, FrameLoader::kDecord, FrameLoader::kAccurate}) {
    if (word == FrameLoaderName(loader)) return loader;
    known.emplace_back(FrameLoaderName(loader));
  }
  return UnknownWord("frames", word, known);
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
