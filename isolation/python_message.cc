// Writes calls to Python processes as JSON, and reads their replies without trusting them.
#include "isolation/python_message.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::isolation {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxMessage = 128 << 10;
constexpr uint64_t kMaxRows = 1ull << 31;
constexpr size_t kMaxFields = 16, kMaxAxes = 8, kMaxRuns = 1 << 14;

Json Parse(std::string_view text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

// A member of an object, or null.
const Json& At(const Json& object, const char* key) {
  static const Json* const kNull = new Json();
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : *kNull;
}

std::string Text(const Json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

bool ReadNumber(const Json& value, uint64_t below, uint64_t* out) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) return false;
  *out = value.get<uint64_t>();
  return *out < below;
}

bool ReadRows(const Json& value, uint32_t* out) {
  uint64_t number = 0;
  if (!ReadNumber(value, kMaxRows, &number)) return false;
  *out = static_cast<uint32_t>(number);
  return true;
}

bool ReadRun(const Json& value, preprocess::PythonRun* out) {
  if (!value.is_array() || value.size() != 2 || !value[0].is_array()) return false;
  for (const Json& id : value[0]) {
    uint64_t number = 0;
    if (!ReadNumber(id, kMaxRows, &number)) return false;
    out->ids.push_back(static_cast<int64_t>(number));
  }
  return ReadRows(value[1], &out->rows);
}

bool ReadLengths(const Json& object, preprocess::PythonLengths* out) {
  const Json& lengths = At(object, "lengths");
  const Json& runs = At(object, "runs");
  if (lengths.is_null()) return true;  // of a call that asks for none
  if (!lengths.is_array() || lengths.size() != 3 || !runs.is_array() || runs.size() > kMaxRuns) return false;
  if (!ReadRows(lengths[0], &out->lengths.cost_length) || !ReadRows(lengths[1], &out->lengths.input_rows) ||
      !ReadRows(lengths[2], &out->lengths.output_rows)) {
    return false;
  }
  for (const Json& run : runs) {
    if (!ReadRun(run, &out->runs.emplace_back())) return false;
  }
  return true;
}

bool ReadText(const Json& object, preprocess::PythonText* out) {
  const Json& trained = At(object, "trained");
  if (At(object, "text").is_null()) return true;  // of a call that asks for none
  if (!At(object, "text").is_string() || !trained.is_array()) return false;
  out->text = Text(At(object, "text"));
  uint64_t done = 0;
  for (const Json& value : trained) {
    preprocess::PythonText::Trained& range = out->trained.emplace_back();
    if (!value.is_array() || value.size() != 3 || !value[2].is_number()) return false;
    if (!ReadNumber(value[0], out->text.size(), &range.begin) ||
        !ReadNumber(value[1], out->text.size() + 1, &range.end)) {
      return false;
    }
    range.weight = value[2].get<float>();
    const bool is_ordered = done <= range.begin && range.begin < range.end;
    if (!is_ordered || !std::isfinite(range.weight) || range.weight <= 0) return false;
    done = range.end;
  }
  return true;
}

bool ReadDType(const std::string& name, DType* out) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"uint8", DType::kU8},    {"int32", DType::kI32},     {"int64", DType::kI64},
      {"float32", DType::kF32}, {"bfloat16", DType::kBf16}, {"float64", DType::kF64}};
  for (const auto& [of, dtype] : kNames) {
    if (of != name) continue;
    *out = dtype;
    return true;
  }
  return false;
}

bool ReadField(const Json& object, preprocess::FieldSpec* out) {
  out->name = Text(At(object, "name"));
  const Json& trailing = At(object, "trailing");
  if (out->name.empty() || !ReadDType(Text(At(object, "dtype")), &out->dtype)) return false;
  if (!At(object, "per_row").is_boolean() || !trailing.is_array() || trailing.size() > kMaxAxes) return false;
  out->per_row = At(object, "per_row").get<bool>();
  for (const Json& extent : trailing) {
    if (!ReadNumber(extent, kMaxRows, &out->trailing.emplace_back()) || out->trailing.back() == 0)
      return false;
  }
  return true;
}

bool ReadMedium(const Json& object, preprocess::PythonMedium* out) {
  const std::string name = Text(At(object, "medium"));
  bool known = false;
  for (const Medium medium : kItemMedia) {
    if (MediumName(medium) == name) out->medium = medium, known = true;
  }
  out->placeholder = Text(At(object, "placeholder"));
  out->in_template = Text(At(object, "in_template"));
  out->begin = Text(At(object, "begin"));
  out->end = Text(At(object, "end"));
  out->measures_stored = At(object, "stored").is_boolean() && At(object, "stored").get<bool>();
  const Json& fields = At(object, "fields");
  if (!known || !fields.is_array() || fields.empty() || fields.size() > kMaxFields) return false;
  for (const Json& field : fields) {
    if (!ReadField(field, &out->fields.emplace_back())) return false;
  }
  return true;
}

