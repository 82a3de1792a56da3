// Every way to write a job wrong, and the exact words of the answer.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/job.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

// Line numbers below are those of the lines of this job; `Replaced` keeps them.
constexpr char kGood[] =
    "seed: 7\n"                                         // 1
    "index: ./index\n"                                  // 2
    "datasets:\n"                                       // 3
    "  - {name: photos, shards: [a.tar], weight: 1}\n"  // 4
    "  - {name: speech, shards: [b.tar]}\n"             // 5
    "processor: {folder: ./qwen2-vl}\n"                 // 6
    "batch: {samples: 64}\n"                            // 7
    "phases:\n"                                         // 8
    "  - {name: llm, ranks: 0-7}\n"                     // 9
    "  - name: vision\n"                                // 10
    "    ranks: 0-7\n";                                 // 11, more may follow on 12

struct Case {
  std::string from;  // a piece of kGood; empty: `to` is appended
  std::string to;
  std::string message;
};

std::string Replaced(const Case& c) {
  std::string yaml = kGood;
  if (c.from.empty()) return yaml + c.to;
  size_t at = yaml.find(c.from);
  EXPECT_NE(at, std::string::npos) << c.from;
  return yaml.replace(at, c.from.size(), c.to);
}

void ExpectMessages(const std::vector<Case>& cases) {
  ASSERT_TRUE(ParseJob(kGood, "job.yaml").ok()) << ParseJob(kGood, "job.yaml").status();
  for (const Case& c : cases) {
    absl::StatusOr<Job> job = ParseJob(Replaced(c), "job.yaml");
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_EQ(std::string(job.status().message()), c.message);
  }
}

TEST(JobErrors, AddressesAndStoresAreChecked) {
  const std::string shards = "job.yaml:4: datasets[0].shards[0]: ";
  ExpectMessages({
      {"a.tar", "ftp://a.tar",
       shards + "'ftp://' is not one of s3://, gs://, az://, hf://, https://, http://"},
      {"a.tar", "hf://a.tar", shards + "'hf://a.tar' is not hf://datasets/OWNER/NAME@REVISION/FILE"},
      {"[a.tar]", "['https://me:word@host/a.tar']",
       shards + "an address with a user name or password; give credentials by the environment"},
      {"[a.tar]", "['https://host/a.tar?sign=1']",
       shards + "an address with a query; only addresses of plain files are read"},
      {"[a.tar]", "['s3:///a.tar']", shards + "'s3:///a.tar': no bucket"},
      {"", "stores: [{region: a}]",
       "job.yaml:12: stores[0].url: missing; give the start of addresses: s3://, s3://bucket/"},
      {"", "stores: [{url: 's3://'}, {url: 's3://'}]", "job.yaml:12: stores[1].url: 's3://' is listed twice"},
      {"", "stores: [{url: 's3://', endpoint: 'minio:9000'}]",
       "job.yaml:12: stores[0].endpoint: 'minio:9000' does not begin with https:// or http://"},
      {"", "stores: [{url: 's3://', addressing_style: auto}]",
       "job.yaml:12: stores[0].addressing_style: 'auto' is not one of path, virtual"},
      {"", "stores: [{url: 's3://', timeout_seconds: 0}]",
       "job.yaml:12: stores[0].timeout_seconds: must be from 0.1 to 600, is 0"},
      {"", "stores: [{url: 's3://', retries: 101}]",
       "job.yaml:12: stores[0].retries: must be at most 100, is 101"},
  });
}

TEST(JobErrors, RepeatStandsAloneAndForAll) {
  ExpectMessages({
      {"weight: 1", "weight: 1, repeat: 2",
       "job.yaml:4: datasets[0].repeat: contradicts weight; give one of the two"},
      {"weight: 1", "weights: [{from_draw: 0, weight: 1}], repeat: 2",
       "job.yaml:4: datasets[0].repeat: contradicts weights; give one of the two"},
      {"weight: 1", "repeat: -1", "job.yaml:4: datasets[0].repeat: must not be negative"},
      {"weight: 1", "repeat: 2",
       "job.yaml:5: datasets[1].repeat: missing; give it to all datasets of the job or to none"},
  });
}

TEST(JobErrors, MaxEpochsAreAboveZero) {
  const auto expected = [](const std::string& is) {
    return "job.yaml:4: datasets[0].max_epochs: must be above 0 and at most 1048576, is " + is +
           "; leave it out for a dataset without an end";
  };
  ExpectMessages({{"weight: 1", "weight: 1, max_epochs: 0", expected("0")},
                  {"weight: 1", "weight: 1, max_epochs: -2", expected("-2")},
                  {"weight: 1", "weight: 1, max_epochs: 2e6", expected("2e+06")}});
}

TEST(JobErrors, WeightsChangeInOrder) {
  const auto weights = [](const std::string& list) { return "weights: [" + list + "]"; };
  ExpectMessages({
      {"weight: 1", "weight: 1, " + weights("{from_step: 0, weight: 1}"),
       "job.yaml:4: datasets[0].weights: contradicts weight; give one of the two"},
      {"weight: 1", weights("{weight: 1}"),
       "job.yaml:4: datasets[0].weights[0]: give from_step or from_draw, one of the two"},
      {"weight: 1", weights("{from_step: 0, from_draw: 0, weight: 1}"),
       "job.yaml:4: datasets[0].weights[0]: give from_step or from_draw, one of the two"},
      {"weight: 1", weights("{from_step: 0}"), "job.yaml:4: datasets[0].weights[0].weight: missing"},
      {"weight: 1", weights("{from_step: 0, weight: -1}"),
       "job.yaml:4: datasets[0].weights[0].weight: must not be negative"},
      {"weight: 1",
       weights("{from_step: 0, weight: 1}, {from_draw: 64, weight: 2}, {from_step: 1, weight: 1}"),
       "job.yaml:4: datasets[0].weights[2]: must be after the change before it"},
      {"weight: 1", weights("{from_step: 4611686018427387904, weight: 1}"),
       "job.yaml:4: datasets[0].weights[0]: beyond draw 2^62"},
  });
}

