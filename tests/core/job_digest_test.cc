// The texts and vectors of docs/digests.md, and the claim that each field counts in exactly one digest.
#include <set>
#include <string>
#include <vector>

#include "core/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr char kJob[] = R"(
seed: 7
index: ./index
datasets:
  - {name: photos, shards: [a.tar]}
  - {name: speech, shards: [b.tar], weight: 0.5}
processor: {folder: ./qwen2-vl, chat: chatml, system: "Be\nterse."}
batch: {samples: 64}
topology: {ranks_per_node: 8}
phases:
  - {name: llm, ranks: 0-3}
  - {name: vision, ranks: "0-3,8"}
exclude: [photos/a.tar/17]
)";

Job Parsed(const std::string& yaml, const std::string& path = "job.yaml") {
  absl::StatusOr<Job> job = ParseJob(yaml, path);
  EXPECT_TRUE(job.ok()) << job.status() << yaml;
  return job.ok() ? *std::move(job) : Job{};
}

Digest Stream(const Job& job) { return StreamDigest(job, DigestOf("index"), DigestOf("processor")); }

TEST(StreamDigest, HasTheDocumentedTextAndVector) {
  Job job = Parsed(kJob);
  EXPECT_EQ(StreamCanonicalText(job, DigestOf("index"), DigestOf("processor")), R"(evenkeel stream
stream_version=4
index=801d9f0bdea1c760ce2022399b066389
processor=ff6b69bd2466e7b5d1ca4fbace4801ba
seed=7
dataset.name=photos
dataset.weight=0x1p+0
dataset.name=speech
dataset.weight=0x1p-1
batch.samples=64
batch.llm_tokens=0
batch.window_samples=4096
order.shuffle=full
order.block_samples=1024
order.window_blocks=64
processor.chat=chatml
processor.system=Be\nterse.
processor.like=transformers-5.23
processor.min_pixels=0
processor.max_pixels=0
processor.fps=0x1p+1
processor.min_frames=4
processor.max_frames=768
processor.video_min_pixels=100352
processor.video_max_pixels=602112
processor.frames=torchcodec
limits.max_image_bytes=67108864
limits.max_audio_bytes=536870912
limits.max_video_bytes=4294967296
limits.max_text_bytes=16777216
limits.max_image_pixels=89478485
limits.max_image_side=16384
limits.max_jpeg_scans=256
limits.max_decode_ratio=1000
limits.max_video_pixels=33554432
limits.max_video_frames=100000
limits.max_streams=16
limits.max_audio_seconds=3600
limits.max_llm_length=131072
limits.max_json_depth=64
limits.max_items=1024
exclude=photos/a.tar/17
)");
  EXPECT_EQ(Stream(job).Hex(), "df7671cf1bc8f3f78eb6de84fb7d50fb");
  EXPECT_EQ(Stream(job), DigestOf(StreamCanonicalText(job, DigestOf("index"), DigestOf("processor"))));
}

TEST(LayoutDigest, HasTheDocumentedTextAndVector) {
  Job job = Parsed(kJob);
  EXPECT_EQ(LayoutCanonicalText(job), R"(evenkeel layout
topology.ranks_per_node=8
topology.pipeline_stages=1
topology.virtual_stages=1
phase.name=llm
phase.ranks=0,1,2,3
phase.cost.constant=0x0p+0
phase.cost.linear=0x1p+0
phase.cost.quadratic=0x0p+0
phase.cost.mask_factor=0x0p+0
phase.batching=packed
phase.runs=once_per_step
phase.algorithm=balance_without_moving
phase.min_items=0
phase.name=vision
phase.ranks=0,1,2,3,8
phase.cost.constant=0x0p+0
phase.cost.linear=0x1p+0
phase.cost.quadratic=0x0p+0
phase.cost.mask_factor=0x0p+0
phase.batching=packed
phase.runs=once_per_step
phase.algorithm=balance_without_moving
phase.min_items=0
microbatch.capacity_tokens=0
microbatch.pad_to=0
microbatch.align=1
microbatch.count_multiple=1
wire=u8
)");
  EXPECT_EQ(LayoutDigest(job).Hex(), "b02b73e940add56f509c91d0313357ec");
}

TEST(StreamDigest, DependsOnIndexAndProcessorFiles) {
  Job job = Parsed(kJob);
  EXPECT_NE(Stream(job), StreamDigest(job, DigestOf("other"), DigestOf("processor")));
  EXPECT_NE(Stream(job), StreamDigest(job, DigestOf("index"), DigestOf("other")));
}

