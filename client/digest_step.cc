// Implements DigestStep: hashes a step's parts in their canonical order.
#include "client/consumer.h"

namespace evenkeel::client {

Digest DigestStep(const StepData& step) {
  Digester digester;
  for (const PartData& part : step.parts) DigestPart(part.view, digester);
  return digester.Finish();
}

}  // namespace evenkeel::client
