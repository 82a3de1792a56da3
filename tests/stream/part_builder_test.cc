// Parts are exactly as large as announced, hold what the plan says, and no bad datum changes either.
#include "stream/part_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <utility>

#include "core/failure.h"
#include "stream/encoder_part.h"
#include "tests/stream/fake_stream.h"
#include "tests/usual_phases.h"

namespace evenkeel::stream {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using PlanPtr = std::shared_ptr<const StepPlan>;

PlanPtr PlanOf(const Stream& stream, uint64_t step) {
  absl::StatusOr<StepPlan> plan = PlanStep(stream, step);
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(reorder::PlanCheck(stream.job, plan->samples, plan->plan).ok());
  return std::make_shared<const StepPlan>(*std::move(plan));
}

struct Made {
  std::vector<std::byte> bytes;
  PartView view;
  absl::Status status;
};

// The verdicts on items and texts.
class Verdicts : public PartEvents {
 public:
  void OnProduced(absl::Duration, absl::Duration, const preprocess::ItemNotes&) override {}
  void OnItem(const Phase&, bool, uint64_t) override {}
  void OnSequence(bool, uint64_t, absl::Duration) override {}
  void OnBad(std::string_view what, const std::string& sample, const absl::Status& why) override {
    texts.push_back(std::string(what) + " " + sample + " " + absl::StatusCodeToString(why.code()));
  }
  std::vector<std::string> texts;
};

// Makes a part over memory filled with `dirt`, its units in a random order.
Made Make(const Stream& stream, PlanPtr plan, const PartName& name, uint8_t dirt = 0xAB,
          PartEvents* events = nullptr) {
  PartBuilder builder(stream, events);
  absl::StatusOr<std::unique_ptr<PartTask>> task = builder.Prepare(std::move(plan), name);
  EXPECT_TRUE(task.ok()) << task.status();
  Made made{.bytes = std::vector<std::byte>((*task)->num_bytes(), std::byte{dirt})};
  (*task)->Begin(made.bytes);
  std::vector<size_t> order((*task)->num_units());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(dirt));
  for (size_t unit : order) {
    made.status = (*task)->RunUnit(unit, made.bytes);
    if (!made.status.ok()) return made;
  }
  absl::StatusOr<PartView> view = ReadPart(made.bytes);
  EXPECT_TRUE(view.ok()) << view.status();
  made.view = *std::move(view);
  return made;
}

template <typename T>
std::vector<T> Values(const PartView& view, std::string_view tensor) {
  const TensorView* found = view.tensor(tensor);
  if (found == nullptr) {
    ADD_FAILURE() << "no tensor " << tensor;
    return {};
  }
  const T* begin = reinterpret_cast<const T*>(found->bytes().data());
  return std::vector<T>(begin, begin + found->bytes().size() / sizeof(T));
}

std::vector<int64_t> Ints(const PartView& view, std::string_view tensor) {
  return Values<int64_t>(view, tensor);
}
std::vector<uint8_t> Bytes(const PartView& view, std::string_view tensor) {
  return Values<uint8_t>(view, tensor);
}

std::vector<PartName> AllParts(const Stream& stream, const StepPlan& plan, uint32_t ranks) {
  PartBuilder builder(stream, nullptr);
  std::vector<PartName> names;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (const PartName& name : builder.PartsOf(plan, rank)) names.push_back(name);
  }
  return names;
}

class PartBuilderShapes : public testing::TestWithParam<std::tuple<Batching, Runs, uint32_t>> {};

TEST_P(PartBuilderShapes, WritesEveryByteAndNothingButWhatThePlanSays) {
  const auto [batching, runs, min_items] = GetParam();
  Job job = FakeJob(3, 14);
  job.phases[0].batching = batching;
  for (int encoder : {1, 2}) {
    job.phases[encoder].runs = runs;
    job.phases[encoder].min_items = min_items;
  }
  job.microbatch = {.capacity_tokens = 120, .align = 4};
  const auto stream = MakeFakeStream(job, MixedSamples(50));
  for (uint64_t step = 0; step < 3; ++step) {
    const PlanPtr plan = PlanOf(*stream, step);
    for (const PartName& name : AllParts(*stream, *plan, 3)) {
      const Made once = Make(*stream, plan, name, 0xAB), again = Make(*stream, plan, name, 0xCD);
      ASSERT_TRUE(once.status.ok()) << once.status;
      EXPECT_EQ(once.bytes, again.bytes) << DescribePart(name);
      EXPECT_EQ(once.view.name, name);
    }
  }
}