TEST(Digests, DoNotDependOnWhereFilesLieOrOnNotation) {
  Job job = Parsed(kJob);
  std::string yaml = std::string(kJob) + "name: renamed\nlimits: {max_image_bytes: 64MiB}\n";
  yaml.replace(yaml.find("b.tar"), 5, "elsewhere/c.tar");
  yaml.replace(yaml.find("./index"), 7, "/somewhere");
  yaml.replace(yaml.find("./qwen2-vl"), 10, "/models/q");
  yaml.replace(yaml.find("ranks: 0-3}"), 11, "ranks: \"0,1,2-3\"}");
  Job other = Parsed(yaml, "/another/folder/j.yaml");
  EXPECT_EQ(Stream(other), Stream(job));
  EXPECT_EQ(LayoutDigest(other), LayoutDigest(job));
}

struct Change {
  std::string from;  // empty: `to` is appended
  std::string to;
};

std::string Changed(const Change& change) {
  std::string yaml = kJob;
  if (change.from.empty()) return yaml + change.to + "\n";
  return yaml.replace(yaml.find(change.from), change.from.size(), change.to);
}

TEST(Digests, WhatDecidesTheSamplesChangesTheStreamOnly) {
  Job job = Parsed(kJob);
  const std::vector<Change> changes = {
      {"seed: 7", "seed: 8"},
      {"samples: 64", "samples: 65"},
      {"samples: 64", "llm_tokens: 640000"},
      {"weight: 0.5", "weight: 0.25"},
      {"name: speech", "name: talk"},
      {"terse", "brief"},
      {"chat: chatml", "chat: plain"},
      {"chat: chatml", "chat: template"},
      {"chat: chatml", "labels: all"},
      {"chat: chatml", "labels: last_assistant"},
      {"chat: chatml", "labels: data, loss_weights: data"},
      {"chat: chatml", "date: 2026-11-24"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, added_tokens: [a]"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, max_pixels: 1m"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, min_pixels: 1k"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, fps: 1"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, min_frames: 6"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, max_frames: 6"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, video_min_pixels: 6"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, video_max_pixels: 1m"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, frame_rule: uniform"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, video_rotation: ignore"},
      {"folder: ./qwen2-vl", "folder: ./qwen2-vl, frames: accurate"},
      {"photos/a.tar/17", "photos/a.tar/18"},
      {"", "order: {shuffle: blocked}"},
      {"", "order: {shuffle: none}"},
      {"", "limits: {max_image_bytes: 1}"},
      {"", "limits: {max_audio_bytes: 1}"},
      {"", "limits: {max_video_bytes: 1}"},
      {"", "limits: {max_text_bytes: 1}"},
      {"", "limits: {max_image_pixels: 1}"},
      {"", "limits: {max_image_side: 1}"},
      {"", "limits: {max_jpeg_scans: 1}"},
      {"", "limits: {max_decode_ratio: 1}"},
      {"", "limits: {max_video_pixels: 1}"},
      {"", "limits: {max_video_frames: 1}"},
      {"", "limits: {max_streams: 1}"},
      {"", "limits: {max_audio_seconds: 1}"},
      {"", "limits: {max_llm_length: 1}"},
      {"", "limits: {max_json_depth: 1}"},
      {"", "limits: {max_items: 1}"},
      {"", "limits: {max_jpeg_coefficient_bytes: 1}"},
      {"", "columns: [id]"},
  };
  for (const Change& change : changes) {
    Job other = Parsed(Changed(change));
    EXPECT_NE(Stream(other), Stream(job)) << change.to;
    EXPECT_EQ(LayoutDigest(other), LayoutDigest(job)) << change.to;
  }
}

TEST(Digests, BinsCountWithTheirCapacitiesInAnyOrder) {
  const auto packed = [](const std::string& keys) {
    return Parsed(
        Changed({"samples: 64", "pack: {bins: 24, capacities: [{phase: llm, length: 8192}" + keys + "}"}));
  };
  const Job job = packed(", {phase: vision, length: 4096}]");
  EXPECT_NE(Stream(packed("]")), Stream(job));
  EXPECT_NE(Stream(packed(", {phase: vision, length: 4097}]")), Stream(job));
  EXPECT_NE(Stream(packed(", {phase: vision, length: 4096}], algorithm: omnibal")), Stream(job));
  const Job turned = Parsed(Changed({"samples: 64",
                                     "pack: {bins: 24, capacities: [{phase: vision, length: 4096}, "
                                     "{phase: llm, length: 8192}]}"}));
  EXPECT_EQ(Stream(turned), Stream(job));
  EXPECT_EQ(turned.limits.max_llm_length, 8192u);
  EXPECT_EQ(turned.batch.window_samples, 65536u);
  EXPECT_NE(StreamCanonicalText(job, {}, {})
                .find("batch.pack.bins=24\nbatch.pack.algorithm=even_fill\n"
                      "batch.pack.capacity.phase=llm\n"),
            std::string::npos)
      << StreamCanonicalText(job, {}, {});
}