TEST(JobErrors, ConditionsNeedBounds) {
  const auto where = [](const std::string& condition) { return "where: {" + condition + "}, weight: 1"; };
  const std::string form = "' is not A..B, A.., ..B or A with numbers from 0 up";
  ExpectMessages({
      {"weight: 1", where("images: many"), "job.yaml:4: datasets[0].where.images: 'many" + form},
      {"weight: 1", where("images: '..'"), "job.yaml:4: datasets[0].where.images: '.." + form},
      {"weight: 1", where("short_side: -1.."), "job.yaml:4: datasets[0].where.short_side: '-1.." + form},
      {"weight: 1", where("audio_seconds: ..inf"),
       "job.yaml:4: datasets[0].where.audio_seconds: '..inf" + form},
      {"weight: 1", where("llm_tokens: 9..8"),
       "job.yaml:4: datasets[0].where.llm_tokens: '9..8' has no number in it"},
      {"weight: 1", where("seconds: 1"),
       "job.yaml:4: unknown key 'seconds' in datasets[0].where; nearest is 'images'"},
  });
}

TEST(JobErrors, SplitsHaveNamesAndShares) {
  ExpectMessages({
      {"", "splits: [{share: 0.5}]", "job.yaml:12: splits[0].name: missing"},
      {"", "splits: [{name: a}]", "job.yaml:12: splits[0].share: must be above 0 and at most 1, is 0"},
      {"", "splits: [{name: a, share: 0.5}, {name: a, share: 0.5}]",
       "job.yaml:12: splits[1].name: two splits are named 'a'"},
      {"", "splits: [{name: a, share: 0.5}, {name: b, share: 0.6}]",
       "job.yaml:12: splits[1].share: with this one the shares are 1.1, more than 1"},
      {"", "splits: [{name: train, share: 0.5}]\nsplit: trian",
       "job.yaml:13: split: there is no split 'trian'; nearest is 'train'"},
      {"", "split: train", "job.yaml:12: split: 'train': the job has no splits"},
      {"", "split_seed: 3", "job.yaml:12: split_seed: belongs to splits"},
  });
}

TEST(JobErrors, DropInRefusesWhatWouldMoveItems) {
  const std::string items =
      " contradicts balance: drop_in, which keeps items with their samples; remove one of the two";
  const auto drop_in = [](const std::string& of_vision) {
    return "    ranks: 0-7\n" + of_vision + "balance: drop_in\n";
  };
  ExpectMessages({
      {"    ranks: 0-7\n", drop_in("    algorithm: greedy_packed\n"),
       "job.yaml:12: phases[1].algorithm:" + items},
      {"    ranks: 0-7\n", drop_in("    runs: once_per_step\n"), "job.yaml:12: phases[1].runs:" + items},
      {"    ranks: 0-7\n", drop_in("    tolerance: 0.1\n"), "job.yaml:12: phases[1].tolerance:" + items},
      {"    ranks: 0-7\n", drop_in("    equal_counts: true\n"),
       "job.yaml:12: phases[1].equal_counts:" + items},
      {"    ranks: 0-7\n", drop_in("    node_wise: true\n"), "job.yaml:12: phases[1].node_wise:" + items},
      {"    ranks: 0-7\n", "    ranks: 0-3\nbalance: drop_in\n",
       "job.yaml:11: phases[1].ranks: differ from the llm's; with balance: drop_in every phase runs on the "
       "llm's "
       "ranks, in its order"},
      {"phases:\n  - {name: llm, ranks: 0-7}",
       "balance: drop_in\nphases:\n  - {name: llm, ranks: 0-7, algorithm: karmarkar_karp}",
       "job.yaml:10: phases[0].algorithm: contradicts balance: drop_in, which places samples with all phases "
       "considered; remove one of the two"},
      {"seed: 7", "balance: drop", "job.yaml:1: balance: 'drop' is not one of move_excess, drop_in"},
  });
}

TEST(JobErrors, SumsOfPhasesNeedDropInAndCosts) {
  const std::string rest = "    ranks: 0-7\nranks_meet: end_of_step\n";
  ExpectMessages({
      {"    ranks: 0-7\n", rest,
       "job.yaml:12: ranks_meet: end_of_step needs balance: drop_in and no pipeline, since ranks that "
       "exchange rows or "
       "activations meet before the end of a step; leave it out, or set balance: drop_in"},
      {"    ranks: 0-7\n", rest + "balance: drop_in\n",
       "job.yaml:9: phases[0].cost: missing; ranks_meet: end_of_step adds the costs of all phases, so each "
       "needs one in "
       "the same unit, such as seconds or FLOPs"},
      {"seed: 7", "ranks_meet: never",
       "job.yaml:1: ranks_meet: 'never' is not one of every_phase, end_of_step"},
  });
}

