// From shards on disk to parts, through the real index, processor and planner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "dataset/index/index_builder.h"
#include "stream/part_builder.h"
#include "tests/preprocess/allocations.h"
#include "tests/source_dir.h"

namespace evenkeel::stream {
namespace {

// A ustar archive, member by member.
class Tar {
 public:
  void Add(const std::string& name, const std::string& body) {
    std::string header(512, '\0');
    const auto put = [&header](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    char number[13];
    std::snprintf(number, sizeof(number), "%011o", static_cast<unsigned>(body.size()));
    put(124, number);
    put(136, "00000000000");
    put(156, "0");
    put(257, std::string("ustar\0"
                         "00",
                         8));
    put(148, "        ");
    unsigned sum = 0;
    for (unsigned char c : header) sum += c;
    std::snprintf(number, sizeof(number), "%06o", sum);
    put(148, std::string(number) + std::string("\0 ", 2));
    bytes_ += header + body;
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
  }
  void WriteTo(const std::filesystem::path& path) const {
    std::ofstream(path, std::ios::binary) << bytes_ << std::string(1024, '\0');
  }

 private:
  std::string bytes_;
};

std::string Png(uint32_t width, uint32_t height, uint8_t seed) {
  std::string pixels(size_t{3} * width * height, '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(seed * i * i + i);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(image, size, 0, pixels.data(), 0, nullptr);
  std::string out(size, '\0');
  png_image_write_to_memory(&image, out.data(), &size, 0, pixels.data(), 0, nullptr);
  out.resize(size);
  return out;
}

std::string Wav(uint32_t num_samples) {
  const auto u32 = [](uint32_t v) { return std::string(reinterpret_cast<const char*>(&v), 4); };
  const auto u16 = [](uint16_t v) { return std::string(reinterpret_cast<const char*>(&v), 2); };
  std::string data;
  for (uint32_t i = 0; i < num_samples; ++i) data += u16(static_cast<uint16_t>(i * i % 20000));
  const std::string format = u16(1) + u16(1) + u32(16000) + u32(32000) + u16(2) + u16(16);
  return "RIFF" + u32(36 + data.size()) + "WAVEfmt " + u32(16) + format + "data" + u32(data.size()) + data;
}

// Two samples of each kind, and a picture whose header is in order and whose pixels are not.
void WriteShard(const std::filesystem::path& path) {
  Tar tar;
  for (int i = 0; i < 2; ++i) {
    tar.Add(absl::StrCat("p", i, ".png"), Png(60 + 40 * i, 90, 3 + i));
    tar.Add(absl::StrCat("p", i, ".txt"), "a picture of nothing");
    tar.Add(absl::StrCat("s", i, ".wav"), Wav(8000 + 5000 * i));
    tar.Add(absl::StrCat("s", i, ".txt"), "a sound of nothing");
    tar.Add(absl::StrCat("t", i, ".txt"), "only words, and some more of them");
    tar.Add(
        absl::StrCat("c", i, ".json"),
        R"({"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"what\u003f\n"}]},)"
        R"({"role":"assistant","content":"nothing that anybody would know \"by name\""}]})");
    tar.Add(absl::StrCat("c", i, ".png"), Png(70 + 50 * i, 80, 5 + i));
  }
  std::string damaged = Png(90, 60, 7);
  damaged.replace(damaged.size() / 2, 40, std::string(40, 'z'));
  tar.Add("x.png", damaged);
  tar.Add("x.txt", "a damaged picture");
  tar.WriteTo(path);
}

