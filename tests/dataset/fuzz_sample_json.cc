// Any bytes as the text of a sample: a conversation whose items are those of its references, or an error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "dataset/format/sample_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;
  using namespace evenkeel::dataset;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Limits limits;
  limits.max_items = 50;
  static TextParser* const parser = new TextParser();  // which keeps what came before
  const absl::StatusOr<const ParsedText*> found = parser->ParseChat(text, limits);
  if (!found.ok()) return 0;
  const ParsedText* const parsed = *found;
  uint32_t items = 0;
  for (const Turn& turn : parsed->conversation.turns) {
    for (const evenkeel::Span& span : turn.spans) {
      if (span.medium != Medium::kText && span.item != items++) std::abort();
    }
  }
  if (items != parsed->references.size() || items > limits.max_items) std::abort();
  const std::vector<SampleMember> members = {
      {"0.jpg", 0, 1}, {"1.jpg", 1, 1}, {"wav", 2, 1}, {"v.mp4", 3, 1}};
  auto resolved = ResolveItems(parsed->references, "d/key", members);
  if (!resolved.ok()) return 0;
  for (size_t i = 0; i < resolved->size(); ++i) {
    if (MediumOf(members.at((*resolved)[i]).suffix) != parsed->references[i].medium) std::abort();
  }
  return 0;
}
