// Documents of Megatron-LM's indexed datasets: X.bin, the ids of all tokens, and X.idx, where the documents are.
//
//   X.idx: "MMIDIDX\0\0", u64 version = 1, u8 type, u64 n, u64 d, i32 tokens of each sequence[n], i64 bytes before each
//          sequence[n], i64 sequences before each document[d], the last of which is n                   (little-endian)
//   type:  1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
//
// A sample is a document: its sequences, which follow one another in X.bin. So its tokens are one range of X.bin, and
// X.idx is read by the index alone. All input is untrusted.
//
// Example:
//     std::unique_ptr<SampleScanner> scanner = MakeMegatronScanner(bin, files, "corpus.bin", size);
//     EVENKEEL_ASSIGN_OR_RETURN(const std::optional<ScannedSample> document, scanner->Next());
//     if (document.has_value()) Use(*document);  // "0", its place in the .bin
//
// Thread safety: a scanner belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "dataset/format/sample_scanner.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// "corpus.idx" of "corpus.bin".
std::string MegatronIndexPath(const std::string& bin_path);
// NotFound: that file is missing.
absl::Status NoMegatronIndex(const std::string& bin_path);

// The key of a sample is the number of its document, from 0. X.bin of `size` bytes is read from `bin`, X.idx from `files`;
// both must outlive the scanner. Next returns in addition InvalidArgument: a type that is not of ids, or another version.
std::unique_ptr<SampleScanner> MakeMegatronScanner(ByteSource& bin, ByteSource& files,
                                                   const std::string& path, uint64_t size);

}  // namespace evenkeel::dataset