TEST_P(PartBuilderShapes, DeliversEverySampleAndItemOnce) {
  const auto [batching, runs, min_items] = GetParam();
  Job job = FakeJob(3, 14);
  job.phases[0].batching = batching;
  job.phases[1].runs = job.phases[2].runs = runs;
  job.phases[1].min_items = job.phases[2].min_items = min_items;
  job.microbatch = {.capacity_tokens = 120, .align = 4};
  const auto stream = MakeFakeStream(job, MixedSamples(50));
  const PlanPtr plan = PlanOf(*stream, 1);
  std::map<int64_t, int> samples;
  std::map<Phase, int> items;
  int64_t rows = 0, loss_tokens = 0;
  for (const PartName& name : AllParts(*stream, *plan, 3)) {
    const Made made = Make(*stream, plan, name);
    if (name.phase == Phase::kLlm) {
      const std::vector<int64_t> ids = Ints(made.view, "sample_ids");
      for (size_t i = 0; i < ids.size(); i += 3) ++samples[ids[i + 2]];
      loss_tokens += Ints(made.view, "loss_tokens")[0];
      for (int64_t id : Ints(made.view, "input_ids")) rows -= id >= kFakePlaceholder && id != kFakePad;
      EXPECT_THAT(Bytes(made.view, "sample_valid"), Each(1));
    } else {
      const std::vector<uint8_t> valid = Bytes(made.view, "item_valid");
      const std::vector<int64_t> item_rows = Ints(made.view, "item_rows");
      for (size_t i = 0; i < valid.size(); ++i) {
        items[name.phase] += valid[i];
        if (valid[i]) rows += item_rows[i];
      }
    }
  }
  EXPECT_EQ(samples.size(), 14);
  for (const auto& [sample, times] : samples) EXPECT_EQ(times, 1);
  std::map<Phase, int> planned;
  for (const PlannedItem& item : plan->plan.items)
    planned[UsualPhaseOf(item.medium)] += item.sample != kDummy;
  EXPECT_EQ(items, planned);
  EXPECT_EQ(rows, 0) << "as many rows as placeholders";
  EXPECT_EQ(loss_tokens, plan->plan.loss_tokens);
}

INSTANTIATE_TEST_SUITE_P(All, PartBuilderShapes,
                         testing::Combine(testing::Values(Batching::kPacked, Batching::kPadded),
                                          testing::Values(Runs::kOncePerStep, Runs::kOncePerMicrobatch),
                                          testing::Values(0u, 2u)));

Job OneRank(uint64_t samples) { return FakeJob(1, samples); }

