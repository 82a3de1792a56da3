#include "dataset/index.h"

namespace evenkeel {

absl::StatusOr<std::unique_ptr<Index>> Index::Open(const Job&, const Digest&, ByteSource&) {
  return absl::UnimplementedError("index");
}

absl::StatusOr<Conversation> ReadConversation(const SamplePlaces&, const Limits&, ByteSource&) {
  return absl::UnimplementedError("index");
}

std::string SampleName(const Job&, const SamplePlaces&) { return {}; }

}  // namespace evenkeel
