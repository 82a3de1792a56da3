#include "dataset/sampler.h"

namespace evenkeel {

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Make(const Job&, const Index&) {
  return absl::UnimplementedError("sampler");
}

}  // namespace evenkeel