TEST(LlmPart, PacksSamplesWithAlignmentInsideAndPaddingBehind) {
  Job job = OneRank(2);
  job.microbatch = {.capacity_tokens = 16, .pad_to = 16, .align = 4};
  const auto stream = MakeFakeStream(job, {{.text = "abc"}, {.text = "de", .items = {{.rows = 8}}}});
  const Made made = Make(*stream, PlanOf(*stream, 0), {.phase = Phase::kLlm});
  const int64_t P = kFakePad, I = kFakePlaceholder + 1;
  EXPECT_THAT(Ints(made.view, "input_ids"),
              ElementsAre('a', 'b', 'c', P, I, I, 'd', 'e', P, P, P, P, P, P, P, P));
  EXPECT_THAT(Ints(made.view, "labels"), ElementsAre(-100, 'b', 'c', -100, -100, -100, 'd', 'e', -100, -100,
                                                     -100, -100, -100, -100, -100, -100));
  EXPECT_THAT(Ints(made.view, "mm_token_type_ids"),
              ElementsAre(0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  const std::vector<int64_t> row = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<int64_t> positions;
  for (int axis = 0; axis < 3; ++axis) positions.insert(positions.end(), row.begin(), row.end());
  EXPECT_EQ(Ints(made.view, "position_ids"), positions);
  EXPECT_THAT(made.view.tensor("position_ids")->spec.shape, ElementsAre(3, 1, 16));
  EXPECT_THAT(Values<int32_t>(made.view, "cu_seqlens"), ElementsAre(0, 4, 8, 16));
  EXPECT_THAT(Ints(made.view, "loss_tokens"), ElementsAre(4));
  EXPECT_THAT(Ints(made.view, "sample_ids"), ElementsAre(0, 0, 0, 0, 0, 1));
  EXPECT_THAT(made.view.keys, ElementsAre("a/shard-0.tar/key-0", "a/shard-1.tar/key-1"));
  EXPECT_EQ(made.view.tensor("attention_mask"), nullptr);
}

TEST(LlmPart, PadsRowsToTheLongest) {
  Job job = OneRank(2);
  job.phases[0].batching = Batching::kPadded;
  job.microbatch = {.align = 2};
  const auto stream = MakeFakeStream(job, {{.text = "abc"}, {.text = "defgh"}});
  const Made made = Make(*stream, PlanOf(*stream, 0), {.phase = Phase::kLlm});
  const int64_t P = kFakePad;
  EXPECT_THAT(made.view.tensor("input_ids")->spec.shape, ElementsAre(2, 6));
  EXPECT_THAT(Ints(made.view, "input_ids"), ElementsAre('a', 'b', 'c', P, P, P, 'd', 'e', 'f', 'g', 'h', P));
  EXPECT_THAT(Ints(made.view, "attention_mask"), ElementsAre(1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0));
  EXPECT_THAT(made.view.tensor("position_ids")->spec.shape, ElementsAre(3, 2, 6));
  const std::vector<int64_t> positions = Ints(made.view, "position_ids");
  EXPECT_EQ(std::vector<int64_t>(positions.begin(), positions.begin() + 12),
            (std::vector<int64_t>{0, 1, 2, 1, 1, 1, 0, 1, 2, 3, 4, 1}));
  EXPECT_EQ(made.view.tensor("cu_seqlens"), nullptr);
}

// The text is no pair, as one that the index saw otherwise: each sequence keeps its placeholders and its place.
TEST(LlmPart, KeepsBothSequencesOfAPairWithAChangedText) {
  Job job = OneRank(2);
  job.microbatch.align = 4;
  const auto stream = MakeFakeStream(
      job, {{.text = "abcdef", .items = {{.rows = 8}, {.rows = 8}}, .chosen = 5}, {.text = "xyz"}});
  const Made made = Make(*stream, PlanOf(*stream, 0), {.phase = Phase::kLlm});
  ASSERT_TRUE(made.status.ok()) << made.status;
  const std::vector<int64_t> ids = Ints(made.view, "sample_ids");
  const bool first = ids[2] == 0;  // the pair is placed before the other sample
  const std::vector<int64_t> pair = {1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0}, text = {0, 0, 0, 0};
  std::vector<int64_t> types = first ? pair : text;
  const std::vector<int64_t>& last = first ? text : pair;
  types.insert(types.end(), last.begin(), last.end());
  EXPECT_EQ(Ints(made.view, "mm_token_type_ids"), types);
  EXPECT_THAT(Values<int32_t>(made.view, "cu_seqlens"),
              first ? ElementsAre(0, 8, 16, 20) : ElementsAre(0, 4, 12, 20));
  EXPECT_THAT(Bytes(made.view, "sample_valid"), first ? ElementsAre(0, 0, 1) : ElementsAre(1, 0, 0));
  EXPECT_THAT(made.view.tensor("sample_ids")->spec.shape, ElementsAre(3, 3));
  const std::vector<int64_t> positions = Ints(made.view, "position_ids");
  const size_t begin = first ? 0 : 4;
  EXPECT_EQ(positions[begin], 0);
  EXPECT_EQ(positions[begin + 8] + 1, positions[begin + 9]);
}

// The texts are no pairs, as ones that the index saw otherwise: both rows of each keep its placeholders.
TEST(LlmPart, HasTheRejectedRowsOfAPaddedBatchLast) {
  Job job = OneRank(2);
  job.phases[0].batching = Batching::kPadded;
  job.microbatch.align = 2;
  const auto stream = MakeFakeStream(
      job, {{.text = "abcdef", .items = {{.rows = 4}, {.rows = 8}}, .chosen = 4}, {.text = "xyz"}});
  const Made made = Make(*stream, PlanOf(*stream, 0), {.phase = Phase::kLlm});
  ASSERT_TRUE(made.status.ok()) << made.status;
  const std::vector<int64_t> ids = Ints(made.view, "sample_ids");
  ASSERT_EQ(ids.size(), 9u);
  const bool first = ids[2] == 0;  // the pair is placed before the other sample
  EXPECT_EQ(ids[first ? 2 : 5], 0);
  EXPECT_EQ(ids[first ? 5 : 2], 1);
  EXPECT_EQ(ids[8], 0);
  EXPECT_THAT(Bytes(made.view, "sample_valid"), first ? ElementsAre(0, 1, 0) : ElementsAre(1, 0, 0));
  const std::vector<uint64_t> shape = made.view.tensor("input_ids")->spec.shape;
  ASSERT_EQ(shape[0], 3u);
  const std::vector<int64_t> types = Ints(made.view, "mm_token_type_ids");
  std::vector<int64_t> media(3, 0);
  for (size_t i = 0; i < types.size(); ++i) media[i / shape[1]] += types[i];
  EXPECT_EQ(media, first ? (std::vector<int64_t>{1, 0, 2}) : (std::vector<int64_t>{0, 1, 2}));
}

TEST(LlmPart, FillsAMicrobatchWithoutSamplesWithAMaskedDummy) {
  Job job = FakeJob(2, 1);
  job.microbatch.align = 4;
  const auto stream = MakeFakeStream(job, {{.text = "abc"}});
  const PlanPtr plan = PlanOf(*stream, 0);
  const uint32_t empty = 1 - plan->plan.samples[0].place.rank;
  const Made made = Make(*stream, plan, {.phase = Phase::kLlm, .rank = empty});
  EXPECT_THAT(Ints(made.view, "input_ids"), ElementsAre(kFakePad, kFakePad, kFakePad, kFakePad));
  EXPECT_THAT(Ints(made.view, "labels"), Each(-100));
  EXPECT_THAT(Values<int32_t>(made.view, "cu_seqlens"), ElementsAre(0, 4));
  EXPECT_THAT(Ints(made.view, "loss_tokens"), ElementsAre(0));
  EXPECT_THAT(made.view.tensor("sample_ids")->spec.shape, ElementsAre(0, 3));
}

// The documents of chunks are pieces of texts, each with positions of its own and a first token that has no label.
TEST(LlmPart, OfAChunkHasThePiecesOfItsTexts) {
  for (const char* text_now : {"defghij", "d#fghij"}) {
    Job job = FakeJob(1, 1);
    job.index = "/dev/null/none";  // no table is stored
    job.datasets = {{.name = "texts"}};
    job.order.shuffle = Shuffle::kNone;
    job.batch = {.window_samples = 2, .chunk = {.length = 5, .count = 2}};
    const auto stream =
        MakeFakeStream(std::move(job), {{.text = "abc"}, {.text = "defghij", .text_now = text_now}});
    const PlanPtr plan = PlanOf(*stream, 0);
    const uint8_t is_valid = std::string_view(text_now) == "defghij";
    const Made first = Make(*stream, plan, {.phase = Phase::kLlm, .microbatch = 0});
    const Made second = Make(*stream, plan, {.phase = Phase::kLlm, .microbatch = 1});
    ASSERT_TRUE(first.status.ok() && second.status.ok()) << first.status << second.status;
    EXPECT_THAT(Values<int32_t>(first.view, "cu_seqlens"), ElementsAre(0, 3, 5));
    EXPECT_THAT(Values<int32_t>(second.view, "cu_seqlens"), ElementsAre(0, 5));
    EXPECT_THAT(Bytes(first.view, "sample_valid"), ElementsAre(1, is_valid)) << text_now;
    EXPECT_THAT(Bytes(second.view, "sample_valid"), ElementsAre(is_valid)) << text_now;
    EXPECT_THAT(Ints(first.view, "labels"), ElementsAre(-100, 'b', 'c', -100, is_valid ? 'e' : -100));
    if (is_valid == 0) {
      EXPECT_THAT(Ints(second.view, "labels"), Each(-100));
      continue;
    }
    EXPECT_THAT(Ints(first.view, "input_ids"), ElementsAre('a', 'b', 'c', 'd', 'e'));
    EXPECT_THAT(Ints(second.view, "input_ids"), ElementsAre('f', 'g', 'h', 'i', 'j'));
    EXPECT_THAT(Ints(second.view, "labels"), ElementsAre(-100, 'g', 'h', 'i', 'j'));
    const Made next = Make(*stream, PlanOf(*stream, 1), {.phase = Phase::kLlm, .microbatch = 1});
    EXPECT_THAT(Ints(next.view, "input_ids"), ElementsAre('f', 'g', 'h', 'i', 'j')) << "of the next epoch";
  }
}

TEST(LlmPart, KeepsThePlaceholdersOfASampleWithAChangedText) {
  for (const char* text_now : {"a#c", "ab\xFF"}) {
    const auto stream =
        MakeFakeStream(OneRank(1), {{.text = "abc", .items = {{.rows = 8}}, .text_now = text_now}});
    const PlanPtr plan = PlanOf(*stream, 0);
    const Made made = Make(*stream, plan, {.phase = Phase::kLlm});
    ASSERT_TRUE(made.status.ok()) << made.status;
    EXPECT_THAT(Bytes(made.view, "sample_valid"), ElementsAre(0)) << text_now;
    EXPECT_THAT(Ints(made.view, "mm_token_type_ids"), ElementsAre(1, 1, 0, 0, 0));
    EXPECT_THAT(Ints(made.view, "labels"), Each(-100));
    EXPECT_THAT(Ints(made.view, "loss_tokens"), ElementsAre(3)) << "the plan's, whatever was delivered";
  }
}

// Gives tokens of samples with pictures or videos positions that no rule implies, and audio none.
class GridProcessor : public FakeProcessor {
 public:
  absl::Status BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                             std::span<const MediaFacts> facts, preprocess::Sequence& out) const override {
    const absl::Status built = FakeProcessor::BuildSequence(conversation, items, facts, out);
    if (!built.ok() || std::none_of(items.begin(), items.end(),
                                    [](const SampleItem& item) { return item.medium != Medium::kAudio; })) {
      return built;
    }
    for (size_t i = 0; i < out.positions.size(); ++i) {
      out.positions[i] = first + static_cast<int64_t>(7 * i * i % 1013);
    }
    return absl::OkStatus();
  }
  bool has_grid_positions(Medium medium) const override { return medium != Medium::kAudio; }

  int64_t first = 0;
};

// One row of a field, for comparison with what a trainer would have made of the sequence.
using Row = std::vector<int64_t>;
struct ExpectedSample {
  Row ids, labels, types, mask, positions[3];
};

ExpectedSample ExpectSample(const Stream& stream, const StepPlan& plan, uint32_t number, uint64_t room,
                            bool padded) {
  const SampleRef& ref = plan.samples.refs[number];
  const dataset::SamplePlaces places = *stream.index->places(ref.dataset, ref.index);
  dataset::ConversationReader reader;
  const Conversation& conversation = **reader.Read(places, stream.job.limits, *stream.source);
  std::vector<MediaFacts> facts;
  for (const dataset::ItemPlace& item : places.items) facts.push_back(item.facts);
  preprocess::Sequence sequence;
  EXPECT_TRUE(
      stream.processor->BuildSequence(conversation, plan.samples.lengths[number].items, facts, sequence)
          .ok());
  ExpectedSample out;
  out.ids = sequence.input_ids;
  out.labels = sequence.labels;
  out.types.assign(sequence.token_types.begin(), sequence.token_types.end());
  const size_t length = out.ids.size();
  out.mask.assign(length, 1);
  int64_t next = 0;
  for (int64_t position : sequence.positions) next = std::max(next, position + 1);
  for (int axis = 0; axis < 3; ++axis) {
    const auto from = sequence.positions.begin() + static_cast<ptrdiff_t>(axis * length);
    out.positions[axis].assign(from, from + static_cast<ptrdiff_t>(length));
  }
  for (; out.ids.size() < room; ++next) {
    out.ids.push_back(kFakePad);
    out.labels.push_back(-100);
    out.types.push_back(0);
    out.mask.push_back(0);
    for (Row& row : out.positions) row.push_back(padded ? 1 : next);
  }
  return out;
}

TEST(LlmPart, DeliversIdsLabelsTypesMasksAndPositionsOfEverySequence) {
  for (const Batching batching : {Batching::kPacked, Batching::kPadded}) {
    const bool padded = batching == Batching::kPadded;
    Job job = FakeJob(2, 12);
    job.phases[0].batching = batching;
    job.microbatch = {.capacity_tokens = 200, .pad_to = 256, .align = 8};
    const auto stream = MakeFakeStream(job, MixedSamples(40));
    const auto fake =
        std::exchange(stream->processor, std::make_unique<GridProcessor>());  // the index asks it
    size_t with_grids = 0, without = 0;
    for (uint64_t step = 0; step < 3; ++step) {
      const PlanPtr plan = PlanOf(*stream, step);
      for (const PartName& name : AllParts(*stream, *plan, 2)) {
        if (name.phase != Phase::kLlm) continue;
        const Made made = Make(*stream, plan, name);
        ASSERT_TRUE(made.status.ok()) << made.status;
        const PhasePlan& llm = *plan->plan.phase(Phase::kLlm);
        const size_t bucket = size_t{name.rank} * llm.num_microbatches + name.microbatch;
        const std::vector<uint64_t> shape = made.view.tensor("input_ids")->spec.shape;
        const uint64_t tokens = shape[0] * shape[1];
        uint64_t at = 0;
        for (uint32_t i = llm.begin[bucket]; i < llm.begin[bucket + 1]; ++i) {
          const uint32_t number = llm.order[i];
          const uint64_t room = padded ? shape[1] : plan->plan.samples[number].llm_length;
          const ExpectedSample expected = ExpectSample(*stream, *plan, number, room, padded);
          const auto expect = [&](std::string_view field, uint64_t from, const Row& row) {
            const Row values = Ints(made.view, field);
            const auto begin = values.begin() + static_cast<ptrdiff_t>(from);
            EXPECT_EQ(Row(begin, begin + static_cast<ptrdiff_t>(room)), row) << field;
          };
          expect("input_ids", at, expected.ids);
          expect("labels", at, expected.labels);
          expect("mm_token_type_ids", at, expected.types);
          if (padded) expect("attention_mask", at, expected.mask);
          for (uint64_t axis = 0; axis < 3; ++axis) {
            expect("position_ids", axis * tokens + at, expected.positions[axis]);
          }
          (expected.positions[0][0] == expected.positions[1][0] ? without : with_grids) += 1;
          at += room;
        }
      }
    }
    EXPECT_GT(with_grids, 5);
    EXPECT_GT(without, 5);
  }
}

// A token is 4 bytes, and 12 more where its sample has media on a grid; the rest does not grow with tokens.
TEST(LlmPart, TakesFourBytesATokenOfTextAndSixteenOfSamplesWithGrids) {
  for (const Batching batching : {Batching::kPacked, Batching::kPadded}) {
    for (const auto& [items, bytes_a_token] : {std::pair(std::vector<FakeItem>(), 4), {{{.rows = 4}}, 16}}) {
      uint64_t sizes[2];
      for (int longer : {0, 1}) {
        Job job = OneRank(1);
        job.phases[0].batching = batching;
        const auto stream =
            MakeFakeStream(job, {{.text = std::string(longer ? 16001 : 1, 'a'), .items = items}});
        const auto fake = std::exchange(stream->processor, std::make_unique<GridProcessor>());
        sizes[longer] = Make(*stream, PlanOf(*stream, 0), {.phase = Phase::kLlm}).bytes.size();
      }
      EXPECT_NEAR(sizes[1] - sizes[0], 16000 * bytes_a_token, 256);
    }
  }
}

TEST(LlmPart, TrainsNoSampleWhosePositionsNeedMoreBitsThanTravel) {
  const auto stream = MakeFakeStream(OneRank(1), {{.text = "abc", .items = {{.rows = 8}}}});
  auto grids = std::make_unique<GridProcessor>();
  grids->first = int64_t{1} << 40;
  const auto fake = std::exchange(stream->processor, std::move(grids));
  const Made made = Make(*stream, PlanOf(*stream, 0), {.phase = Phase::kLlm});
  ASSERT_TRUE(made.status.ok()) << made.status;
  EXPECT_THAT(Bytes(made.view, "sample_valid"), ElementsAre(0));
  EXPECT_THAT(Ints(made.view, "labels"), Each(-100));
  EXPECT_THAT(Ints(made.view, "position_ids"), Each(testing::AllOf(testing::Ge(0), testing::Le(INT32_MAX))));
  EXPECT_THAT(Ints(made.view, "mm_token_type_ids"), ElementsAre(1, 1, 0, 0, 0)) << "its placeholders stay";
}

// What a family must not do is an error of the attempt that names the sample, never a wrong token.
TEST(LlmPart, RefusesSequencesThatTheWireCannotHold) {
  struct Broken : FakeProcessor {
    absl::Status BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                               std::span<const MediaFacts> facts, preprocess::Sequence& out) const override {
      const absl::Status built = FakeProcessor::BuildSequence(conversation, items, facts, out);
      if (built.ok()) damage(out);
      return built;
    }
    bool has_grid_positions(Medium) const override { return false; }
    std::function<void(preprocess::Sequence&)> damage;
  };
  const std::function<void(preprocess::Sequence&)> damages[] = {
      [](preprocess::Sequence& s) { s.input_ids[1] = s.labels[1] = int64_t{1} << 28; },
      [](preprocess::Sequence& s) { s.input_ids[1] = -1; },
      [](preprocess::Sequence& s) { s.labels[2] = s.input_ids[1]; },
      [](preprocess::Sequence& s) { s.token_types[0] = 4; },
      [](preprocess::Sequence& s) { s.token_types[0] = 8; },
      [](preprocess::Sequence& s) { s.token_types[1] = 1; },  // a placeholder that is trained
      [](preprocess::Sequence& s) { s.positions[4] = 7; }};
  for (const auto& damage : damages) {
    const auto stream = MakeFakeStream(OneRank(1), {{.text = "abc"}});
    auto broken = std::make_unique<Broken>();
    broken->damage = damage;
    const auto fake = std::exchange(stream->processor, std::move(broken));
    const Made made = Make(*stream, PlanOf(*stream, 0), {.phase = Phase::kLlm});
    EXPECT_EQ(made.status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(made.status.message()), HasSubstr("a/shard-0.tar/key-0"));
    EXPECT_EQ(ExcludeLine(made.status), "a/shard-0.tar/key-0");
  }
}

