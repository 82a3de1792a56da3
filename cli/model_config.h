// A checkpoint's config.json -> the sizes of its towers for the step model: parameters, layers, widths, attention.
//
// What it is not: a reader of any config.json. Families are a table, because the sizes alone do not tell how many
// matrices a layer has. tests/golden/make_model_goldens.py counts the parameters of released models with transformers.
//
// Thread safety: a pure function.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "advise/training_model.h"

namespace evenkeel::cli {

// `path`: the file. Phases `llm`, `vision` and `audio`, those that the file has.
// - Parameters are weight matrices, embeddings, convolutions and routers; biases and norms are left out. A projector
//   belongs to the encoder before it.
// - Active parameters multiply a token: without the input embedding if it is not the output's too, of a mixture of
//   experts those of the experts that a token passes, of a layer after m tokens were merged into one an m-th.
// - A layer with a sliding window of w tokens counts as blocks of 2 w tokens that attend causally: as many pairs, except in
//   sequences shorter than w.
// NotFound: no such file. InvalidArgument with the path and the key: not JSON, an unknown model_type, a size that is missing,
// attention that is not by heads alone.
absl::StatusOr<advise::TrainingModel> ReadModelConfig(const std::string& path);

}  // namespace evenkeel::cli