TEST(JobErrors, PackedBinsFitThePhases) {
  const std::string path = "job.yaml:7: batch.pack";
  const auto pack = [](const std::string& keys) { return absl::StrCat("batch: {pack: {", keys, "}}"); };
  const std::string llm = "capacities: [{phase: llm, length: 8192}]";
  const std::string batch = "batch: {samples: 64}";
  ExpectMessages({
      {batch, pack(llm), path + ".bins: must be from 1 to 16777216, is 0"},
      {batch, pack("bins: 12, " + llm),
       path + ".bins: 12 is not a multiple of 8: every one of the llm's 8 ranks takes as many bins"},
      {batch, pack("bins: 8"),
       path + ".capacities: none of the llm; give {phase: llm, length: N}, the tokens of a microbatch"},
      {batch, pack("bins: 8, capacities: [{phase: llm}]"),
       path + ".capacities[0].length: must be from 1 to 1099511627776, is 0"},
      {batch, pack("bins: 8, capacities: [{phase: llm, length: 9}, {phase: llm, length: 8}]"),
       path + ".capacities[1].phase: phase 'llm' has two capacities"},
      {batch, pack("bins: 8, capacities: [{phase: vison, length: 9}]"),
       path + ".capacities: there is no phase 'vison'; nearest is 'vision'"},
      {batch, "batch: {samples: 64, pack: {bins: 8}}",
       "job.yaml:7: batch: 'samples' and 'pack' exclude each other"},
  });
}

TEST(JobErrors, ChunksAreOfTextsAloneAndFitTheRanks) {
  const std::string path = "job.yaml:7: batch.chunk", batch = "batch: {samples: 64}";
  const auto chunk = [](const std::string& keys) { return absl::StrCat("batch: {chunk: {", keys, "}}"); };
  ExpectMessages({
      {batch, chunk("count: 8"), path + ".length: must be from 1 to 1073741824, is 0"},
      {batch, chunk("length: 8"), path + ".count: must be from 1 to 16777216, is 0"},
      {batch, chunk("length: 1073741824, count: 8192"),
       path + ": 8192 chunks of 1073741824 tokens are more than 1099511627776 tokens a step"},
      {batch, chunk("length: 8192, count: 8"),
       path + ": cuts texts alone, and the job has the phase 'vision'; leave it out, or use batch.pack"},
      {batch, "batch: {samples: 64, chunk: {length: 8}}",
       "job.yaml:7: batch: 'samples' and 'chunk' exclude each other"},
  });
}

TEST(JobErrors, UnknownKeysNameTheNearest) {
  ExpectMessages({
      {"datasets:", "datset:", "job.yaml:3: unknown key 'datset' in job; nearest is 'datasets'"},
      {"seed: 7", "Seed: 7", "job.yaml:1: unknown key 'Seed' in job; nearest is 'seed'"},
      {"weight: 1", "wieght: 1", "job.yaml:4: unknown key 'wieght' in datasets[0]; nearest is 'weight'"},
      {"samples: 64", "sample: 64", "job.yaml:7: unknown key 'sample' in batch; nearest is 'samples'"},
      {"", "    cost: {lineal: 1}",
       "job.yaml:12: unknown key 'lineal' in phases[1].cost; nearest is 'linear'"},
      {"", "limits:\n  max_image_byte: 1",
       "job.yaml:13: unknown key 'max_image_byte' in limits; nearest is 'max_image_bytes'"},
      {"seed: 7", "\"\": 7", "job.yaml:1: unknown key '' in job; nearest is 'name'"},
  });
}

TEST(JobErrors, WrongTypesSayWhatWasFound) {
  ExpectMessages({
      {"seed: 7", "seed: seven",
       "job.yaml:1: seed: expected a whole number of at most 64 bits, found 'seven'"},
      {"seed: 7", "seed: -7", "job.yaml:1: seed: expected a whole number of at most 64 bits, found '-7'"},
      {"seed: 7", "seed: 1.5", "job.yaml:1: seed: expected a whole number of at most 64 bits, found '1.5'"},
      {"seed: 7", "seed: 18446744073709551616",
       "job.yaml:1: seed: expected a whole number of at most 64 bits, found '18446744073709551616'"},
      {"seed: 7", "seed: 0777", "job.yaml:1: seed: expected a whole number of at most 64 bits, found '0777'"},
      {"seed: 7", "seed: '7'", "job.yaml:1: seed: expected a whole number, found the text '7'"},
      {"seed: 7", "seed:", "job.yaml:1: seed: expected a whole number, found nothing"},
      {"seed: 7", "seed: [7]", "job.yaml:1: seed: expected a whole number, found a list"},
      {"index: ./index", "index: {a: b}", "job.yaml:2: index: expected a text, found keys and values"},
      {"index: ./index", "index: ~", "job.yaml:2: index: expected a text, found nothing"},
      {"index: ./index", "index: \"a\\0b\"", "job.yaml:2: index: a text must not contain NUL"},
      {"[a.tar]", "a.tar", "job.yaml:4: datasets[0].shards: expected a list, found 'a.tar'"},
      {"[a.tar]", "[[a.tar]]", "job.yaml:4: datasets[0].shards[0]: expected a text, found a list"},
      {"weight: 1", "weight: heavy",
       "job.yaml:4: datasets[0].weight: expected a finite number, found 'heavy'"},
      {"weight: 1", "weight: .nan", "job.yaml:4: datasets[0].weight: expected a finite number, found '.nan'"},
      {"weight: 1", "weight: nan", "job.yaml:4: datasets[0].weight: expected a finite number, found 'nan'"},
      {"weight: 1", "weight: inf", "job.yaml:4: datasets[0].weight: expected a finite number, found 'inf'"},
      {"weight: 1", "weight: 1e999",
       "job.yaml:4: datasets[0].weight: expected a finite number, found '1e999'"},
      {"{samples: 64}", "64", "job.yaml:7: batch: expected keys and values, found '64'"},
      {"{samples: 64}", "{samples: 64MiB}",
       "job.yaml:7: batch.samples: expected a whole number of at most 64 bits, found '64MiB'"},
      {"", "limits: {max_image_bytes: 1TiB}",
       "job.yaml:12: limits.max_image_bytes: expected a whole number of at most 64 bits (KiB, MiB, GiB, k "
       "and m may "
       "follow it), found '1TiB'"},
      {"", "topology: {ranks_per_node: 4294967296}",
       "job.yaml:12: topology.ranks_per_node: 4294967296 is too large; at most 4294967295"},
      {"ranks: 0-7}", "ranks: [0, 1]}", "job.yaml:9: phases[0].ranks: expected a text, found a list"},
  });
}

