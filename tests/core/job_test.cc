#include "core/job.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/source_dir.h"
#include "tests/usual_phases.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kSmall[] = R"(
seed: 7
index: ./index
datasets: [{name: photos, shards: ["shards/photos-{000..003}.tar"]}]
processor: {folder: ./qwen2-vl}
batch: {samples: 64}
phases:
  - {name: vision, ranks: 0-7}
  - {name: llm, ranks: 0-7}
)";

Job Parsed(const std::string& yaml, const std::string& path = "jobs/captions.yaml") {
  absl::StatusOr<Job> job = ParseJob(yaml, path);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *std::move(job) : Job{};
}

// The example of core/job.h.
absl::StatusOr<uint32_t> NodeOfFourthVisionRank(const std::string& path) {
  absl::StatusOr<Job> job = LoadJob(path);
  if (!job.ok()) return job.status();
  uint32_t node = job->NodeOf(job->phase(kVisionPhase)->ranks[3]);
  return node;
}

TEST(Job, FillsEveryDefault) {
  Job job = Parsed(kSmall);
  EXPECT_EQ(job.name, "captions");
  EXPECT_EQ(job.path, "jobs/captions.yaml");
  EXPECT_EQ(job.seed, 7u);
  EXPECT_EQ(job.index, "jobs/index");
  ASSERT_EQ(job.datasets.size(), 1u);
  EXPECT_EQ(job.datasets[0].weight, 1);
  EXPECT_THAT(job.datasets[0].shards,
              ElementsAre("jobs/shards/photos-000.tar", "jobs/shards/photos-001.tar",
                          "jobs/shards/photos-002.tar", "jobs/shards/photos-003.tar"));
  EXPECT_EQ(job.processor.vision, "jobs/qwen2-vl");
  EXPECT_EQ(job.processor.audio, "");
  EXPECT_EQ(job.processor.tokenizer, "jobs/qwen2-vl");
  EXPECT_EQ(job.processor.chat, "template");
  EXPECT_EQ(job.processor.like, "transformers-5.23");
  EXPECT_EQ(job.processor.resampler, "");
  EXPECT_EQ(job.processor.fps, std::nullopt);
  EXPECT_EQ(job.processor.min_frames, std::nullopt);
  EXPECT_EQ(job.processor.max_frames, std::nullopt);
  EXPECT_EQ(job.processor.video_min_pixels, std::nullopt);
  EXPECT_EQ(job.processor.video_max_pixels, std::nullopt);
  EXPECT_EQ(job.processor.wire, Wire::kU8);
  EXPECT_EQ(job.batch.samples, 64u);
  EXPECT_EQ(job.batch.llm_tokens, 0u);
  EXPECT_EQ(job.order.shuffle, Shuffle::kFull);
  EXPECT_EQ(job.pipeline_stages, 1u);
  EXPECT_EQ(job.virtual_stages, 1u);
  EXPECT_EQ(job.microbatch.align, 1u);
  EXPECT_EQ(job.microbatch.count_multiple, 1u);
  EXPECT_EQ(job.limits.max_image_pixels, 89478485u);
  EXPECT_EQ(job.limits.max_llm_length, 131072u);
  ASSERT_EQ(job.phases.size(), 2u);
  EXPECT_EQ(job.phases[0].phase, Phase::kLlm);  // sorted, though written second
  EXPECT_EQ(job.phases[1].phase, kVisionPhase);
  EXPECT_EQ(job.phases[1].algorithm, "balance_without_moving");
  EXPECT_EQ(job.phases[1].cost.linear, 1);
  EXPECT_EQ(job.phase(kAudioPhase), nullptr);
  EXPECT_EQ(job.NodeOf(5), 0u);
}

TEST(Job, PlansReplicasOfAMeshByTheirLeaders) {
  const Job job = Parsed(R"(
index: ./index
datasets: [{name: photos, shards: [a.tar]}]
processor: {folder: ./qwen2-vl}
batch: {samples: 64}
topology: {ranks_per_node: 8, mesh: {tensor: 2, context: 2, data: 2, pipeline: 2}, sequences: zigzag}
phases:
  - {name: llm}
  - {name: vision, ranks: "0,8,4,12", mesh: {order: tp-cp-pp-dp, tensor: 2}}
)");
  const PhaseSpec& llm = job.phases[0];
  EXPECT_THAT(llm.ranks, ElementsAre(0, 4));
  EXPECT_EQ(llm.mesh.ranks.size(), 16u);
  EXPECT_EQ(llm.mesh.MemberAt(13), (Member{.replica = 1, .stage = 1, .context = 0, .tensor = 1}));
  EXPECT_EQ(job.pipeline_stages, 2u);
  EXPECT_EQ(job.sequences, Sequences::kZigzag);
  EXPECT_EQ(job.microbatch.align, 4u) << "two chunks of every document for each of two members";
  EXPECT_THAT(job.phases[1].ranks, ElementsAre(0, 4));
  EXPECT_EQ(job.phases[1].mesh.RankAt({.replica = 0, .tensor = 1}), 8u);
}

