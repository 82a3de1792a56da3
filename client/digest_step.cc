// Implements DigestStep: hashes a step's parts in their canonical order, and its groups.
#include "client/consumer.h"

namespace evenkeel::client {

Digest DigestStep(const StepData& step) {
  Digester digester;
  for (const PartData& part : step.parts) DigestPart(part.view, digester);
  for (const RankGroup& group : step.groups.of_microbatch) {
    digester.UpdateU64(group.first);
    digester.UpdateU64(group.size);
  }
  return digester.Finish();
}

}  // namespace evenkeel::client