TEST(JobErrors, YamlIsOnePlainDocument) {
  ExpectMessages({
      {"index: ./index", "seed: 8", "job.yaml:2: key 'seed' was already given on line 1"},
      {"weight: 1", "name: again", "job.yaml:4: key 'name' was already given on line 4"},
      {"seed: 7", "seed: &s 7", "job.yaml:1: anchor 's': anchors and aliases are not supported"},
      {"seed: 7", "seed: *s", "job.yaml:1: the referenced anchor is not defined"},
      {"seed: 7", "seed: !!int 7", "job.yaml:1: tags are not supported"},
      {"seed: 7", "? [a, b]\n: 7", "job.yaml:1: a key must be a text"},
      {"seed: 7", "~: 7", "job.yaml:1: a key must be a text"},
      {"", "---\nseed: 8\n", "job.yaml:12: a second document; a job is one"},
      {"[a.tar]", "[a.tar", "job.yaml:4: illegal flow end"},
      {"index: ./index", "index: a\xff", "job.yaml:2: byte 16 of the file is a NUL or not UTF-8"},
  });
}

TEST(JobErrors, FilesThatAreNoJob) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "f:1: the file is empty"},
      {"# only a comment\n", "f:1: the file is empty"},
      {"---\n", "f:1: the file is empty"},
      {"- a\n- b\n", "f:1: expected keys and values, found a list"},
      {"hello", "f:1: expected keys and values, found 'hello'"},
      {std::string("a\0b", 3), "f:1: byte 1 of the file is a NUL or not UTF-8"},
      {std::string(33, '[') + std::string(33, ']'), "f:1: nested deeper than 32"},
      {std::string((1 << 20) + 1, ' '), "f:1: 1048577 bytes; at most 1048576 are read"},
  };
  for (const auto& [yaml, message] : cases) {
    EXPECT_EQ(std::string(ParseJob(yaml, "f").status().message()), message);
  }
}

TEST(JobErrors, HugeFilesAreRefusedBeforeTheyTakeMemory) {
  for (const std::string& unit :
       {std::string("["), std::string("{a: "), std::string("- "), std::string("? ")}) {
    std::string yaml;
    while (yaml.size() < 100000) yaml += unit;
    EXPECT_EQ(ParseJob(yaml, "f").status().code(), absl::StatusCode::kInvalidArgument) << unit;
  }
  std::string many = "exclude: [";
  for (int i = 0; i < 200001; ++i) many += "a,";
  EXPECT_EQ(std::string(ParseJob(many + "]", "f").status().message()), "f:1: more than 200000 values");
  std::string keys;
  for (int i = 0; i < 101; ++i) absl::StrAppend(&keys, "k", i, ": 1\n");
  EXPECT_EQ(std::string(ParseJob(keys, "f").status().message()), "f:101: more than 100 keys");
}