const char* WorkName(PythonWork work) {
  switch (work) {
    case PythonWork::kMeasure:
      return "measure";
    case PythonWork::kProcess:
      return "process";
    case PythonWork::kBlank:
      return "blank";
    case PythonWork::kRender:
      return "render";
  }
  return "";
}

}  // namespace

std::string PythonSpec(const ProcessorSpec& spec, uint64_t memory_bytes) {
  Json media = Json::array();
  std::string folder;
  for (const EncoderSpec& encoder : spec.Encoders()) {
    if (folder.empty()) folder = encoder.folder;
    for (const Medium medium : kItemMedia) {
      const Json name = MediumName(medium);
      const bool known = std::find(media.begin(), media.end(), name) != media.end();
      if (encoder.phase.takes(medium) && !known) media.push_back(name);
    }
  }
  return Json{{"what", spec.python}, {"folder", folder}, {"media", media}, {"memory_bytes", memory_bytes}}
      .dump();
}

std::string WritePythonCall(const PythonCall& call) {
  const MediaFacts& facts = call.facts;
  Json out = {{"number", call.number},
              {"work", WorkName(call.work)},
              {"medium", MediumName(facts.medium)},
              {"suffix", call.suffix},
              {"facts",
               {{"width", facts.width},
                {"height", facts.height},
                {"rotation", facts.rotation},
                {"num_frames", facts.num_frames},
                {"sample_rate", facts.sample_rate},
                {"channels", facts.channels},
                {"num_samples", facts.num_samples},
                {"duration_us", facts.duration_us},
                {"fps_num", facts.fps_num},
                {"fps_den", facts.fps_den}}},
              {"planned", {call.planned.cost_length, call.planned.input_rows, call.planned.output_rows}}};
  if (call.has_input) out["input"] = {call.input.offset, call.input.size};
  for (const SharedRange& field : call.fields) out["fields"].push_back({field.offset, field.size});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<PythonReply> ReadPythonReply(std::string_view text) {
  const Json reply = Parse(text);
  PythonReply out;
  uint64_t code = 0;
  constexpr uint64_t kMaxCode = 17;
  if (!ReadNumber(At(reply, "code"), kMaxCode, &code) || !ReadLengths(reply, &out.lengths) ||
      !ReadText(reply, &out.text)) {
    return absl::InternalError("a Python process sent an invalid reply");
  }
  (void)ReadNumber(At(reply, "number"), ~uint64_t{0}, &out.number);  // a greeting has none
  std::string message = Text(At(reply, "message"));
  message.resize(std::min<size_t>(message.size(), 4096));
  if (code != 0) out.status = absl::Status(static_cast<absl::StatusCode>(code), message);
  return out;
}

absl::StatusOr<preprocess::PythonDescription> ReadPythonDescription(std::string_view text) {
  const Json object = Parse(text);
  preprocess::PythonDescription out;
  out.name = Text(At(object, "name"));
  out.renders = At(object, "renders").is_boolean() && At(object, "renders").get<bool>();
  const absl::Status wrong = absl::InvalidArgumentError("a Python process sent an invalid description");
  if (!At(object, "versions").is_array() || !At(object, "media").is_array()) return wrong;
  for (const Json& version : At(object, "versions")) {
    if (!version.is_array() || version.size() != 2) return wrong;
    out.versions.emplace_back(Text(version[0]), Text(version[1]));
  }
  for (const Json& medium : At(object, "media")) {
    if (!ReadMedium(medium, &out.media.emplace_back())) return wrong;
  }
  return out;
}

std::string PythonForkOrder() { return R"({"fork":1})"; }
std::string PythonEndOrder(pid_t pid) { return absl::StrCat("{\"end\":", pid, "}"); }

absl::StatusOr<int> ReadPythonDone(std::string_view text) {
  const Json done = Parse(text);
  uint64_t number = 0;
  constexpr uint64_t kMaxNumber = 1ull << 31;
  if (ReadNumber(At(done, "pid"), kMaxNumber, &number) || ReadNumber(At(done, "status"), kMaxNumber, &number))
    return static_cast<int>(number);
  return absl::UnavailableError(absl::StrCat("no Python process: ", Text(At(done, "message"))));
}

absl::Status SendText(int socket, std::string_view text, std::span<const int> files) {
  return SendBytes(socket, std::as_bytes(std::span(text.data(), text.size())), files);
}

absl::StatusOr<std::string> ReceiveText(int socket) {
  thread_local std::string buffer(kMaxMessage + 1, '\0');
  ssize_t received = -1;
  do {
    received = recv(socket, buffer.data(), buffer.size(), 0);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return absl::UnavailableError(absl::StrCat("Python process: ", std::strerror(errno)));
  if (received == 0) return absl::UnavailableError("Python process ended");
  if (static_cast<size_t>(received) > kMaxMessage)
    return absl::UnavailableError("Python process sent a message that is too long");
  return buffer.substr(0, static_cast<size_t>(received));
}

}  // namespace evenkeel::isolation