TEST(Job, AMeshOfDataAloneIsTheListOfRanks) {
  const std::string plain = std::string(kSmall),
                    mesh = plain + "topology: {mesh: {order: dp-tp-cp-pp, data: 8}}\n";
  EXPECT_EQ(Parsed(mesh).phases[0].ranks, Parsed(plain).phases[0].ranks);
  EXPECT_EQ(LayoutDigest(Parsed(mesh)), LayoutDigest(Parsed(plain)));
  std::string without = mesh;
  for (size_t at; (at = without.find(", ranks: 0-7")) != std::string::npos;) without.erase(at, 12);
  EXPECT_EQ(LayoutDigest(Parsed(without)), LayoutDigest(Parsed(plain)));
}

TEST(Job, AMeshIsPartOfTheLayout) {
  const std::string plain = std::string(kSmall), topology = "topology: {mesh: {context: 2}";
  const Job two = Parsed(plain + topology + "}\n"),
            order = Parsed(plain + "topology: {mesh: {context: 2, order: dp-cp-tp-pp}}\n"),
            zigzag = Parsed(plain + topology + ", sequences: zigzag}\n");
  EXPECT_NE(LayoutDigest(two), LayoutDigest(Parsed(plain)));
  EXPECT_NE(LayoutDigest(two), LayoutDigest(order));
  EXPECT_NE(LayoutDigest(two), LayoutDigest(zigzag));
}

TEST(Job, DynamicGroupsComeFromAPool) {
  const std::string plain = std::string(kSmall);
  const auto with = [&](const std::string& groups) {
    return Parsed(plain +
                  "topology: {context_parallel: dynamic, sequences: zigzag, groups: {sizes: powers_of_two, " +
                  groups + "}}\n");
  };
  const Job job = with("max_size: 4, tokens_per_rank: 100");
  EXPECT_TRUE(job.groups.given);
  EXPECT_THAT(job.groups.sizes, ElementsAre(1, 2, 4));
  EXPECT_EQ(job.groups.pool, 64u);
  EXPECT_EQ(job.groups.algorithm, "regroup");
  EXPECT_EQ(job.microbatch.align, 8u) << "two chunks of every document for each of four members";
  EXPECT_EQ(job.limits.max_llm_length, 400u) << "what the largest group holds";
  EXPECT_NE(LayoutDigest(job), LayoutDigest(Parsed(plain)));
  EXPECT_NE(LayoutDigest(job), LayoutDigest(with("max_size: 2, tokens_per_rank: 100")));
  EXPECT_NE(LayoutDigest(job),
            LayoutDigest(with("max_size: 4, tokens_per_rank: 100, media_attention: full")));
  EXPECT_NE(LayoutDigest(job), LayoutDigest(with("max_size: 4, tokens_per_rank: 100, algorithm: dhp")));
  EXPECT_NE(LayoutDigest(job), LayoutDigest(with("max_size: 4, tokens_per_rank: 101")));
}

TEST(Job, ReadsConditions) {
  std::string yaml(kSmall);
  yaml.insert(yaml.find("shards:"),
              "where: {images: 1.., llm_tokens: 16..4096, aspect_ratio: ..2.5, audios: 0}, ");
  const std::vector<Condition> where = Parsed(yaml).datasets[0].where;
  EXPECT_THAT(where, ElementsAre(Condition{.fact = SampleFact::kLlmTokens, .least = 16, .most = 4096},
                                 Condition{.fact = SampleFact::kImages, .least = 1},
                                 Condition{.fact = SampleFact::kAudios, .least = 0, .most = 0},
                                 Condition{.fact = SampleFact::kAspectRatio, .most = 2.5}));
  EXPECT_TRUE(where[0].Holds(16) && where[0].Holds(4096));
  EXPECT_FALSE(where[0].Holds(15) || where[0].Holds(4097));
}

