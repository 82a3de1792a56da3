// The options for compressed shards: where they are decompressed, and how much room that may take.
#pragma once

#include <CLI/CLI.hpp>

#include "dataset/source/unpacking_source.h"

namespace evenkeel::cli {

inline void AddUnpackOptions(CLI::App& command, dataset::UnpackOptions& options) {
  command.add_option("--unpack-dir", options.folder,
                     "Folder on a local disk for decompressed shards, which leave no file there (default: "
                     "TMPDIR, else /tmp)");
  command
      .add_option("--unpack-size", options.budget_bytes,
                  "Bytes that decompressed shards may take; one may take a quarter")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("32GiB");
}

}  // namespace evenkeel::cli