TEST(JobErrors, DatasetsAreNamedWeighedAndNotEmpty) {
  ExpectMessages({
      {"name: photos, ", "", "job.yaml:4: datasets[0].name: missing; error messages and exclude need it"},
      {"name: photos", "name: a/b",
       "job.yaml:4: datasets[0].name: 'a/b' must not contain '/' or a line break"},
      {"name: speech", "name: photos", "job.yaml:5: datasets[1].name: two datasets are named 'photos'"},
      {"weight: 1", "weight: -1", "job.yaml:4: datasets[0].weight: must not be negative"},
      {"[b.tar]", "[]", "job.yaml:5: datasets[1].shards: missing; give at least one shard"},
      {"[b.tar]", "['']", "job.yaml:5: datasets[1].shards[0]: an empty path"},
      {"[b.tar]", "[c.tar, ./c.tar]", "job.yaml:5: datasets[1].shards: 'c.tar' is listed twice"},
      {"[b.tar]", "[b.tar, b.jsonl]",
       "job.yaml:5: datasets[1].shards: 'b.jsonl' looks like json, the first shard like webdataset; make two "
       "datasets, or give format"},
      {"[b.tar]", "[b], format: tar",
       "job.yaml:5: datasets[1].format: 'tar' is not one of webdataset, json, parquet, mds, text, megatron"},
      {"[b.tar]", "[b.idx]",
       "job.yaml:5: datasets[1].shards: 'b.idx' does not end in .bin; of the format megatron give X.bin, "
       "uncompressed, next to which X.idx is"},
      {"[b.tar]", "[b.tar], media: m",
       "job.yaml:5: datasets[1].media: belongs to the formats json, parquet and mds; the format is "
       "webdataset"},
      {"[b.tar]", "[b.txt], fields: {text: t}",
       "job.yaml:5: datasets[1].fields: belongs to the formats json, parquet and mds; the format is text"},
      {"[b.tar]", "[b.json], fields: {prompt: t}",
       "job.yaml:5: datasets[1].fields: prompt and answer, or chosen and rejected, are given together"},
      {"[b.tar]", "[b.json], fields: {chosen: t, prompt: p}",
       "job.yaml:5: datasets[1].fields: chosen and rejected are given together"},
      {"[b.tar]", "[b.json], fields: {chosen: t, rejected: u, answer: a}",
       "job.yaml:5: datasets[1].fields: chosen and rejected exclude answer"},
      {"[b.tar]", "[b.json], fields: {chosen: t, rejected: u, text: a}",
       "job.yaml:5: datasets[1].fields: chosen and rejected exclude messages and text"},
      {"[b.tar]", "[b.json], fields: {text: t, messages: m}",
       "job.yaml:5: datasets[1].fields: messages and text exclude each other"},
      {"[b.tar]", "[b.parquet]",
       "job.yaml:6: processor.exif_orientation: missing: pictures of Parquet are turned upright by default, "
       "those of "
       "other formats are not, and the job has both; give apply or ignore"},
      {"[b.tar]", "['{2..1}']", "job.yaml:5: datasets[1].shards[0]: the range '{2..1}' runs backwards"},
      {"[b.tar]", "['{a,b}']", "job.yaml:5: datasets[1].shards[0]: '{a,b}' is not a range; write {000..127}"},
      {"[b.tar]", "['{0..1']",
       "job.yaml:5: datasets[1].shards[0]: '{0..1' has an unmatched brace; ranges look like {000..127}"},
      {"[b.tar]", "['{0..1000000}']",
       "job.yaml:5: datasets[1].shards[0]: the ranges stand for more than 1000000 shards or 256 MiB of "
       "paths"},
  });
  std::string none = kGood;
  none.replace(none.find("weight: 1"), 9, "weight: 0");
  none.replace(none.find("[b.tar]"), 7, "[b.tar], weight: 0.0");
  EXPECT_EQ(std::string(ParseJob(none, "f").status().message()),
            "f:3: datasets: every weight is 0; at least one dataset must be drawn");
}

TEST(JobErrors, BatchOrderAndTopology) {
  ExpectMessages({
      {"batch: {samples: 64}", "batch: {}",
       "job.yaml:7: batch: missing; give samples, llm_tokens, pack or chunk"},
      {"batch: {samples: 64}", "", "job.yaml:1: batch: missing; give samples, llm_tokens, pack or chunk"},
      {"samples: 64", "samples: 0", "job.yaml:7: batch.samples: must be from 1 to 16777216, is 0"},
      {"samples: 64", "llm_tokens: 0", "job.yaml:7: batch.llm_tokens: must be from 1 to 1099511627776, is 0"},
      {"samples: 64", "samples: 64, llm_tokens: 1",
       "job.yaml:7: batch: 'samples' and 'llm_tokens' exclude each other"},
      {"samples: 64", "llm_tokens: 64, window_samples: 1048577",
       "job.yaml:7: batch.window_samples: must be at most 1048576, is 1048577"},
      {"samples: 64", "samples: 64, window_samples: 1",
       "job.yaml:7: batch.window_samples: belongs to llm_tokens, pack and chunk; with samples there are no "
       "windows"},
      {"index: ./index", "", "job.yaml:1: index: missing; give the folder of the index"},
      {"", "order: {shuffle: random}",
       "job.yaml:12: order.shuffle: 'random' is not one of full, blocked, none"},
      {"", "order: {block_samples: 4}", "job.yaml:12: order.block_samples: belongs to shuffle: blocked"},
      {"", "order: {shuffle: none, window_blocks: 4}",
       "job.yaml:12: order.window_blocks: belongs to shuffle: blocked"},
      {"", "topology: {virtual_stages: 2}",
       "job.yaml:12: topology.virtual_stages: 2 virtual stages need pipeline_stages above 1"},
      {"", "stream_version: 9",
       "job.yaml:12: stream_version: the job wants version 9, this release makes version 4; run the release "
       "that the "
       "job was started with, or remove the line to start a new stream"},
      {"", "wire: u16", "job.yaml:12: wire: 'u16' is not one of u8, bf16, f32"},
  });
}