TEST(Job, ReadsWeightsThatChange) {
  std::string yaml(kSmall);
  yaml.insert(yaml.find("shards:"),
              "weights: [{from_step: 0, weight: 2}, {from_step: 3, weight: 1}, "
              "{from_draw: 1000, weight: 5}], ");
  const DatasetSpec dataset = Parsed(yaml).datasets[0];
  const std::vector<std::pair<uint64_t, double>> expected = {{0, 2},   {191, 2},  {192, 1},
                                                             {999, 1}, {1000, 5}, {1 << 30, 5}};
  for (const auto& [draw, weight] : expected) EXPECT_EQ(dataset.WeightAt(draw), weight) << draw;
  std::string constant(kSmall);
  constant.insert(constant.find("shards:"), "weights: [{from_step: 0, weight: 1}], ");
  EXPECT_EQ(StreamDigest(Parsed(constant), {}, {}), StreamDigest(Parsed(kSmall), {}, {}));
  EXPECT_NE(StreamDigest(Parsed(yaml), {}, {}), StreamDigest(Parsed(kSmall), {}, {}));
}

TEST(Job, ReadsRepetitionsOfAllDatasets) {
  std::string yaml(kSmall);
  yaml.insert(yaml.find("shards:"), "repeat: 2.5, ");
  const Job job = Parsed(yaml);
  EXPECT_TRUE(job.datasets[0].repeats);
  EXPECT_EQ(job.datasets[0].weight, 2.5);
  std::string weighted(kSmall);
  weighted.insert(weighted.find("shards:"), "weight: 2.5, ");
  EXPECT_NE(StreamDigest(job, {}, {}), StreamDigest(Parsed(weighted), {}, {}));
  yaml.replace(yaml.find("repeat: 2.5"), 11, "repeat: 0");
  EXPECT_THAT(std::string(ParseJob(yaml, "job.yaml").status().message()),
              ::testing::HasSubstr("every repeat is 0; at least one dataset must be drawn"));
}

TEST(Job, ReadsTheEpochsAfterWhichADatasetEnds) {
  std::string yaml(kSmall);
  yaml.insert(yaml.find("shards:"), "max_epochs: 1.5, ");
  EXPECT_EQ(Parsed(yaml).datasets[0].max_epochs, 1.5);
  EXPECT_NE(StreamDigest(Parsed(yaml), {}, {}), StreamDigest(Parsed(kSmall), {}, {}));
  std::string many =
      "index: i\nbatch: {samples: 1}\nprocessor: {folder: p}\nphases: [{name: llm, ranks: "
      "\"0\"}]\ndatasets:\n";
  for (int i = 0; i < 129; ++i)
    absl::StrAppend(&many, "  - {name: d", i, ", shards: [", i, ".tar], max_epochs: 1}\n");
  EXPECT_THAT(std::string(ParseJob(many, "job.yaml").status().message()),
              ::testing::HasSubstr("129 datasets have max_epochs; at most 128"));
}

TEST(Job, AtEveryTimeADatasetIsDrawn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{from_step: 5, weight: 1}", "from draw 0 on every weight is 0; at least one dataset must be drawn"},
      {"{from_step: 0, weight: 1}, {from_step: 5, weight: 0}",
       "from draw 320 on every weight is 0; at least one dataset must be drawn"}};
  for (const auto& [weights, message] : cases) {
    std::string yaml(kSmall);
    yaml.insert(yaml.find("shards:"), "weights: [" + weights + "], ");
    EXPECT_THAT(std::string(ParseJob(yaml, "job.yaml").status().message()), ::testing::HasSubstr(message));
  }
}

TEST(Job, ReadsSplits) {
  const std::string yaml = std::string(kSmall) + "splits: [{name: a, share: 0.9}, {name: b, share: 0.1}]\n";
  const Job first = Parsed(yaml), second = Parsed(yaml + "split: b\nsplit_seed: 4\n");
  EXPECT_EQ(first.SplitRange().begin, 0u);
  EXPECT_EQ(first.SplitRange().end, second.SplitRange().begin);
  EXPECT_EQ(second.SplitRange().end, uint64_t{1} << 32);
  EXPECT_EQ(second.split_seed, 4u);
  EXPECT_TRUE(Parsed(std::string(kSmall)).SplitRange().is_all());
}

