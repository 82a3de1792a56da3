// Writes tensors in the safetensors format.
#include "cli/safetensors.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenkeel::cli {
namespace {

bool IsPlain(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.';
  });
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors) {
  std::string header = "{";
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    if (!IsPlain(tensor.spec.name) || tensor.bytes().size() != tensor.spec.num_bytes()) {
      return absl::InternalError(absl::StrCat("tensor '", tensor.spec.name, "' cannot be written"));
    }
    std::string dtype = absl::AsciiStrToUpper(absl::string_view(std::string(DTypeName(tensor.spec.dtype))));
    absl::StrAppend(&header, offset == 0 ? "" : ",", "\"", tensor.spec.name, "\":{\"dtype\":\"", dtype,
                    "\",\"shape\":[", absl::StrJoin(tensor.spec.shape, ","), "],\"data_offsets\":[", offset,
                    ",", offset + tensor.bytes().size(), "]}");
    offset += tensor.bytes().size();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that tensors are aligned to 8 bytes
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (int shift = 0; shift < 64; shift += 8) file.put(static_cast<char>(header.size() >> shift & 0xff));
  file << header;
  for (const TensorView& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes().data()),
               static_cast<std::streamsize>(tensor.bytes().size()));
  }
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

}  // namespace evenkeel::cli
