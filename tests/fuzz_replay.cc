// Runs a fuzz target without libFuzzer, for seconds: every file of a corpus as it is, then mutations of them.
//
//   fuzz_png [--runs N] [--seconds S] FOLDER|FILE...
//
// Mutations depend on the corpus alone, so that a failure comes again. What finds new paths is libFuzzer
// (`scripts/test --fuzz`); this keeps what it found from coming back.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/mutations.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using evenkeel::Bytes;

// What is being tried, for the report of a crash: written where EVENKEEL_FUZZ_LAST names a file.
void Remember(const Bytes& bytes) {
  static const char* const path = std::getenv("EVENKEEL_FUZZ_LAST");
  if (path == nullptr) return;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void Try(const Bytes& bytes) {
  Remember(bytes);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::vector<Bytes> ReadCorpus(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const std::string& file : files) corpus.push_back(evenkeel::ReadBytes(file));
  return corpus;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 400;
  double seconds = 5;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--runs" && i + 1 < argc) {
      runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seconds" && i + 1 < argc) {
      seconds = std::strtod(argv[++i], nullptr);
    } else {
      paths.push_back(word);
    }
  }
  std::vector<Bytes> corpus = ReadCorpus(paths);
  for (const Bytes& bytes : corpus) Try(bytes);
  if (corpus.empty()) corpus.emplace_back(64);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t run = 0;
  for (; run < runs && std::chrono::steady_clock::now() < end; ++run) {
    Try(evenkeel::Mutated(corpus[run % corpus.size()], run));
  }
  std::cout << corpus.size() << " files, " << run << " mutations\n";
  return 0;
}