TEST(Job, ASelectionIsPartOfTheStream) {
  const auto digest = [](const std::string& yaml) { return StreamDigest(Parsed(yaml), {}, {}); };
  const std::string plain(kSmall),
      splits = plain + "splits: [{name: a, share: 0.5}, {name: b, share: 0.5}]\n";
  std::string where = plain, other = plain;
  where.insert(where.find("shards:"), "where: {images: 1..}, ");
  other.insert(other.find("shards:"), "where: {images: ..1}, ");
  const std::vector<Digest> digests = {digest(plain),
                                       digest(where),
                                       digest(other),
                                       digest(splits),
                                       digest(splits + "split: b\n"),
                                       digest(splits + "split_seed: 1\n")};
  for (size_t i = 0; i < digests.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(digests[i], digests[j]) << i << " and " << j;
  }
  EXPECT_EQ(digest(plain + "splits: [{name: all, share: 1}]\n"), digest(plain)) << "it leaves nothing out";
}

TEST(Job, ReadsEveryField) {
  Job job = Parsed(R"(
name: everything
seed: 18446744073709551615
index: /data/index
datasets:
  - name: a
    shards:
      - ../a/{0..1}.tar
      - /abs/b.tar
    weight: 0
  - {name: b, shards: [c.tar], weight: 2.5e-1}
processor:
  vision: v
  audio: a
  tokenizer: t
  chat: plain
  system: |
    You are terse.
  added_tokens: ["<a>", '<b>']
  resampler: pil
  min_pixels: 3k
  max_pixels: 1m
  fps: 1.5
  min_frames: 2
  max_frames: 64
  video_min_pixels: 1KiB
  video_max_pixels: 2KiB
batch: {llm_tokens: 4096, window_samples: 100}
order: {shuffle: blocked, block_samples: 16, window_blocks: 3}
topology: {ranks_per_node: 4, pipeline_stages: 2, virtual_stages: 3}
phases:
  - {name: audio, ranks: "8", batching: padded, runs: once_per_microbatch, algorithm: none, min_items: 1}
  - {name: llm, ranks: 4-5, cost: {quadratic: 1e-6}, algorithm: karmarkar_karp, equal_counts: true, tolerance: 0}
  - name: vision
    ranks: 3,0-1
    cost: {constant: 1, linear: 2, quadratic: 3, mask_factor: 0.5}
    batching: padded_attention
    algorithm: greedy_padded_attention
    node_wise: true
    capacity: 16384
microbatch: {capacity_tokens: 1003, pad_to: 1024, align: 8, count_multiple: 4}
wire: bf16
limits: {max_image_bytes: 1MiB, max_llm_length: 5000, max_items: 3, max_column_bytes: 200}
columns: [score, __key__, id]
exclude: [b/c.tar/key/with/slashes, a/0.tar/x, a/0.tar/x]
stream_version: 4
)");
  EXPECT_EQ(job.name, "everything");
  EXPECT_EQ(job.seed, ~0ull);
  EXPECT_EQ(job.index, "/data/index");
  EXPECT_THAT(job.datasets[0].shards, ElementsAre("a/0.tar", "a/1.tar", "/abs/b.tar"));
  EXPECT_EQ(job.datasets[0].weight, 0);  // an explicit 0 stays 0
  EXPECT_EQ(job.datasets[1].weight, 0.25);
  EXPECT_EQ(job.processor.vision, "jobs/v");
  EXPECT_EQ(job.processor.audio, "jobs/a");
  EXPECT_EQ(job.processor.tokenizer, "jobs/t");
  EXPECT_EQ(job.processor.chat, "plain");
  EXPECT_EQ(job.processor.system, "You are terse.\n");
  EXPECT_THAT(job.processor.added_tokens, ElementsAre("<a>", "<b>"));
  EXPECT_EQ(job.processor.min_pixels, 3000u);
  EXPECT_EQ(job.processor.max_pixels, 1000000u);
  EXPECT_EQ(job.processor.fps, 1.5);
  EXPECT_EQ(job.processor.video_max_pixels, 2048u);
  EXPECT_EQ(job.processor.wire, Wire::kBf16);
  EXPECT_EQ(job.batch.llm_tokens, 4096u);
  EXPECT_EQ(job.batch.window_samples, 100u);
  EXPECT_EQ(job.order.shuffle, Shuffle::kBlocked);
  EXPECT_EQ(job.order.block_samples, 16u);
  EXPECT_EQ(job.order.window_blocks, 3u);
  EXPECT_EQ(job.NodeOf(8), 2u);
  EXPECT_EQ(job.pipeline_stages, 2u);
  EXPECT_EQ(job.virtual_stages, 3u);
  EXPECT_EQ(job.phases[1].phase, kVisionPhase) << "audio comes last, wherever the file has it";
  EXPECT_EQ(job.phases[2].phase.number(), 2);
  EXPECT_EQ(MediaNames(job.phases[1].phase), "image,video");
  ASSERT_EQ(job.processor.encoders.size(), 2u);
  EXPECT_EQ(job.processor.encoders[1].folder, "jobs/a");
  const PhaseSpec* audio = job.phase(kAudioPhase);
  ASSERT_NE(audio, nullptr);
  EXPECT_EQ(audio->batching, Batching::kPadded);
  EXPECT_EQ(audio->runs, Runs::kOncePerMicrobatch);
  EXPECT_EQ(audio->min_items, 1u);
  EXPECT_EQ(audio->algorithm, "none");
  const PhaseSpec* llm = job.phase(Phase::kLlm);
  ASSERT_NE(llm, nullptr);
  EXPECT_EQ(llm->cost.linear, 0);  // one was set, so the others are 0
  EXPECT_EQ(llm->cost.quadratic, 1e-6);
  EXPECT_EQ(llm->algorithm, "karmarkar_karp");
  EXPECT_TRUE(llm->equal_counts);
  EXPECT_EQ(llm->tolerance, 0);
  const PhaseSpec* vision = job.phase(kVisionPhase);
  ASSERT_NE(vision, nullptr);
  EXPECT_THAT(vision->ranks, ElementsAre(3, 0, 1));
  EXPECT_TRUE(vision->node_wise);
  EXPECT_EQ(vision->capacity, 16384u);
  EXPECT_TRUE(vision->padded_attention);
  EXPECT_EQ(vision->batching, Batching::kPacked);
  EXPECT_EQ(vision->tolerance, std::nullopt);
  EXPECT_EQ(vision->cost(2), (1 + 4 + 12) * 1.5);
  EXPECT_EQ(job.microbatch.capacity_tokens, 1003u);
  EXPECT_EQ(job.microbatch.pad_to, 1024u);
  EXPECT_EQ(job.microbatch.count_multiple, 4u);
  EXPECT_EQ(job.limits.max_image_bytes, 1ull << 20);
  EXPECT_EQ(job.limits.max_items, 3u);
  EXPECT_EQ(job.limits.max_llm_length, 1000u);  // the capacity, rounded down to whole units of `align`
  EXPECT_THAT(job.exclude, ElementsAre("a/0.tar/x", "b/c.tar/key/with/slashes"));  // a set
  EXPECT_THAT(job.columns, ElementsAre("score", "__key__", "id"));                 // in the job's order
  EXPECT_EQ(job.limits.max_column_bytes, 200u);
}