TEST(EncoderPart, PutsImagesBeforeVideosAndFlagsWhatIsInvalid) {
  Job job = OneRank(1);
  const auto stream = MakeFakeStream(job, {{.text = "t",
                                            .items = {{.medium = Medium::kVideo, .rows = 4, .bytes = "v"},
                                                      {.medium = Medium::kImage, .rows = 8, .bytes = "X"},
                                                      {.medium = Medium::kImage, .rows = 4, .bytes = "i"}}}});
  Verdicts verdicts;
  const PlanPtr plan = PlanOf(*stream, 0);
  const Made made = Make(*stream, plan, {.phase = kVisionPhase}, 0xAB, &verdicts);
  EXPECT_THAT(Bytes(made.view, "item_valid"), ElementsAre(0, 1, 1));
  EXPECT_THAT(Ints(made.view, "item_rows"), ElementsAre(2, 1, 1));
  EXPECT_THAT(made.view.tensor("pixel_values")->spec.shape, ElementsAre(12, 6));
  EXPECT_THAT(made.view.tensor("image_grid_thw")->spec.shape, ElementsAre(2, 3));
  EXPECT_THAT(made.view.tensor("pixel_values_videos")->spec.shape, ElementsAre(4, 5));
  const std::vector<uint8_t> pixels = Bytes(made.view, "pixel_values");
  EXPECT_THAT(std::vector<uint8_t>(pixels.begin(), pixels.begin() + 8 * 6 * 4), Each(0))
      << "an invalid item is zero";
  EXPECT_EQ(pixels[8 * 6 * 4], 'i');
  EXPECT_EQ(made.view.tensor("input_features"), nullptr);
  EXPECT_THAT(verdicts.texts, ElementsAre("image a/shard-0.tar/key-0 DATA_LOSS"));
  const Made text = Make(*stream, plan, {.phase = Phase::kLlm});
  EXPECT_THAT(Bytes(text.view, "sample_valid"), ElementsAre(1)) << "the text of a bad picture is as planned";
}