TEST(JobErrors, Meshes) {
  const std::string sizes =
      "topology.mesh has tensor 2 x context 2 x data 2 x pipeline 2 = 16; with a mesh, "
      "ranks lists every member of every replica";
  ExpectMessages({
      {"", "topology: {mesh: {tensor: 2, context: 2, data: 2, pipeline: 2}}",
       "job.yaml:9: phases[0].ranks: 8 ranks, but " + sizes},
      {"", "topology: {mesh: {tensor: 3}}",
       "job.yaml:9: phases[0].ranks: 8 ranks, but topology.mesh has tensor 3 x context 1 x data 2 x pipeline "
       "1 "
       "= 6; with a mesh, ranks lists every member of every replica"},
      {"", "    mesh: {tensor: 16}\n",
       "job.yaml:11: phases[1].ranks: 8 ranks, but phases[1].mesh has tensor 16 x context 1 x data 1 x "
       "pipeline "
       "1 = 16; with a mesh, ranks lists every member of every replica"},
      {"", "topology: {mesh: {order: tp-dp, tensor: 2}}",
       "job.yaml:12: topology.mesh.order: 'tp-dp' does not name each of tp, cp, dp and pp once, the fastest "
       "first: tp-cp-dp-pp"},
      {"{name: llm, ranks: 0-7}", "{name: llm, mesh: {tensor: 2}}",
       "job.yaml:9: phases[0].mesh.data: missing; give the number of replicas, or the ranks of the phase"},
      {"", "topology: {pipeline_stages: 4, mesh: {pipeline: 2}}",
       "job.yaml:12: topology.pipeline_stages: 4, but the mesh of the llm has 2 pipeline stages; remove one "
       "of "
       "the two"},
      {"", "topology: {sequences: zigzag}",
       "job.yaml:12: topology.sequences: belongs to a mesh of the llm with context above 1, or to "
       "context_parallel: "
       "dynamic"},
      {"", "topology: {context_parallel: static, mesh: {tensor: 2}}",
       "job.yaml:12: topology.context_parallel: belongs to a mesh of the llm with context above 1, or to "
       "context_parallel: dynamic"},
      {"", "topology: {mesh: {context: 2}, sequences: ring}",
       "job.yaml:12: topology.sequences: 'ring' is not one of whole, zigzag, contiguous"},
      {"", "topology: {mesh: {context: 2}, sequences: zigzag}\nmicrobatch: {align: 2}",
       "job.yaml:13: microbatch.align: 2 is not a multiple of 4, into which topology.sequences cuts every "
       "document"},
      {"    ranks: 0-7\n", "    ranks: 0-7\n    mesh: {tensor: 2}\nbalance: drop_in\n",
       "job.yaml:11: phases[1].ranks: differ from the llm's; with balance: drop_in every phase runs on the "
       "llm's ranks, in its order"},
  });
}

TEST(JobErrors, DynamicGroups) {
  const std::string dynamic = "topology: {context_parallel: dynamic, groups: {tokens_per_rank: 8";
  const std::string groups = "job.yaml:12: topology.groups",
                    refused = "job.yaml:12: topology.context_parallel: dynamic: ";
  ExpectMessages({
      {"", "topology: {context_parallel: ring}",
       "job.yaml:12: topology.context_parallel: 'ring' is not one of static, dynamic"},
      {"", "topology: {groups: {tokens_per_rank: 8}}", groups + ": belongs to context_parallel: dynamic"},
      {"", "topology: {context_parallel: dynamic}",
       groups + ".tokens_per_rank: must be 1 to 1099511627776: the llm tokens that a rank holds of a "
                "microbatch at most"},
      {"", dynamic + ", sizes: odd}}", groups + ".sizes: 'odd' is not one of any, powers_of_two"},
      {"", dynamic + ", max_size: 9}}", groups + ".max_size: 9, but the llm has 8 replicas"},
      {"", dynamic + ", sizes: powers_of_two, max_size: 6}}",
       groups + ".max_size: 6 is not a power of two, as sizes says"},
      {"", dynamic + ", max_size: 2, pool: 3}}",
       groups + ".pool: 3 groups, but there are 4 groups of max_size, 2, alone; raise one of the two"},
      {"", dynamic + ", pool: 65537}}", groups + ".pool: must be at most 65536"},
      {"", dynamic + ", ring: -1}}", groups + ".ring: must be from 0 to 1e+12, is -1"},
      {"", dynamic + ", ring: 2, ring_between_nodes: 1}}",
       groups + ".ring_between_nodes: 1 is less than ring, 2"},
      {"", dynamic + ", media_attention: some}}",
       groups + ".media_attention: 'some' is not one of causal, full"},
      {"", dynamic + ", size: any}}",
       "job.yaml:12: unknown key 'size' in topology.groups; nearest is 'sizes'"},
      {"", dynamic + "}, mesh: {context: 2}}",
       refused + "groups are made of replicas; leave context out of the llm's mesh"},
      {"", dynamic + "}, pipeline_stages: 2}",
       refused + "not with pipeline stages, whose microbatches are ordered for each replica by itself"},
      {"", dynamic + "}}\nmicrobatch: {capacity_tokens: 8}",
       refused + "topology.groups.tokens_per_rank bounds a microbatch; leave microbatch.capacity_tokens and "
                 "pad_to out"},
      {"    ranks: 0-7\n", "    ranks: 8-15\n" + dynamic + "}}\n",
       refused + "phase vision has none of the llm's ranks; encoders must share them"},
      {"    ranks: 0-7\n", "    ranks: 0-7\n    kind: generator\n    media: [image]\n" + dynamic + "}}\n",
       "job.yaml:14: topology.context_parallel: dynamic: phase vision is a generator, whose rows come from "
       "one "
       "replica; leave it out"},
      {"", dynamic + "}, sequences: zigzag}\nmicrobatch: {align: 6}",
       "job.yaml:13: microbatch.align: 6 is not a multiple of 1680, into which topology.sequences cuts every "
       "document"},
  });
}