TEST(Job, ExcludesSamplesThatNoMicrobatchOrStepCouldHold) {
  std::string yaml = kSmall;
  EXPECT_EQ(Parsed(yaml + "microbatch: {pad_to: 512}").limits.max_llm_length, 512u);
  EXPECT_EQ(Parsed(yaml + "microbatch: {pad_to: 512}").microbatch.capacity_tokens, 512u);
  EXPECT_EQ(Parsed(yaml + "microbatch: {capacity_tokens: 500, align: 64, pad_to: 512}").limits.max_llm_length,
            448u);
  EXPECT_EQ(Parsed(yaml + "limits: {max_llm_length: 100}\nmicrobatch: {pad_to: 512}").limits.max_llm_length,
            100u);
  yaml.replace(yaml.find("samples: 64"), 11, "llm_tokens: 9999");
  EXPECT_EQ(Parsed(yaml).limits.max_llm_length, 9999u);
}

TEST(Job, InterleavedSchedulesTakeWholeRoundsOfMicrobatches) {
  std::string yaml = kSmall;
  EXPECT_EQ(Parsed(yaml + "topology: {pipeline_stages: 4}").microbatch.count_multiple, 1u);
  EXPECT_EQ(Parsed(yaml + "topology: {pipeline_stages: 4, virtual_stages: 2}").microbatch.count_multiple, 4u);
}

