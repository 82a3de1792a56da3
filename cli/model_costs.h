// What a model's phases cost, from the sizes in its checkpoint's config.json: `evenkeel init` writes it into the job, so that
// long sequences count with their attention and phases count in one unit.
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>

#include "core/job.h"

namespace evenkeel::cli {

// By phase ("llm", "vision", "audio"): 10^9 floating-point operations of a forward pass for a unit of length n. The llm's
// attention is causal, n^2 / 2 pairs; mixtures of experts count the experts that a token passes. Encoders have no term in
// n^2: whether they attend within windows, frames or all of an item is not in every config.json. Empty where config.json is
// missing or does not say the sizes of the llm; without "vision" or "audio" where it does not say theirs.
//
// Source of the formula: two operations per weight and token, and 2 * n^2 * heads * head_dim for the two products of causal
// attention, per layer.
std::map<std::string, Cost> ModelCosts(const std::string& folder);

}  // namespace evenkeel::cli
