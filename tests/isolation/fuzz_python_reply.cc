// Whatever a Python process that was taken over sends: a reply within its bounds, a description whose fields can be
// laid out, or an error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "isolation/python_message.h"

namespace evenkeel::isolation {
namespace {

constexpr uint64_t kMaxRows = 1ull << 31;

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckReply(std::string_view text) {
  const absl::StatusOr<PythonReply> reply = ReadPythonReply(text);
  if (!reply.ok()) return Check(absl::IsInternal(reply.status()));
  const ItemLengths& lengths = reply->lengths.lengths;
  for (const uint64_t rows : {lengths.cost_length, lengths.input_rows, lengths.output_rows})
    Check(rows < kMaxRows);
  Check(reply->status.message().size() <= 4096);
  for (const preprocess::PythonRun& run : reply->lengths.runs) {
    Check(run.rows < kMaxRows);
    for (const int64_t id : run.ids) Check(id >= 0 && static_cast<uint64_t>(id) < kMaxRows);
  }
}

void CheckDescription(std::string_view text) {
  const absl::StatusOr<preprocess::PythonDescription> description = ReadPythonDescription(text);
  if (!description.ok()) return;
  for (const preprocess::PythonMedium& medium : description->media) {
    Check(!medium.fields.empty());
    for (const preprocess::FieldSpec& field : medium.fields) {
      Check(!field.name.empty());
      for (const uint64_t extent : field.trailing) Check(extent > 0 && extent < kMaxRows);
    }
  }
}

void CheckDone(std::string_view text) {
  const absl::StatusOr<int> done = ReadPythonDone(text);
  if (done.ok()) Check(*done >= 0);
}

}  // namespace
}  // namespace evenkeel::isolation

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  evenkeel::isolation::CheckReply(text);
  evenkeel::isolation::CheckDescription(text);
  evenkeel::isolation::CheckDone(text);
  return 0;
}