class RealStream : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / absl::StrCat("real_stream_", getpid());
    std::filesystem::create_directories(folder_);
    WriteShard(folder_ / "a.tar");
    const std::string golden = SourceDir() + "/tests/golden";
    const std::string yaml = absl::StrCat(
        "seed: 7\nindex: index\ndatasets: [{name: a, shards: [\"a.tar\"]}]\nprocessor:\n  vision: ", golden,
        "/processor/qwen2-vl\n  audio: ", golden, "/processor/qwen2-audio\n  tokenizer: ", golden,
        "/tokenizer\n  chat: chatml\nbatch: {samples: 9}\nmicrobatch: {capacity_tokens: 600, align: "
        "8}\nphases:\n"
        "  - {name: llm, ranks: 0-1}\n  - {name: vision, ranks: 0-1}\n  - {name: audio, ranks: 0-1}\n");
    absl::StatusOr<Job> job = ParseJob(yaml, (folder_ / "job.yaml").string());
    ASSERT_TRUE(job.ok()) << job.status();
    const auto processor = preprocess::Processor::Load(job->processor, job->limits);
    ASSERT_TRUE(processor.ok()) << processor.status();
    const std::unique_ptr<dataset::ByteSource> source = dataset::MakeFileSource();
    dataset::IndexBuilder builder(*job, **processor, *source);
    ASSERT_TRUE(builder.Prepare().ok());
    for (size_t i = 0; i < builder.num_shards(); ++i) ASSERT_TRUE(builder.BuildShard(i).ok());
    const auto summary = builder.Summarise();
    ASSERT_TRUE(summary.ok()) << summary.status();
    ASSERT_TRUE(builder.Commit().ok());
    ASSERT_EQ(summary->num_samples, 9);
    absl::StatusOr<std::unique_ptr<Stream>> stream = OpenStream(*std::move(job));
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(RealStream, DeliversEveryPlaceholderAndFlagsTheDamagedPicture) {
  absl::StatusOr<StepPlan> planned = PlanStep(*stream_, 0);
  ASSERT_TRUE(planned.ok()) << planned.status();
  const auto plan = std::make_shared<const StepPlan>(*std::move(planned));
  ASSERT_TRUE(reorder::PlanCheck(stream_->job, plan->samples, plan->plan).ok());
  PartBuilder builder(*stream_, nullptr);
  int64_t rows = 0, samples = 0, valid = 0, invalid = 0, loss_tokens = 0;
  for (uint32_t rank : {0, 1}) {
    for (const PartName& name : builder.PartsOf(*plan, rank)) {
      const auto task = builder.Prepare(plan, name);
      ASSERT_TRUE(task.ok()) << task.status();
      std::vector<std::byte> bytes((*task)->num_bytes());
      (*task)->Begin(bytes);
      for (size_t unit = 0; unit < (*task)->num_units(); ++unit) {
        const absl::Status made = (*task)->RunUnit(unit, bytes);
        ASSERT_TRUE(made.ok()) << made;
      }
      const absl::StatusOr<PartView> view = ReadPart(bytes);
      ASSERT_TRUE(view.ok()) << view.status();
      const auto each = [&view](std::string_view tensor, auto zero, auto use) {
        const TensorView* found = view->tensor(tensor);
        ASSERT_NE(found, nullptr) << tensor;
        using T = decltype(zero);
        for (size_t i = 0; i < found->spec.num_elements(); ++i)
          use(reinterpret_cast<const T*>(found->bytes().data())[i]);
      };
      if (name.phase == Phase::kLlm) {
        each("mm_token_type_ids", int64_t{}, [&](int64_t type) { rows -= type != 0; });
        each("sample_valid", uint8_t{}, [&](uint8_t flag) { samples += flag; });
        each("labels", int64_t{}, [&](int64_t label) { loss_tokens += label != -100; });
      } else {
        each("item_rows", int64_t{}, [&](int64_t count) { rows += count; });
        each("item_valid", uint8_t{}, [&](uint8_t flag) { ++(flag ? valid : invalid); });
      }
    }
  }
  EXPECT_EQ(rows, 0);
  EXPECT_EQ(samples, 9);
  EXPECT_EQ(valid, 6);
  EXPECT_EQ(invalid, 1);
  EXPECT_EQ(loss_tokens, plan->plan.loss_tokens);
}

// From the bytes of a sample to ids, labels and positions in the part, by a style of our own: rendering a
// template allocates.
TEST_F(RealStream, TextAllocatesNothingInTheSteadyState) {
  const auto plan = std::make_shared<const StepPlan>(*PlanStep(*stream_, 0));
  PartBuilder builder(*stream_, nullptr);
  struct Part {
    std::unique_ptr<PartTask> task;
    std::vector<std::byte> bytes;
  };
  std::vector<Part> parts;
  for (uint32_t rank : {0, 1}) {
    for (const PartName& name : builder.PartsOf(*plan, rank)) {
      if (name.phase != Phase::kLlm) continue;
      Part& part = parts.emplace_back(Part{.task = *builder.Prepare(plan, name)});
      part.bytes.resize(part.task->num_bytes());
      part.task->Begin(part.bytes);
    }
  }
  int samples = 0;
  const auto run = [&] {
    for (Part& part : parts) {
      for (size_t unit = 0; unit < part.task->num_units(); ++unit) {
        samples += part.task->RunUnit(unit, part.bytes).ok();
      }
    }
  };
  run();
  EXPECT_EQ(samples, 9);
  const preprocess::CountedAllocations counted;
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(counted.count(), 0u);
}

TEST_F(RealStream, FailsTheAttemptWhereAShardBecameShorter) {
  std::filesystem::resize_file(folder_ / "a.tar", 512);
  const auto plan = std::make_shared<const StepPlan>(*PlanStep(*stream_, 0));
  PartBuilder builder(*stream_, nullptr);
  int failed = 0;
  for (const PartName& name : builder.PartsOf(*plan, 0)) {
    const auto task = builder.Prepare(plan, name);
    ASSERT_TRUE(task.ok());
    std::vector<std::byte> bytes((*task)->num_bytes());
    (*task)->Begin(bytes);
    for (size_t unit = 0; unit < (*task)->num_units(); ++unit) {
      const absl::Status made = (*task)->RunUnit(unit, bytes);
      EXPECT_FALSE(made.ok()) << "not a verdict on the data";
      EXPECT_EQ(KindOf(made), FailureKind::kMachine) << made;
      EXPECT_EQ(ExcludeLine(made), "") << "the sample is not at fault";
      ++failed;
    }
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace evenkeel::stream
