// How long a large index takes to open, and a step to be planned from it, and what memory that needs.
//
//   bench_index FOLDER [SHARDS ROWS_A_SHARD [CACHE_MIB]]     default: 10,000 shards of 10,000 rows
//
// The folder keeps the synthetic index (2.9 GB at the default size) for the next run.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dataset/index/index_folder.h"
#include "dataset/order/sampler.h"
#include "tests/dataset/synthetic_index.h"

namespace {

using namespace evenkeel;

using namespace evenkeel::dataset;

double MebibytesResident() {
  struct rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

template <typename Work>
double Milliseconds(Work work) {
  absl::Time begin = absl::Now();
  work();
  return absl::ToDoubleMilliseconds(absl::Now() - begin);
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void PlanSteps(const char* name, const Job& job, const Index& index) {
  std::unique_ptr<Sampler> sampler;
  double make = Milliseconds([&] {
    auto made = Sampler::Make(job, index);
    Check(made.status());
    sampler = *std::move(made);
  });
  std::vector<double> times;
  size_t samples = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    uint64_t step = job.batch.samples > 0 ? i * 977 : i;
    times.push_back(Milliseconds([&] {
      auto got = sampler->Samples(step);
      Check(got.status());
      samples += got->refs.size();
    }));
  }
  double first = times[0];
  std::sort(times.begin(), times.end());
  std::printf(
      "%-22s make %.1f ms, first step %.1f ms, then median %.2f ms, worst %.2f ms; %zu samples a step\n",
      name, make, first, times[100], times[199], samples / 200);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::string folder = argv[1];
  uint64_t shards = argc > 3 ? std::strtoull(argv[2], nullptr, 10) : 10000;
  uint64_t rows = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 10000;
  size_t cache = (argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 32) << 20;
  Digest processor = DigestOf(std::string_view("synthetic"));
  Job job;
  if (!std::filesystem::exists(CurrentPath(folder))) {
    double ms = Milliseconds([&] { Check(WriteSyntheticIndex(folder, shards, rows, processor).status()); });
    std::printf("written in %.1f s; run again to measure a process that did not write it\n", ms / 1000);
    return 0;
  }
  auto catalogue = LoadCatalogue(folder, *MakeFileSource());
  Check(catalogue.status());
  job.path = "job.yaml";
  job.index = folder;
  job.datasets = {{.name = "synthetic"}};
  for (const auto& shard : catalogue->at("synthetic"))
    job.datasets[0].shards.push_back("shards/" + shard.name);
  catalogue = absl::CancelledError();
  double before = MebibytesResident();
  SizeOnlySource source(kSyntheticShardBytes);
  std::unique_ptr<Index> index;
  double open = Milliseconds([&] {
    auto opened = Index::Open(job, processor, source, cache);
    Check(opened.status());
    index = *std::move(opened);
  });
  std::printf("%zu shards, %llu rows, cache %zu MiB: opened in %.1f ms\n", job.datasets[0].shards.size(),
              static_cast<unsigned long long>(index->num_samples(0)), cache >> 20, open);
  for (Shuffle shuffle : {Shuffle::kFull, Shuffle::kBlocked, Shuffle::kNone}) {
    job.order.shuffle = shuffle;
    job.batch = {512, 0, 4096};
    const char* names[] = {"none", "full", "blocked"};
    PlanSteps(names[static_cast<size_t>(shuffle)], job, *index);
    job.batch = {0, 512 * 600, 4096};
    PlanSteps((std::string(names[static_cast<size_t>(shuffle)]) + ", token budget").c_str(), job, *index);
  }
  std::printf("resident at most: %.0f MiB (%.0f MiB before opening)\n", MebibytesResident(), before);
  return 0;
}
