// Parts with token words for tests: what the writer makes of given words, and a slow reading of the same.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/part.h"

namespace evenkeel {

// What a part's token tensors hold.
struct TokenPart {
  uint64_t rows = 1, tokens_per_row = 0;
  bool padded = false;
  std::vector<uint32_t> words;
  std::vector<int32_t> cu_seqlens, spans, positions;

  PartLayout Layout() const {
    std::vector<TensorSpec> specs = {
        {.name = std::string(kTokensName),
         .dtype = DType::kI32,
         .shape = {rows, tokens_per_row},
         .tokens = TokenForm{.padded = padded}},
        {.name = std::string(kTokenSpansName), .dtype = DType::kI32, .shape = {spans.size() / 2, 2}},
        {.name = std::string(kTokenPositionsName), .dtype = DType::kI32, .shape = {3, positions.size() / 3}}};
    if (!padded) specs.push_back({.name = "cu_seqlens", .dtype = DType::kI32, .shape = {cu_seqlens.size()}});
    specs.push_back({.name = "loss_tokens", .dtype = DType::kI64, .shape = {1}});
    return PartLayout({.phase = Phase::kLlm, .step = 3}, 1, std::move(specs), {"d/s.tar/k"});
  }

  std::vector<std::byte> Bytes() const {
    const PartLayout layout = Layout();
    std::vector<std::byte> part(layout.total_bytes());
    layout.WriteHeader(part);
    const auto put = [&](size_t tensor, const auto& values) {
      if (values.empty()) return;
      std::memcpy(layout.tensor(part, tensor).data(), values.data(), values.size() * sizeof(values[0]));
    };
    put(0, words);
    if (!spans.empty()) put(1, spans);
    if (!positions.empty()) put(2, positions);
    if (!padded) put(3, cu_seqlens);
    return part;
  }
};

inline TokenPart RandomTokenPart(std::mt19937& random, bool padded) {
  TokenPart out{.padded = padded};
  out.rows = padded ? 1 + random() % 4 : 1;
  out.tokens_per_row = random() % 40;
  const uint64_t tokens = out.rows * out.tokens_per_row;
  for (uint64_t i = 0; i < tokens; ++i) out.words.push_back(static_cast<uint32_t>(random()));
  if (!padded) {
    out.cu_seqlens = {0, static_cast<int32_t>(tokens)};
    for (size_t i = random() % 4; i > 0; --i)
      out.cu_seqlens.push_back(static_cast<int32_t>(random() % (tokens + 1)));
    std::sort(out.cu_seqlens.begin(), out.cu_seqlens.end());
  }
  uint64_t at = 0, covered = 0;
  while (tokens > 0 && random() % 4 != 0) {
    const uint64_t begin = at + random() % (tokens - at + 1), length = random() % (tokens - begin + 1);
    out.spans.push_back(static_cast<int32_t>(begin));
    out.spans.push_back(static_cast<int32_t>(length));
    covered += length;
    at = begin + length;
  }
  for (uint64_t i = 0; i < 3 * covered; ++i) out.positions.push_back(static_cast<int32_t>(random() >> 1));
  return out;
}

}  // namespace evenkeel