constexpr std::byte kDirt{0xAB};

// Remembers where it was told to write, and what it wrote there.
class RecordingProcessor : public FakeProcessor {
 public:
  struct Written {
    std::span<const std::byte> where;
    std::vector<std::byte> what;
  };
  // The index of a fake stream goes on asking the processor that it was made with.
  explicit RecordingProcessor(std::unique_ptr<preprocess::Processor> before) : before_(std::move(before)) {}

  absl::Status Produce(const preprocess::ItemRequest& request,
                       std::span<const std::span<std::byte>> fields) const override {
    for (const std::span<std::byte>& field : fields) EXPECT_THAT(field, Each(kDirt)) << "written before";
    const absl::Status status = FakeProcessor::Produce(request, fields);
    for (const std::span<std::byte>& field : fields) {
      written.push_back({field, std::vector<std::byte>(field.begin(), field.end())});
    }
    return status;
  }

  mutable std::vector<Written> written;

 private:
  const std::unique_ptr<preprocess::Processor> before_;
};

TEST(EncoderPart, HasEveryByteOfAnItemWrittenOnceByTheTransformWhereItTravels) {
  const auto stream = MakeFakeStream(FakeJob(2, 8), MixedSamples(30));
  stream->processor = std::make_unique<RecordingProcessor>(std::move(stream->processor));
  const auto& processor = static_cast<const RecordingProcessor&>(*stream->processor);
  const PlanPtr plan = PlanOf(*stream, 0);
  size_t parts = 0;
  for (const PartName& name : AllParts(*stream, *plan, 2)) {
    if (name.phase == Phase::kLlm) continue;
    ++parts;
    processor.written.clear();
    const Made made = Make(*stream, plan, name, static_cast<uint8_t>(kDirt));
    ASSERT_TRUE(made.status.ok()) << made.status;
    size_t written = 0, travelling = 0;
    for (const auto& [where, what] : processor.written) {
      EXPECT_GE(where.data(), made.bytes.data()) << "made elsewhere and copied";
      EXPECT_LE(where.data() + where.size(), made.bytes.data() + made.bytes.size());
      EXPECT_TRUE(std::equal(where.begin(), where.end(), what.begin())) << "written again afterwards";
      written += where.size();
    }
    for (Medium medium : {Medium::kImage, Medium::kVideo, Medium::kAudio}) {
      for (const preprocess::FieldSpec& field : processor.fields(medium)) {
        if (const TensorView* tensor = made.view.tensor(field.name)) travelling += tensor->bytes().size();
      }
    }
    EXPECT_GT(written, 0);
    EXPECT_EQ(written, travelling) << DescribePart(name);
  }
  EXPECT_GE(parts, 2);
}