TEST(JobErrors, Phases) {
  ExpectMessages({
      {"name: llm", "name: audio", "job.yaml:8: phases: exactly one phase must be named llm; there is none"},
      {"name: vision", "name: llm", "job.yaml:10: phases[1].name: two phases are named 'llm'"},
      {"name: vision", "name: Video",
       "job.yaml:10: phases[1].name: 'Video' must be a lower-case letter, then at most 27 lower-case "
       "letters, "
       "digits, '_' or '-'"},
      {"name: vision", "name: tower",
       "job.yaml:10: phases[1].media: missing; phase 'tower' encodes some of image, video, audio: write "
       "media: "
       "[image]"},
      {"", "    media: [image, text]",
       "job.yaml:12: phases[1].media[1]: 'text' is not one of image, video, audio"},
      {"", "    media: [image, image]", "job.yaml:12: phases[1].media[1]: image is listed twice"},
      {"name: llm, ", "name: llm, media: [image], ",
       "job.yaml:9: phases[0].media: belongs to encoder phases"},
      {"name: llm, ", "name: llm, processor: x, ",
       "job.yaml:9: phases[0].processor: belongs to encoder phases; the llm's is processor.tokenizer"},
      {"name: llm, ", "", "job.yaml:9: phases[0].name: missing; llm, vision, audio, or a name of your own"},
      {", ranks: 0-7}", "}", "job.yaml:9: phases[0].ranks: missing; a list of ranks looks like \"0-3,8\""},
      {"ranks: 0-7}", "ranks: \"0-7,3\"}", "job.yaml:9: phases[0].ranks: rank 3 is given twice"},
      {"ranks: 0-7}", "ranks: 7-0}", "job.yaml:9: phases[0].ranks: the ranks 7-0 run backwards"},
      {"ranks: 0-7}", "ranks: all}",
       "job.yaml:9: phases[0].ranks: 'all' is not a rank, a whole number from 0 to 1048575; a list of ranks "
       "looks like "
       "\"0-3,8\""},
      {"ranks: 0-7}", "ranks: 0-7, runs: once_per_step}",
       "job.yaml:9: phases[0].runs: belongs to encoder phases"},
      {"", "    runs: sometimes",
       "job.yaml:12: phases[1].runs: 'sometimes' is not one of once_per_step, once_per_microbatch"},
      {"", "    batching: stacked",
       "job.yaml:12: phases[1].batching: 'stacked' is not one of packed, padded, "
       "padded_attention"},
      {"", "    batching: padded_attention\n    equal_counts: true",
       "job.yaml:13: phases[1].equal_counts: belongs to batching: packed"},
      {"", "    tolerance: 1", "job.yaml:12: phases[1].tolerance: must be in [0, 1)"},
      {"ranks: 0-7}", "ranks: 0-7, node_wise: true}",
       "job.yaml:9: phases[0].node_wise: belongs to encoder phases"},
      {"ranks: 0-7}", "ranks: 0-7, capacity: 8192}",
       "job.yaml:9: phases[0].capacity: belongs to encoder phases; the llm's is microbatch.capacity_tokens"},
      {"", "    capacity: 2199023255552",
       "job.yaml:12: phases[1].capacity: must be at most 1099511627776, is 2199023255552"},
      {"", "    min_items: 2000", "job.yaml:12: phases[1].min_items: must be at most 1024, is 2000"},
      {"", "    cost: {linear: 0}",
       "job.yaml:12: phases[1].cost: every length costs 0; give one of constant, linear, quadratic"},
      {"", "    cost: {linear: -1}",
       "job.yaml:12: phases[1].cost: constant, linear and quadratic must not be negative"},
      {"", "    cost: {linear: 1, mask_factor: -1}",
       "job.yaml:12: phases[1].cost.mask_factor: must be above -1"},
  });
}

TEST(JobErrors, Processor) {
  ExpectMessages({
      {"processor: {folder: ./qwen2-vl}", "",
       "job.yaml:1: processor.vision: missing; give it, or processor.folder"},
      {"{folder: ./qwen2-vl}", "{vision: v}",
       "job.yaml:6: processor.tokenizer: missing; give it, or processor.folder"},
      {"{folder: ./qwen2-vl}", "{folder: f, audio: a}",
       "job.yaml:6: processor.audio: the job has no phase that uses it"},
      {"{folder: ./qwen2-vl}", "{folder: f, labels: users}",
       "job.yaml:6: processor.labels: 'users' is not one of assistant, last_assistant, all, data"},
      {"{folder: ./qwen2-vl}", "{folder: f, chat: plain, labels: all}",
       "job.yaml:6: processor.labels: needs chat: template"},
      {"{folder: ./qwen2-vl}", "{folder: f, loss_weights: data}",
       "job.yaml:6: processor.loss_weights: needs labels: data, which reads the turns' weights"},
      {"{folder: ./qwen2-vl}", "{folder: f, labels: data, loss_weights: turns}",
       "job.yaml:6: processor.loss_weights: 'turns' is not one of none, data"},
      {"{folder: ./qwen2-vl}", "{folder: f, date: today}",
       "job.yaml:6: processor.date: 'today' is not a day of the form YYYY-MM-DD"},
      {"{folder: ./qwen2-vl}", "{folder: f, fps: -1}", "job.yaml:6: processor.fps: must not be negative"},
      {"{folder: ./qwen2-vl}", "{folder: f, added_tokens: [a, '']}",
       "job.yaml:6: processor.added_tokens[1]: an empty token"},
      {"{folder: ./qwen2-vl}", "{folder: f, min_pixels: 2k, max_pixels: 1k}",
       "job.yaml:6: processor.min_pixels: 2000 is above max_pixels, 1000"},
      {"{folder: ./qwen2-vl}", "{folder: f, min_frames: 9, max_frames: 8}",
       "job.yaml:6: processor.min_frames: 9 is above max_frames, 8"},
      {"{folder: ./qwen2-vl}", "{folder: f, video_rotation: maybe}",
       "job.yaml:6: processor.video_rotation: 'maybe' is not one of apply, ignore"},
      {"{folder: ./qwen2-vl}", "{folder: f, video_max_pixels: 1}",
       "job.yaml:6: processor.video_min_pixels: 100352 is above video_max_pixels, 1"},
  });
}