TEST(Job, EmptySectionsAreUnset) {
  Job job = Parsed(std::string(kSmall) + "exclude:\nlimits:\nmicrobatch: ~\n");
  EXPECT_TRUE(job.exclude.empty());
  EXPECT_EQ(job.limits.max_items, 1024u);
}

TEST(Job, PathsOfAFileInTheWorkingDirectoryStayRelative) {
  Job job = Parsed(kSmall, "job.yaml");
  EXPECT_EQ(job.index, "index");
  EXPECT_EQ(job.datasets[0].shards[0], "shards/photos-000.tar");
  EXPECT_EQ(Parsed(kSmall, "/etc/job.yaml").index, "/etc/index");
}

TEST(Job, AddressesStayAsTheyAre) {
  std::string yaml = kSmall;
  yaml.replace(yaml.find("shards/photos-"), std::string("shards/photos-").size(), "s3://b//photos-");
  const Job job = Parsed(yaml +
                         "stores: [{url: 's3://b/', endpoint: 'http://minio:9000', ca_file: ca.pem, "
                         "addressing_style: virtual, allow_http: true, timeout_seconds: 2.5}]\n");
  EXPECT_EQ(job.datasets[0].shards[1], "s3://b//photos-001.tar");
  ASSERT_EQ(job.stores.size(), 1u);
  EXPECT_EQ(job.stores[0].endpoint, "http://minio:9000");
  EXPECT_EQ(job.stores[0].ca_file, "jobs/ca.pem");
  EXPECT_TRUE(job.stores[0].virtual_host && job.stores[0].allow_http && !job.stores[0].anonymous);
  EXPECT_EQ(job.stores[0].timeout_seconds, 2.5);
  EXPECT_EQ(job.stores[0].retries, 8u);
}

TEST(LoadJob, ReadsAFileAndNamesAMissingOne) {
  std::string path = testing::TempDir() + "/core_job_test.yaml";
  std::ofstream(path) << kSmall << "topology: {ranks_per_node: 2}\n";
  absl::StatusOr<uint32_t> node = NodeOfFourthVisionRank(path);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(*node, 1u);
  std::remove(path.c_str());
  EXPECT_EQ(LoadJob(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(LoadJob(path).status().message()),
              HasSubstr(path + ":1: cannot read the job file"));
  EXPECT_EQ(LoadJob(testing::TempDir()).status().code(), absl::StatusCode::kNotFound);
}

TEST(Job, TheExamplesOfTheDocumentationParse) {
  std::ifstream in(SourceDir() + "/docs/job.md");
  ASSERT_TRUE(in) << "docs/job.md";
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::string open = "```yaml\n# job.yaml\n";
  int examples = 0;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
    std::string yaml = text.substr(at + 8, text.find("```", at + 8) - at - 8);
    absl::StatusOr<Job> job = ParseJob(yaml, "job.yaml");
    EXPECT_TRUE(job.ok()) << job.status() << "\n" << yaml;
    ++examples;
  }
  EXPECT_EQ(examples, 2);
}

TEST(Job, DropInStandsForWhatKeepsItemsWithTheirSamples) {
  const std::string head =
      "index: i\ndatasets: [{name: a, shards: [a.tar]}]\nprocessor: {folder: f}\nbatch: {samples: 4}\n";
  const auto job = ParseJob(head +
                                "balance: drop_in\n"
                                "phases: [{name: llm, ranks: 0-3}, {name: vision, ranks: 0-3}, "
                                "{name: audio, ranks: 0-3, min_items: 0}]\n",
                            "job.yaml");
  const auto written =
      ParseJob(head +
                   "phases: [{name: llm, ranks: 0-3}, "
                   "{name: vision, ranks: 0-3, algorithm: none, runs: once_per_microbatch, min_items: 1}, "
                   "{name: audio, ranks: 0-3, algorithm: none, runs: once_per_microbatch}]\n",
               "job.yaml");
  ASSERT_TRUE(job.ok() && written.ok()) << job.status() << written.status();
  EXPECT_EQ(job->phases[0].algorithm, kDefaultAlgorithm);
  EXPECT_EQ(job->phases[1].algorithm, "none");
  EXPECT_EQ(LayoutDigest(*job), LayoutDigest(*written));
}