TEST(EncoderPart, HasTheSameSizeWithAndWithoutABadItem) {
  uint64_t sizes[2];
  for (int bad : {0, 1}) {
    const auto stream = MakeFakeStream(OneRank(1), {{.text = "t", .items = {{.bytes = bad ? "R" : "g"}}}});
    sizes[bad] = Make(*stream, PlanOf(*stream, 0), {.phase = kVisionPhase}).bytes.size();
  }
  EXPECT_EQ(sizes[0], sizes[1]);
}

TEST(EncoderPart, FailsTheAttemptWhereNothingIsKnownOfTheData) {
  const auto stream = MakeFakeStream(OneRank(1), {{.text = "t", .items = {{.bytes = "U"}}}});
  const Made made = Make(*stream, PlanOf(*stream, 0), {.phase = kVisionPhase});
  EXPECT_EQ(made.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(made.status.message()),
              HasSubstr("a/shard-0.tar/key-0, image 0, step 0 vision rank 0"));
  EXPECT_EQ(KindOf(made.status), FailureKind::kMachine);
  EXPECT_EQ(ExcludeLine(made.status), "") << "leaving the sample out would not help";
}

TEST(EncoderPart, IsCutIntoPiecesBetweenItems) {
  // 10 items of almost 64 MiB: 2.7 million rows of 24 bytes each.
  FakeSample sample{.text = "t"};
  for (int i = 0; i < 10; ++i) sample.items.push_back({.rows = 2796160});
  const auto stream = MakeFakeStream(OneRank(1), {sample});
  const PlanPtr plan = PlanOf(*stream, 0);
  const auto pieces = CutPieces(*stream->processor, plan->plan, plan->plan.phase(kVisionPhase)->order);
  EXPECT_THAT(pieces, ElementsAre(std::pair(0, 4), std::pair(4, 8), std::pair(8, 10)));
  PartBuilder builder(*stream, nullptr);
  uint64_t items = 0;
  for (const PartName& name : builder.PartsOf(*plan, 0)) {
    const auto task = builder.Prepare(plan, name);
    ASSERT_TRUE(task.ok());
    if (name.phase != kVisionPhase) continue;
    EXPECT_LE((*task)->num_bytes(), kMaxPieceBytes + (1 << 16));
    items += (*task)->num_units();
  }
  EXPECT_EQ(items, 10);
}

TEST(PartBuilder, KnowsOnlyThePartsOfThePlan) {
  const auto stream = MakeFakeStream(FakeJob(2, 2), {{.text = "abc"}});
  const PlanPtr plan = PlanOf(*stream, 0);
  PartBuilder builder(*stream, nullptr);
  for (const PartName& name :
       {PartName{.phase = Phase::kLlm, .rank = 2}, PartName{.phase = Phase::kLlm, .microbatch = 1},
        PartName{.phase = Phase::kLlm, .piece = 1}, PartName{.phase = kVisionPhase}}) {
    EXPECT_EQ(builder.Prepare(plan, name).status().code(), absl::StatusCode::kNotFound) << DescribePart(name);
  }
  EXPECT_EQ(builder.PartsOf(*plan, 1).size(), 1) << "no item, no part";
  EXPECT_TRUE(builder.PartsOf(*plan, 7).empty());
}

}  // namespace
}  // namespace evenkeel::stream