TEST(JobErrors, MicrobatchLimitsAndExclude) {
  ExpectMessages({
      {"", "microbatch: {capacity_tokens: 100, pad_to: 64}",
       "job.yaml:12: microbatch.pad_to: 64 is below capacity_tokens, 100"},
      {"", "microbatch: {pad_to: 100, align: 64}",
       "job.yaml:12: microbatch.pad_to: 100 is not a multiple of align, 64"},
      {"", "microbatch: {capacity_tokens: 63, align: 64}",
       "job.yaml:12: microbatch.capacity_tokens: 63 is below align, 64"},
      {"", "microbatch: {align: 65537}", "job.yaml:12: microbatch.align: must be at most 65536, is 65537"},
      {"", "topology: {pipeline_stages: 4, virtual_stages: 2}\nmicrobatch: {count_multiple: 6}",
       "job.yaml:13: microbatch.count_multiple: 6 is not a multiple of pipeline_stages, 4, which an "
       "interleaved "
       "schedule needs"},
      {"", "limits: {max_image_side: 65536}",
       "job.yaml:12: limits.max_image_side: must be at most 65535, is 65536"},
      {"", "exclude: [photos/a.tar]",
       "job.yaml:12: exclude[0]: 'photos/a.tar' is not of the form dataset/shard-file-name/sample-key"},
      {"", "exclude:\n- photos/a.tar/1\n- photo/a.tar/2",
       "job.yaml:14: exclude[1]: there is no dataset 'photo'; nearest is 'photos'"},
      {"", "columns: [id, id]", "job.yaml:12: columns[1]: 'id' is listed twice"},
      {"", "columns: [\"\"]", "job.yaml:12: columns[0]: a name has 1 to 256 bytes, this one 0"},
      {"", "limits: {max_column_bytes: 1MiB}",
       "job.yaml:12: limits.max_column_bytes: must be at most 65536, is 1048576"},
  });
}

// No prefix, and no single changed byte, of a good job does anything but parse or fail with a place.
TEST(JobErrors, MutatedJobsFailWithAPlace) {
  std::string good = kGood;
  for (size_t i = 0; i <= good.size(); ++i) {
    absl::StatusOr<Job> job = ParseJob(good.substr(0, i), "f");
    if (!job.ok()) {
      ASSERT_EQ(job.status().message().substr(0, 2), "f:") << good.substr(0, i);
    }
  }
  const std::string bytes = "{}[]:,-&*!|>'\"%@`#?~ \n\t0\x80";
  for (size_t i = 0; i < good.size(); ++i) {
    for (char byte : bytes) {
      std::string yaml = good;
      yaml[i] = byte;
      absl::StatusOr<Job> job = ParseJob(yaml, "f");
      if (!job.ok()) {
        ASSERT_EQ(job.status().message().substr(0, 2), "f:") << yaml;
      }
    }
  }
}

TEST(JobErrors, GeneratorsAreChecked) {
  const std::string draw = "  - {name: draw, ranks: 8-9, kind: generator, media: [image]}\n";
  ExpectMessages({
      {"{name: llm,", "{name: llm, kind: generator,",
       "job.yaml:9: phases[0].kind: the llm is neither an encoder nor a generator; leave it out, or give the "
       "phase another name"},
      {"", "    kind: drawer\n", "job.yaml:12: phases[1].kind: 'drawer' is not one of encoder, generator"},
      {"", "    kind: generator\n",
       "job.yaml:10: phases[1].media: missing; phase 'vision' generates some of image, video, audio: write "
       "media: [image]"},
      {"", draw + "  - {name: paint, ranks: 8-9, kind: generator, media: [audio, image]}\n",
       "job.yaml:13: phases[3].media: 'draw' generates image items already; a target has one generator"},
      {"", draw + "topology: {mesh: {data: 4, pipeline: 2}}\n",
       "job.yaml:12: phases[2].ranks: 2 ranks, but topology.mesh has tensor 1 x context 1 x data 4 x "
       "pipeline 2 = 8; with a mesh, ranks lists every member of every replica"},
      {"", "  - {name: draw, ranks: 8-9, kind: generator, media: [image], mesh: {pipeline: 2}}\n",
       "job.yaml:12: phases[2].mesh.pipeline: must be 1, is 2; a generator has no pipeline of its own: give "
       "it a mesh without stages"},
      {"", "  - {name: draw, ranks: 6-9, kind: generator, media: [image]}\ntopology: {pipeline_stages: 2}\n",
       "job.yaml:12: phases[2].runs: must be once_per_microbatch with a pipeline of the llm, whose last "
       "stage has the hidden states of one microbatch after the other"},
      {"",
       "  - {name: draw, ranks: 6-9, kind: generator, media: [image], runs: once_per_microbatch}\ntopology: "
       "{pipeline_stages: 2}\n",
       "job.yaml:12: phases[2].ranks: has ranks of the llm, whose pipeline has its hidden states on the last "
       "stage alone; give the generator ranks that the llm does not have"},
  });
}

TEST(JobErrors, PythonMakesNoTargets) {
  std::string yaml = Replaced({"{folder: ./qwen2-vl}", "{folder: ./qwen2-vl, python: transformers}", ""});
  yaml += "  - {name: draw, ranks: 8-9, kind: generator, media: [image]}\n";
  EXPECT_EQ(ParseJob(yaml, "job.yaml").status().message(),
            "job.yaml:6: processor.python: makes items of encoders alone, and 'draw' is a generator; leave "
            "one of the two out");
}

}  // namespace
}  // namespace evenkeel