TEST(Job, WhereRanksMeetIsPartOfTheLayout) {
  const auto job = [](const std::string& more) {
    return ParseJob(
        "index: i\ndatasets: [{name: a, shards: [a.tar]}]\nprocessor: {folder: f}\nbatch: {samples: 4}\n"
        "balance: drop_in\nphases: [{name: llm, ranks: 0-3, cost: {linear: 2}}, "
        "{name: vision, ranks: 0-3, cost: {linear: 1}}]\n" +
            more,
        "job.yaml");
  };
  const auto usual = job(""), said = job("ranks_meet: every_phase\n"),
             sums = job("ranks_meet: end_of_step\n");
  ASSERT_TRUE(usual.ok() && said.ok() && sums.ok()) << usual.status() << said.status() << sums.status();
  EXPECT_TRUE(sums->phases_add_up);
  EXPECT_FALSE(said->phases_add_up);
  EXPECT_EQ(LayoutDigest(*usual), LayoutDigest(*said));
  EXPECT_NE(LayoutDigest(*usual), LayoutDigest(*sums));
}

TEST(Job, NamesAsManyEncodersAsItLikes) {
  const absl::StatusOr<Job> job = ParseJob(R"(
index: index
datasets: [{name: a, shards: [a.tar]}]
processor: {vision: v, folder: f}
batch: {samples: 4}
phases:
  - {name: ears, ranks: 0-1, media: [audio]}
  - {name: dino, ranks: 0-1, media: [image], processor: d}
  - {name: llm, ranks: 0-1}
  - {name: vision, ranks: 2-3}
  - {name: omni, ranks: 0-1, media: [audio, video]}
)",
                                           "jobs/job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<std::string> phases;
  for (const PhaseSpec& spec : job->phases) {
    EXPECT_EQ(spec.phase.number(), phases.size());
    phases.push_back(std::string(spec.phase.name()) + ":" + MediaNames(spec.phase));
  }
  EXPECT_THAT(phases,
              ElementsAre("llm:", "dino:image", "vision:image,video", "omni:video,audio", "ears:audio"));
  std::vector<std::string> folders;
  for (const EncoderSpec& encoder : job->processor.encoders) folders.push_back(encoder.folder);
  EXPECT_THAT(folders, ElementsAre("jobs/d", "jobs/v", "jobs/f", "jobs/f"));
  EXPECT_EQ(job->TowerOf(job->FindPhase("vision")->phase, Medium::kImage), 1);
  EXPECT_EQ(job->TowerOf(job->FindPhase("vision")->phase, Medium::kVideo), 0);
  EXPECT_EQ(job->TowerOf(job->FindPhase("ears")->phase, Medium::kAudio), 1);
  EXPECT_EQ(job->FindPhase("audio"), nullptr);
  const std::string layout = LayoutCanonicalText(*job);
  EXPECT_NE(layout.find("phase.name=dino\nphase.media=image\n"), std::string::npos) << layout;
  EXPECT_EQ(layout.find("phase.name=vision\nphase.media"), std::string::npos) << layout;
}

TEST(Job, AGeneratorFollowsTheEncodersOfItsMedia) {
  const std::string before = R"(
index: index
datasets: [{name: a, shards: [a.tar]}]
processor: {folder: f}
batch: {samples: 4}
phases:
  - {name: llm, ranks: 0-1}
)";
  const std::string rest = "  - {name: audio, ranks: 0-1}\n  - {name: vision, ranks: 0-1}\n";
  const std::string draw = "  - {name: draw, ranks: 0-1, kind: generator, media: [image], processor: d}\n";
  const Job job = Parsed(before + draw + rest), without = Parsed(before + rest);
  ASSERT_EQ(job.phases.size(), 4u);
  const Phase& phase = job.phases[3].phase;
  EXPECT_EQ(phase.name(), "draw");
  EXPECT_TRUE(phase.is_generator());
  EXPECT_EQ(job.TowerOf(phase, Medium::kImage), kTargetTower);
  EXPECT_EQ(job.TowerOf(job.phases[1].phase, Medium::kImage), 0);
  EXPECT_EQ(job.processor.encoders.back().folder, "jobs/d");
  EXPECT_NE(LayoutCanonicalText(job).find("phase.media=image\nphase.kind=generator\n"), std::string::npos);
  EXPECT_EQ(LayoutCanonicalText(without).find("phase.kind"), std::string::npos);
  const Job said =
      Parsed(before + "  - {name: audio, ranks: 0-1, kind: encoder}\n  - {name: vision, ranks: 0-1}\n");
  EXPECT_EQ(LayoutDigest(said), LayoutDigest(without));
}

}  // namespace
}  // namespace evenkeel
