// Samples of text files: JSON lines, the elements of one JSON list, and lines of plain text.
//
// Only the bounds of a sample are found here: line breaks, or brackets and strings of the list. Its JSON is parsed
// later, by itself, so that a broken sample costs no other one. Memory is a buffer of fixed size, whatever the length
// of a line.
//
// A key is the number of the line, from 1, also where lines before it are empty; of a list it is the position of the
// element, from 0.
//
// Thread safety: none; one scanner, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dataset/format/sample_scanner.h"

namespace evenkeel::dataset {

// JSON lines, or one list if the file begins with '[' and its name does not end in .jsonl or .ndjson. Empty lines are
// skipped.
std::unique_ptr<SampleScanner> MakeJsonScanner(ByteSource& source, const std::string& path, uint64_t size);

// Every line that is not empty is a sample of text alone, without its line break.
std::unique_ptr<SampleScanner> MakeTextScanner(ByteSource& source, const std::string& path, uint64_t size);

}  // namespace evenkeel::dataset