TEST(Digests, ChunksCountWithTheirLengthAndNumber) {
  const auto chunked = [](const std::string& keys) {
    std::string yaml = Changed({"samples: 64", "chunk: {" + keys + "}"});
    const std::string vision = "  - {name: vision, ranks: \"0-3,8\"}\n";
    return Parsed(yaml.erase(yaml.find(vision), vision.size()));
  };
  const Job job = chunked("length: 8192, count: 8");
  EXPECT_NE(Stream(chunked("length: 8191, count: 8")), Stream(job));
  EXPECT_NE(Stream(chunked("length: 8192, count: 12")), Stream(job));
  EXPECT_EQ(job.limits.max_llm_length, 131072u);
  EXPECT_NE(StreamCanonicalText(job, {}, {}).find("batch.chunk.length=8192\nbatch.chunk.count=8\n"),
            std::string::npos);
}

TEST(Digests, ColumnsCountWithTheirOrderAndTheirRoom) {
  const std::vector<Change> changes = {{"", "columns: [id, source]"},
                                       {"", "columns: [source, id]"},
                                       {"", "columns: [id, source]\nlimits: {max_column_bytes: 100}"}};
  std::set<std::string> digests;
  for (const Change& change : changes) digests.insert(Stream(Parsed(Changed(change))).Hex());
  EXPECT_EQ(digests.size(), changes.size());
  EXPECT_EQ(Stream(Parsed(Changed({"", "limits: {max_column_bytes: 100}"}))), Stream(Parsed(kJob)))
      << "no column has that room";
}

TEST(Digests, WhatDealsThemOutChangesTheLayoutOnly) {
  Job job = Parsed(kJob);
  const std::vector<Change> changes = {
      {"ranks_per_node: 8", "ranks_per_node: 4"},
      {"ranks_per_node: 8", "ranks_per_node: 8, pipeline_stages: 2"},
      {"ranks: 0-3}", "ranks: 0-7}"},
      {"ranks: 0-3}", "ranks: \"3,2,1,0\"}"},
      {"ranks: 0-3}", "ranks: 0-3, cost: {linear: 2}}"},
      {"ranks: 0-3}", "ranks: 0-3, cost: {linear: 1, constant: 1}}"},
      {"ranks: 0-3}", "ranks: 0-3, cost: {linear: 1, quadratic: 1}}"},
      {"ranks: 0-3}", "ranks: 0-3, cost: {linear: 1, mask_factor: 1}}"},
      {"ranks: 0-3}", "ranks: 0-3, batching: padded}"},
      {"ranks: 0-3}", "ranks: 0-3, algorithm: none}"},
      {"\"0-3,8\"}", "\"0-3,8\", runs: once_per_microbatch}"},
      {"\"0-3,8\"}", "\"0-3,8\", min_items: 1}"},
      {"\"0-3,8\"}", "\"0-3,8\", node_wise: true}"},
      {"\"0-3,8\"}", "\"0-3,8\", capacity: 65536}"},
      {"ranks: 0-3}", "ranks: 0-3, equal_counts: true}"},
      {"ranks: 0-3}", "ranks: 0-3, tolerance: 0}"},
      {"ranks: 0-3}", "ranks: 0-3, batching: padded_attention}"},
      {"", "  - {name: audio, ranks: 0}"},
      {"", "microbatch: {capacity_tokens: 200000}"},
      {"", "microbatch: {pad_to: 200000}"},
      {"", "microbatch: {align: 2}"},
      {"", "microbatch: {count_multiple: 2}"},
      {"", "wire: f32"},
  };
  for (const Change& change : changes) {
    std::string yaml = Changed(change);
    if (change.to.starts_with("  - {name: audio")) {
      yaml = kJob;
      yaml.insert(yaml.find("exclude:"), change.to + "\n");
    }
    Job other = Parsed(yaml);
    EXPECT_EQ(Stream(other), Stream(job)) << change.to;
    EXPECT_NE(LayoutDigest(other), LayoutDigest(job)) << change.to;
  }
}

TEST(Digests, OrderOfDatasetsCountsAndOrderOfExclusionsDoesNot) {
  std::string yaml = kJob;
  yaml.replace(yaml.find("[photos/a.tar/17]"), 17, "[speech/b.tar/1, photos/a.tar/17]");
  std::string swapped = kJob;
  swapped.replace(swapped.find("[photos/a.tar/17]"), 17,
                  "[photos/a.tar/17, speech/b.tar/1, photos/a.tar/17]");
  EXPECT_EQ(Stream(Parsed(yaml)), Stream(Parsed(swapped)));
  Job job = Parsed(kJob);
  std::swap(job.datasets[0], job.datasets[1]);
  EXPECT_NE(Stream(job), Stream(Parsed(kJob)));
}

}  // namespace
}  // namespace evenkeel
