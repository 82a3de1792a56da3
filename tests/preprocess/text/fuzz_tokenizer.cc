// Any text as a tokenizer.json: an InvalidArgument, or a tokenizer that encodes or refuses.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "preprocess/text/tokenizer.h"
#include "tests/fuzz_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;              // NOLINT
  using namespace evenkeel::preprocess;  // NOLINT
  static const FuzzFolder folder;
  folder.Write("tokenizer.json", {reinterpret_cast<const char*>(data), size});
  const auto tokenizer = Tokenizer::Load(folder.path(), {"<extra>"}, 1 << 16);
  if (!tokenizer.ok()) {
    if (absl::IsInvalidArgument(tokenizer.status())) return 0;
    std::cerr << tokenizer.status() << "\n";
    std::abort();
  }
  for (const std::string_view text :
       {"", "plain words", "<extra><|im_end|>", "\xc3\xa9\xf0\x9f\x98\x80 1234"}) {
    const auto ids = (*tokenizer)->Encode(text, /*add_special_tokens=*/true);
    if (!ids.ok() && !absl::IsInvalidArgument(ids.status())) std::abort();
    (*tokenizer)->EncodeUntrustedWithEnds(text).IgnoreError();
  }
  return 0;
}
