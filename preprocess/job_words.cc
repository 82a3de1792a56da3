// Looks up every word of a job, each in its own list.
#include "preprocess/job_words.h"

#include "preprocess/families/family.h"
#include "preprocess/image/picture.h"
#include "preprocess/text/rendering.h"
#include "preprocess/video/frame_loader.h"
#include "preprocess/video/frame_rules.h"

namespace evenkeel::preprocess {

absl::Status CheckJob(const Job& job) {
  const ProcessorSpec& spec = job.processor;
  if (spec.chat != kTemplateChat) {
    if (const auto chat = ChatStyleFromName(spec.chat); !chat.ok()) return chat.status();
  }
  if (absl::Status like = CheckLike(spec.like); !like.ok()) return like;
  if (const auto pictures = PictureOptionsOf(spec); !pictures.ok()) return pictures.status();
  if (const auto rule =
          FrameRuleOf(spec.frame_rule, FrameRule::kAll, FrameRule::kAll, /*has_fetch_video=*/true);
      !rule.ok()) {
    return rule.status();
  }
  return FrameLoaderOf(spec.frames).status();
}

}  // namespace evenkeel::preprocess
