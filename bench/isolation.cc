// The cost of confinement: each given medium is produced in this process and by a decoder process, in turn.
//
//   bench_isolation --vision DIR --audio DIR MEDIUM...
//
// Both do what a worker does of a part that has this item alone: memory that nobody has touched yet, the
// item's fields, the hash of its bytes. In this process that is ordinary memory, for decoders a file that
// they share. Also the time in which a decoder is ended and replaced.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>

#include "absl/strings/str_format.h"
#include "core/digest.h"
#include "core/status.h"
#include "isolation/isolated_processor.h"

namespace evenkeel {
namespace {

using Clock = std::chrono::steady_clock;
double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}
double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

Digest hashed;  // kept, so that hashing is not left out

struct Prepared {
  isolation::SharedMemory::Block input;
  preprocess::ItemRequest request;
};

absl::StatusOr<Prepared> Prepare(const isolation::IsolatedProcessor& processor, Medium medium,
                                 const std::string& path, const std::string& suffix) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Prepared out;
  EVENKEEL_ASSIGN_OR_RETURN(out.input,
                            processor.memory().Allocate(isolation::SharedMemory::Use::kInput, bytes.size()));
  bytes.copy(reinterpret_cast<char*>(out.input.bytes().data()), bytes.size());
  out.request.medium = medium;
  out.request.suffix = suffix;
  out.request.bytes = out.input.bytes();
  EVENKEEL_ASSIGN_OR_RETURN(out.request.facts, processor.Probe(medium, suffix, out.request.bytes));
  EVENKEEL_ASSIGN_OR_RETURN(out.request.planned, processor.Measure(out.request.facts));
  return out;
}

// An item's part of `bytes`.
absl::Status Produce(const preprocess::Processor& processor, const preprocess::ItemRequest& request,
                     std::span<std::byte> bytes) {
  std::vector<std::span<std::byte>> fields;
  std::span<std::byte> left = bytes;
  for (const preprocess::FieldSpec& field : processor.fields(request.medium)) {
    const uint64_t size = field.num_bytes(request.planned);
    fields.push_back(left.first(size));
    left = left.subspan(size);
  }
  EVENKEEL_RETURN_IF_ERROR(processor.Produce(request, fields));
  hashed = DigestOf(bytes);
  return absl::OkStatus();
}

uint64_t PartBytes(const preprocess::Processor& processor, const preprocess::ItemRequest& request) {
  uint64_t total = 0;
  for (const preprocess::FieldSpec& field : processor.fields(request.medium))
    total += field.num_bytes(request.planned);
  return total;
}

absl::Status ProduceHere(const preprocess::Processor& processor, const preprocess::ItemRequest& request) {
  const uint64_t size = PartBytes(processor, request);
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(isolation::kPageBytes, isolation::RoundUpToPage(size)), &std::free);
  return Produce(processor, request, {static_cast<std::byte*>(memory.get()), size});
}

absl::Status ProduceApart(const isolation::IsolatedProcessor& processor,
                          const preprocess::ItemRequest& request) {
  EVENKEEL_ASSIGN_OR_RETURN(
      const isolation::SharedMemory::Block part,
      processor.memory().Allocate(isolation::SharedMemory::Use::kOutput, PartBytes(processor, request)));
  return Produce(processor, request, part.bytes());
}

absl::Status Compare(const preprocess::Processor& here, const isolation::IsolatedProcessor& apart,
                     const std::string& path) {
  static const std::map<std::string, Medium> kMedia = {
      {"jpg", Medium::kImage},  {"png", Medium::kImage}, {"webp", Medium::kImage}, {"wav", Medium::kAudio},
      {"flac", Medium::kAudio}, {"mp3", Medium::kAudio}, {"mp4", Medium::kVideo},  {"avi", Medium::kVideo}};
  const std::string suffix = path.substr(path.rfind('.') + 1);
  const auto medium = kMedia.find(suffix);
  if (medium == kMedia.end()) return absl::InvalidArgumentError(path);
  EVENKEEL_ASSIGN_OR_RETURN(const Prepared item, Prepare(apart, medium->second, path, suffix));
  std::vector<double> in_process, isolated;
  const auto begin = Clock::now();
  while (in_process.size() < 5 || (MicrosecondsSince(begin) < 2e6 && in_process.size() < 1000)) {
    for (const bool is_apart : {false, true}) {
      const auto start = Clock::now();
      EVENKEEL_RETURN_IF_ERROR(is_apart ? ProduceApart(apart, item.request)
                                        : ProduceHere(here, item.request));
      (is_apart ? isolated : in_process).push_back(MicrosecondsSince(start));
    }
  }
  const double a = Median(in_process), b = Median(isolated);
  std::cout << absl::StrFormat(
      "%-32s %9d bytes  %10.0f us here  %10.0f us isolated  ratio %.3f  (+%.0f us)\n",
      std::filesystem::path(path).filename().string(), item.request.bytes.size(), a, b, b / a, b - a);
  return absl::OkStatus();
}

absl::Status TimeReplacements(const preprocess::Processor& processor) {
  EVENKEEL_ASSIGN_OR_RETURN(const auto spawner, isolation::DecoderSpawner::Start(processor, 1ull << 30,
                                                                                 absl::Seconds(10), nullptr));
  std::vector<double> times;
  for (int i = 0; i < 51; ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(const isolation::DecoderSpawner::Child old, spawner->Spawn());
    const auto begin = Clock::now();
    spawner->End(old);
    EVENKEEL_ASSIGN_OR_RETURN(const isolation::DecoderSpawner::Child next, spawner->Spawn());
    times.push_back(MicrosecondsSince(begin) / 1000);
    spawner->End(next);
  }
  std::cout << absl::StrFormat("a decoder ended and replaced: median %.2f ms, longest %.2f ms\n",
                               Median(times), *std::max_element(times.begin(), times.end()));
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  Job job;
  job.isolation = Isolation::kAll;
  job.processor.vision = argv[2];
  job.processor.audio = argv[4];
  EVENKEEL_ASSIGN_OR_RETURN(auto decoders, isolation::StartDecoders(job, {}));
  EVENKEEL_ASSIGN_OR_RETURN(const auto here, preprocess::Processor::LoadMedia(job.processor, job.limits));
  EVENKEEL_RETURN_IF_ERROR(TimeReplacements(*here));
  EVENKEEL_ASSIGN_OR_RETURN(auto wrapped, preprocess::Processor::LoadMedia(job.processor, job.limits));
  const isolation::IsolatedProcessor apart(std::move(wrapped), std::move(decoders), job.isolation);
  for (int i = 5; i < argc; ++i) EVENKEEL_RETURN_IF_ERROR(Compare(*here, apart, argv[i]));
  return absl::OkStatus();
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  if (argc < 6 || std::string(argv[1]) != "--vision" || std::string(argv[3]) != "--audio") {
    std::cerr << "usage: bench_isolation --vision DIR --audio DIR MEDIUM...\n";
    return 2;
  }
  const absl::Status status = evenkeel::Run(argc, argv);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
