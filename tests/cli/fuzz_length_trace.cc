// Any text as a trace of lengths: samples, or an error that starts with "file:line: ".
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/length_trace.h"
#include "tests/fuzz_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;       // NOLINT
  using namespace evenkeel::cli;  // NOLINT
  static const FuzzFolder folder;
  const std::string path = folder.Write("t.csv", {reinterpret_cast<const char*>(data), size});
  auto trace = ReadLengthTrace(path);
  if (!trace.ok()) {
    if (!absl::StartsWith(trace.status().message(), absl::StrCat(path, ":"))) std::abort();
    return 0;
  }
  const size_t count = trace->samples.size(), phases = trace->phases.size();
  if (WithoutEmptyPhases(*trace).phases.size() > phases) std::abort();
  if (count != 0 && DrawWithRepetition(trace->samples, 10, 1)->size() != 10) std::abort();
  if (DrawFromTrace(std::move(trace->samples), count, 7)->size() != count) std::abort();
  return 0;
}
