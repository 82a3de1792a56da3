// Whatever a medium does to its decoder: the attempt fails, the next item is made, and nothing else changes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "isolation/decoder_sandbox.h"
#include "isolation/isolated_processor.h"
#include "stream/part_builder.h"
#include "tests/preprocess/files.h"
#include "tests/stream/fake_stream.h"

namespace evenkeel::isolation {
namespace {

using testing::HasSubstr;

volatile uint64_t sink = 0;

// What a decoder that a medium has taken over might do: the first byte of the item says.
class HostileProcessor final : public preprocess::Processor {
 public:
  absl::StatusOr<MediaFacts> Probe(Medium medium, std::string_view suffix,
                                   std::span<const std::byte> bytes) const override {
    if (absl::Status behaved = Behave(bytes); !behaved.ok()) return behaved;
    MediaFacts facts;
    facts.medium = bytes[0] == std::byte{'?'} ? static_cast<Medium>(200) : medium;
    facts.width = static_cast<uint32_t>(bytes.size());
    facts.height = static_cast<uint32_t>(suffix.size());
    facts.num_frames = facts.fps_num = facts.fps_den = 1;
    facts.sample_rate = facts.channels = bytes[0] == std::byte{'0'} ? 0 : 1;
    return facts;
  }
  absl::Status Produce(const preprocess::ItemRequest& request,
                       std::span<const std::span<std::byte>> fields) const override {
    if (absl::Status behaved = Behave(request.bytes); !behaved.ok()) return behaved;
    if (static_cast<char>(request.bytes[0]) == 'G') Grasp(fields[0]);
    if (static_cast<char>(request.bytes[0]) == 'Y') return absl::OkStatus();  // writes nothing at all
    for (size_t i = 0; i < fields.size(); ++i) {
      for (size_t at = 0; at < fields[i].size(); ++at) {
        fields[i][at] = request.bytes[(at + i) % request.bytes.size()];
      }
    }
    request.notes->samples_filled = request.bytes.size();
    return absl::OkStatus();
  }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts&) const override { return ItemLengths{}; }
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation&, std::span<const SampleItem>,
                                                  std::span<const MediaFacts>) const override {
    return SequenceLengths{};
  }
  Digest digest() const override { return {}; }
  const std::vector<preprocess::FieldSpec>& fields(Medium) const override { return fields_; }
  absl::Status FillInvalid(const preprocess::ItemRequest&,
                           std::span<const std::span<std::byte>>) const override {
    return absl::OkStatus();
  }
  MediaFacts DummyFacts(const Phase&) const override { return {}; }
  absl::Status BuildSequence(const Conversation&, std::span<const SampleItem>, std::span<const MediaFacts>,
                             preprocess::Sequence& out) const override {
    out = preprocess::Sequence{};
    return absl::OkStatus();
  }
  int64_t pad_token() const override { return 0; }

 private:
  // Writes to whatever else of the part it can reach: in the field's own pages, by a file that is still open,
  // by more of a mapping.
  static void Grasp(std::span<std::byte> field) {
    constexpr size_t kReach = 4 * kPageBytes;
    const auto begin = reinterpret_cast<uintptr_t>(field.data());
    auto* first = reinterpret_cast<std::byte*>(begin / kPageBytes * kPageBytes);
    std::memset(first, '!', RoundUpToPage(begin % kPageBytes + field.size()));
    constexpr int kFirstFile = 4;  // below: the standard ones and the socket
    for (int fd = kFirstFile; fd < 16; ++fd) {
      sink = static_cast<uint64_t>(write(fd, "!", 1));
      void* all = mmap(nullptr, kReach, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (all != MAP_FAILED) std::memset(all, '!', kReach);
    }
    if (!kConfinesFully) return;
    for (const size_t mapped : {size_t{0}, size_t{kPageBytes}}) {
      void* more = mremap(first, mapped, kReach, MREMAP_MAYMOVE);
      if (more != MAP_FAILED)
        std::memset(static_cast<std::byte*>(more) + kPageBytes, '!', kReach - kPageBytes);
    }
  }

  static absl::Status Behave(std::span<const std::byte> bytes) {
    switch (static_cast<char>(bytes[0])) {
      case 'X':
        return absl::DataLossError("the data end");
      case 'R':
        return absl::ResourceExhaustedError("17 streams; limits.max_streams is 16");
      case 'T':
        throw std::bad_alloc();
      case 'C':
        std::abort();
      case 'L':
        for (;;) sink = sink + 1;
      case 'M':
        for (;;) std::memset(std::malloc(8 << 20), 1, 8 << 20);
      case 'B':  // one block that no machine has
        return std::malloc(size_t{1} << 46) == nullptr ? absl::DataLossError("no memory") : absl::OkStatus();
      case 'N': {  // what mremap would do
        auto* block = static_cast<std::byte*>(std::malloc(8 << 20));
        std::memset(block, 'n', 8 << 20);
        block = static_cast<std::byte*>(std::realloc(block, 40 << 20));
        const bool kept = block[(8 << 20) - 1] == std::byte{'n'};
        std::free(block);
        return kept ? absl::OkStatus() : absl::InternalError("a block lost its bytes");
      }
      case 'H': {
        std::mutex mutex;
        mutex.lock();
        mutex.lock();
        break;
      }
      case 'S':
        sink = static_cast<uint64_t>(socket(AF_INET, SOCK_STREAM, 0));
        break;
      case 'O':
        sink = static_cast<uint64_t>(open("/etc/hostname", O_RDONLY));
        break;
      case 'F':
        sink = static_cast<uint64_t>(fork());
        break;
      case 'E':
        execl("/bin/true", "true", nullptr);
        break;
      case 'P':
        sink = reinterpret_cast<uint64_t>(
            mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        break;
      case 'Z': {  // what libraries may do: sort much, and write a date
        std::vector<int> values(100000, 3);
        std::qsort(values.data(), values.size(), sizeof(int), [](const void* a, const void* b) {
          return *static_cast<const int*>(a) - *static_cast<const int*>(b);
        });
        const time_t now = 1795272525;
        tm parts{};
        char text[40];
        localtime_r(&now, &parts);
        if (std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now, &parts)) == 0) std::abort();
        break;
      }
      case 'K':  // the worker is of the same user
        sink = static_cast<uint64_t>(syscall(SYS_tgkill, getppid(), getppid(), 0));
        break;
      case 'I': {  // the input's pages, made writable
        auto* page =
            reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(bytes.data()) / kPageBytes * kPageBytes);
        if (mprotect(page, kPageBytes, PROT_READ | PROT_WRITE) == 0) return absl::OkStatus();
        std::abort();
      }
      case 'W':  // the input is not its to write
        const_cast<std::byte&>(bytes[0]) = std::byte{'!'};
        break;
      default:
        break;
    }
    return absl::OkStatus();
  }

  std::vector<preprocess::FieldSpec> fields_;
};

std::vector<std::byte> BytesOf(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

class Decoders : public testing::Test {
 protected:
  void SetUp() override {
    auto decoders = DecoderPool::Start(
        HostileProcessor(),
        {.memory_bytes = 96 << 20, .still = absl::Seconds(1), .patience = absl::Seconds(3)});
    ASSERT_TRUE(decoders.ok()) << decoders.status();
    processor_ = std::make_unique<IsolatedProcessor>(
        std::make_unique<HostileProcessor>(), *std::move(decoders), Isolation::kFfmpeg,
        CpuBudget{.least = absl::Milliseconds(500), .opened_pixels = 0});
  }

  absl::Status Produce(std::string_view text, preprocess::ItemNotes* notes = nullptr) {
    const std::vector<std::byte> bytes = BytesOf(text);
    std::vector<std::byte> a(10000), b(3);
    const std::span<std::byte> fields[] = {a, b};
    const absl::Status made = processor_->Produce(
        {.medium = Medium::kAudio, .suffix = "wav", .bytes = bytes, .notes = notes}, fields);
    if (!made.ok()) return made;
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], bytes[i % bytes.size()]);
    for (size_t i = 0; i < b.size(); ++i) EXPECT_EQ(b[i], bytes[(i + 1) % bytes.size()]);
    return made;
  }
  uint64_t replaced() const { return processor_->decoders().num_replaced(); }

  std::unique_ptr<IsolatedProcessor> processor_;
};

TEST_F(Decoders, ReturnWhatTheProcessorReturns) {
  preprocess::ItemNotes notes;
  EXPECT_TRUE(Produce("good bytes", &notes).ok());
  EXPECT_EQ(notes.samples_filled, 10);
  EXPECT_EQ(Produce("X"), absl::DataLossError("the data end"));
  EXPECT_EQ(Produce("R"), absl::ResourceExhaustedError("17 streams; limits.max_streams is 16"));
  EXPECT_TRUE(absl::IsUnavailable(Produce("T"))) << "memory is no verdict";
  EXPECT_TRUE(Produce("Z").ok());
  const auto facts = processor_->Probe(Medium::kVideo, "seg.mp4", BytesOf("good"));
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->width, 4);
  EXPECT_EQ(facts->height, 7);
  EXPECT_EQ(processor_->Probe(Medium::kVideo, "mp4", BytesOf("X")).status(),
            absl::DataLossError("the data end"));
  EXPECT_EQ(replaced(), 0);
}

TEST_F(Decoders, WriteIntoThePartItselfAndReadFromWhereTheItemLies) {
  SharedMemory& memory = processor_->memory();
  const auto part = memory.Allocate(SharedMemory::Use::kOutput, 50000);
  const auto item = memory.Allocate(SharedMemory::Use::kInput, 20);
  ASSERT_TRUE(part.ok() && item.ok());
  const std::span<std::byte> all = part->bytes();
  std::fill(all.begin(), all.end(), std::byte{'-'});
  std::memcpy(item->bytes().data(), "....abcdefgh........", 20);
  const std::span<std::byte> fields[] = {all.subspan(4000, 9000), all.subspan(20001, 7)};
  preprocess::ItemNotes notes;
  const absl::Status made = processor_->Produce(
      {.medium = Medium::kAudio, .bytes = item->bytes().subspan(4, 8), .notes = &notes}, fields);
  ASSERT_TRUE(made.ok()) << made;
  EXPECT_EQ(std::memcmp(all.data() + 3999, "-abcdefghabc", 12), 0);
  EXPECT_EQ(std::memcmp(all.data() + 20000, "-bcdefgh-", 9), 0);
  EXPECT_EQ(std::count(all.begin(), all.end(), std::byte{'-'}), 50000 - 9007);
}

TEST_F(Decoders, ReachNothingOfThePartBesideTheirItem) {
  constexpr size_t kLarge = 400000;  // that is moved; smaller ones are copied
  const auto part = processor_->memory().Allocate(SharedMemory::Use::kOutput, 2 * kLarge);
  ASSERT_TRUE(part.ok());
  const std::span<std::byte> all = part->bytes();
  for (const size_t size : {size_t{10}, size_t{5000}, kLarge}) {
    for (const size_t begin : {size_t{100}, size_t{kPageBytes}, size_t{3 * kPageBytes - 1}}) {
      std::fill(all.begin(), all.end(), std::byte{'-'});
      const std::span<std::byte> fields[] = {all.subspan(begin, size), all.subspan(begin + size, 10)};
      const std::vector<std::byte> item = BytesOf("G");
      preprocess::ItemNotes notes;
      const absl::Status made =
          processor_->Produce({.medium = Medium::kAudio, .bytes = item, .notes = &notes}, fields);
      ASSERT_TRUE(made.ok()) << made;
      EXPECT_EQ(std::count(all.begin() + begin, all.begin() + begin + size + 10, std::byte{'G'}), size + 10);
      EXPECT_EQ(std::count(all.begin(), all.end(), std::byte{'-'}), all.size() - size - 10);
    }
  }
  EXPECT_EQ(replaced(), 0);
}

// An item of `size` bytes in a part of its own; the part.
class DecodersOfParts : public Decoders {
 protected:
  SharedMemory::Block Part(std::string_view text, size_t size = 400000) {
    SharedMemory::Block part = *processor_->memory().Allocate(SharedMemory::Use::kOutput, size);
    const std::span<std::byte> fields[] = {part.bytes()};
    const std::vector<std::byte> bytes = BytesOf(text);
    preprocess::ItemNotes notes;
    made_ = processor_->Produce({.medium = Medium::kAudio, .bytes = bytes, .notes = &notes}, fields);
    return part;
  }
  static size_t Count(const SharedMemory::Block& part, char c) {
    return static_cast<size_t>(
        std::count(part.bytes().begin(), part.bytes().end(), static_cast<std::byte>(c)));
  }

  absl::Status made_;
};

TEST_F(DecodersOfParts, ReachNoPartWithAnEarlierItemOfTheirs) {
  const SharedMemory::Block first = Part("a");
  ASSERT_TRUE(made_.ok()) << made_;
  { const SharedMemory::Block gone = Part("b"); }
  const SharedMemory::Block hostile = Part("G"), next = Part("c");
  ASSERT_TRUE(made_.ok()) << made_;
  EXPECT_EQ(Count(first, 'a'), first.bytes().size());
  EXPECT_EQ(Count(hostile, 'G'), hostile.bytes().size());
  EXPECT_EQ(Count(next, 'c'), next.bytes().size());
  EXPECT_EQ(replaced(), 0);
}

TEST_F(DecodersOfParts, LeaveNoByteToTheDecoderThatReplacesThem) {
  { const SharedMemory::Block part = Part("s"); }
  {
    const SharedMemory::Block same = Part("Y");  // by the same process: what it wrote itself
    ASSERT_TRUE(made_.ok()) << made_;
    EXPECT_EQ(Count(same, 's'), same.bytes().size());
  }
  const SharedMemory::Block still_there = Part("s");
  { const SharedMemory::Block crashed = Part("C"); }
  ASSERT_TRUE(absl::IsInternal(made_)) << made_;
  for (int i = 0; i < 2; ++i) {
    const SharedMemory::Block next = Part("Y");
    ASSERT_TRUE(made_.ok()) << made_;
    EXPECT_EQ(Count(next, '\0'), next.bytes().size());
  }
  EXPECT_EQ(Count(still_there, 's'), still_there.bytes().size());
  EXPECT_EQ(replaced(), 1);
}

// The only child of a process; 0 where there is none.
pid_t ChildOf(pid_t parent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    std::istringstream rest(line.substr(line.rfind(')') + 2));
    char state = 0;
    pid_t of = 0;
    rest >> state >> of;
    if (of == parent && state != 'Z') return std::stoi(line);
  }
  return 0;
}

TEST_F(Decoders, AreMadeByANewSpawnerWhereTheirsWasKilled) {
  EXPECT_TRUE(Produce("good").ok());
  for (int i = 0; i < 3; ++i) {
    const pid_t nursery = ChildOf(getpid()), spawner = ChildOf(nursery);
    ASSERT_GT(spawner, 0);
    ASSERT_EQ(kill(spawner, SIGKILL), 0);
    // Its decoders end with it, a moment later: one may make an item until then, or have begun it.
    absl::Status made;
    pid_t next = 0;
    for (int attempt = 0; attempt < 10000 && (!made.ok() || next == 0 || next == spawner); ++attempt) {
      made = Produce("good bytes");
      EXPECT_TRUE(made.ok() || absl::IsUnavailable(made)) << made;
      next = ChildOf(nursery);
    }
    EXPECT_TRUE(made.ok()) << made;
    EXPECT_TRUE(next != 0 && next != spawner);
    EXPECT_TRUE(processor_->decoders().health().ok());
  }
}

TEST_F(Decoders, AreMadeByANewSpawnerWhereTheirsStandsStill) {
  const pid_t spawner = ChildOf(ChildOf(getpid()));
  ASSERT_EQ(kill(spawner, SIGSTOP), 0);
  EXPECT_TRUE(absl::IsUnavailable(Produce("C"))) << "it cannot be told how its decoder ended";
  EXPECT_TRUE(Produce("good bytes").ok());
  EXPECT_NE(ChildOf(ChildOf(getpid())), spawner);
}

TEST_F(Decoders, EndAlsoWhereTheirNurseryAndSpawnerStandStill) {
  EXPECT_TRUE(Produce("good").ok());
  const pid_t nursery = ChildOf(getpid()), spawner = ChildOf(nursery);
  ASSERT_EQ(kill(spawner, SIGSTOP), 0);
  ASSERT_EQ(kill(nursery, SIGSTOP), 0);
  processor_.reset();
  EXPECT_EQ(kill(nursery, 0), -1) << "it has ended, and was waited for";
}

TEST_F(Decoders, GiveUpTheirCallsWhenTheyAreAbandoned) {
  ASSERT_EQ(kill(ChildOf(ChildOf(ChildOf(getpid()))), SIGSTOP), 0);
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    processor_->decoders().Abandon();
  });
  const absl::Status waited = Produce("good bytes");
  ending.join();
  EXPECT_TRUE(absl::IsCancelled(waited)) << waited;
  EXPECT_TRUE(absl::IsCancelled(Produce("good bytes"))) << "no decoder works any more";
}

TEST_F(Decoders, ThatWereKilledOrStoppedByOthersDoNotBlameTheirItem) {
  const pid_t decoder = ChildOf(ChildOf(ChildOf(getpid())));
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(decoder, SIGKILL);
  });
  const absl::Status killed = Produce("L");
  killer.join();
  EXPECT_TRUE(absl::IsUnavailable(killed)) << killed;
  ASSERT_EQ(kill(ChildOf(ChildOf(ChildOf(getpid()))), SIGSTOP), 0);
  const absl::Status stopped = Produce("good bytes");
  EXPECT_TRUE(absl::IsUnavailable(stopped)) << stopped;
  EXPECT_TRUE(Produce("good bytes").ok());
}

TEST_F(Decoders, ThatCanNoLongerBeMadeAreNoticed) {
  EXPECT_TRUE(processor_->decoders().health().ok());
  const pid_t nursery = ChildOf(getpid()), spawner = ChildOf(nursery);
  ASSERT_EQ(kill(nursery, SIGKILL), 0);
  ASSERT_EQ(kill(spawner, SIGKILL), 0);
  absl::Status failed;
  for (int attempt = 0; attempt < 1000 && failed.ok(); ++attempt) failed = Produce("good");
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  EXPECT_TRUE(absl::IsUnavailable(processor_->decoders().health()));
}

TEST_F(Decoders, AreNotBelievedAboutAnotherMediumNorFactsThatNoMediumHas) {
  EXPECT_TRUE(processor_->Probe(Medium::kAudio, "wav", BytesOf("good")).ok());
  EXPECT_TRUE(absl::IsInternal(processor_->Probe(Medium::kAudio, "wav", BytesOf("?")).status()));
  EXPECT_TRUE(absl::IsInternal(processor_->Probe(Medium::kAudio, "wav", BytesOf("0")).status()));
}

TEST(DecoderMessage, FactsAreCheckedByMedium) {
  MediaFacts image{.medium = Medium::kImage, .width = 2, .height = 3, .rotation = 270};
  EXPECT_TRUE(CheckFacts(image, Medium::kImage).ok());
  EXPECT_TRUE(absl::IsInternal(CheckFacts(image, Medium::kVideo)));
  image.rotation = 45;
  EXPECT_TRUE(absl::IsInternal(CheckFacts(image, Medium::kImage)));
  MediaFacts video{
      .medium = Medium::kVideo, .width = 2, .height = 3, .num_frames = 1, .fps_num = 25, .fps_den = 1};
  EXPECT_TRUE(CheckFacts(video, Medium::kVideo).ok());
  for (uint32_t MediaFacts::*field : {&MediaFacts::width, &MediaFacts::height, &MediaFacts::num_frames,
                                      &MediaFacts::fps_num, &MediaFacts::fps_den}) {
    MediaFacts without = video;
    without.*field = 0;
    EXPECT_TRUE(absl::IsInternal(CheckFacts(without, Medium::kVideo)));
  }
}

TEST_F(Decoders, MayAllocateAndGrowLargeBlocks) {
  EXPECT_TRUE(Produce("N").ok());
  EXPECT_EQ(replaced(), 0);
}

TEST(CpuBudget, IsTenTimesTheModelAndFiftyMillisecondsAtLeast) {
  const int slower = kConfinesFully ? 1 : 30;
  const CpuBudget budget;
  EXPECT_EQ(budget.ToProbe(Medium::kImage, 0), absl::Milliseconds(50 * slower));
  EXPECT_EQ(budget.ToProbe(Medium::kImage, 1 << 20), absl::Nanoseconds(10.0 * 20 * slower * (1 << 20)));
  // Whatever a container's size, its first frame may be as large as the job allows.
  const CpuBudget small{.opened_pixels = 1'000'000};
  for (const Medium medium : {Medium::kVideo, Medium::kAudio})
    EXPECT_EQ(small.ToProbe(medium, 1000), absl::Nanoseconds(10.0 * slower * (20 * 1000 + 15 * 1e6)));
  EXPECT_GT(budget.ToProbe(Medium::kVideo, 0), absl::Seconds(5 * slower));
  MediaFacts facts;
  facts.medium = Medium::kImage;
  facts.width = facts.height = 1000;
  EXPECT_EQ(budget.ToProduce(facts, 100000, 50000),
            absl::Nanoseconds(10.0 * slower * (10 * 1e6 + 10 * 1e5 + 10 * 5e4)));
  // A scan may code nothing and still passes over every coefficient; there are no more than the job allows.
  const CpuBudget scanned{.most_scans = 9};
  EXPECT_EQ(scanned.ToProduce(facts, 0, 0, 8), absl::Nanoseconds(10.0 * slower * (10 + 8) * 1e6));
  EXPECT_EQ(scanned.ToProduce(facts, 0, 0, 200), absl::Nanoseconds(10.0 * slower * (10 + 9) * 1e6));
  // ... and other streams of a container may have frames as large.
  facts.medium = Medium::kVideo;
  facts.num_frames = 3;
  EXPECT_EQ(small.ToProduce(facts, 0, 0), absl::Nanoseconds(10.0 * slower * 15 * (3 * 1e6 + 1e6)));
  facts.medium = Medium::kAudio;
  EXPECT_EQ(small.ToProduce(facts, 0, 0), absl::Nanoseconds(10.0 * slower * 15 * 1e6));
}

TEST(CpuBudget, CountsTheScansOfAJpeg) {
  EXPECT_EQ(ScansOf(preprocess::Golden("images/baseline-420.jpg")), 1);
  EXPECT_EQ(ScansOf(preprocess::Golden("images/progressive.jpg")), 10);
  EXPECT_EQ(ScansOf(preprocess::Golden("images/lossy.webp")), 0);
  EXPECT_EQ(ScansOf({}), 0);
}

class Reasons : public DecoderEvents {
 public:
  void OnDecoderReplaced(std::string_view reason, std::string_view) override {
    ++counts[std::string(reason)];
  }
  void OnSpawnerReplaced(const absl::Status&) override {}
  std::map<std::string, int> counts;
};

TEST_F(Decoders, AreReplacedAtOnceAndTheNextItemIsMade) {
  Reasons reasons;
  processor_->decoders().CountInto(&reasons);
  struct Case {
    const char* item;
    const char* reason;
  };
  std::vector<Case> cases = {{"C", "crash"}, {"L", "cpu"}, {"W", "crash"}, {"I", "crash"}};
#ifndef __SANITIZE_THREAD__  // whose own thread is never quite still
  cases.push_back({"H", "still"});
#endif
  if (kConfinesFully) {
    const std::vector<Case> confined = {
        {"M", "memory"},         {"B", "memory"},         {"S", "forbidden_call"}, {"O", "forbidden_call"},
        {"F", "forbidden_call"}, {"E", "forbidden_call"}, {"P", "forbidden_call"}, {"K", "forbidden_call"}};
    cases.insert(cases.end(), confined.begin(), confined.end());
  }
  uint64_t count = 0;
  for (const Case& c : cases) {
    const absl::Status failed = Produce(c.item);
    EXPECT_TRUE(absl::IsInternal(failed)) << c.item << ": " << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(absl::StrCat("replaced: ", c.reason))) << c.item;
    EXPECT_EQ(replaced(), ++count) << c.item;
    EXPECT_TRUE(Produce("good again").ok()) << c.item;
  }
  EXPECT_EQ(reasons.counts["cpu"], 1);
  processor_->decoders().CountInto(nullptr);
}

TEST_F(Decoders, ServeManyThreadsWhileOthersOfThemCrash) {
  std::atomic<int> good = 0, failed = 0, verdicts = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const bool crashes = i % 10 == t, bad = i % 10 == t + 1;
        const absl::Status made = Produce(crashes ? "C" : bad ? "X" : absl::StrCat("item ", t, " ", i));
        ++(made.ok() ? good : absl::IsDataLoss(made) ? verdicts : failed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 160);
  EXPECT_EQ(verdicts, 20);
  EXPECT_EQ(failed, 20);
  EXPECT_EQ(replaced(), 20);
}

TEST_F(Decoders, LeaveOtherMediaToTheProcessorItself) {
  EXPECT_TRUE(processor_->is_isolated(Medium::kAudio));
  EXPECT_FALSE(processor_->is_isolated(Medium::kImage));
  EXPECT_TRUE(IsIsolated(Isolation::kAll, Medium::kImage));
  EXPECT_FALSE(IsIsolated(Isolation::kOff, Medium::kVideo));
  EXPECT_TRUE(IsIsolated(Isolation::kFfmpeg, Medium::kImage, "0.heic")) << "FFmpeg decodes it";
  EXPECT_FALSE(IsIsolated(Isolation::kFfmpeg, Medium::kImage, "jpg"));
  EXPECT_FALSE(IsIsolated(Isolation::kOff, Medium::kImage, "avif"));
}

// A file as the kernel knows it: its number is another's only when the file is gone.
ino_t FileOf(const SharedMemory& memory, const SharedMemory::Block& block) {
  struct stat status {};
  EXPECT_EQ(fstat(memory.Find(block.bytes())->fd, &status), 0);
  return status.st_ino;
}

TEST(SharedMemory, UsesInputsAgainAndPartsNever) {
  const auto memory = SharedMemory::Make();
  const auto allocate = [&](SharedMemory::Use use) { return *memory->Allocate(use, 100); };
  const void* input = allocate(SharedMemory::Use::kInput).bytes().data();
  EXPECT_EQ(allocate(SharedMemory::Use::kInput).bytes().data(), input);
  {
    auto block = allocate(SharedMemory::Use::kOutput);
    block.bytes()[5] = std::byte{7};
  }
  const auto block = allocate(SharedMemory::Use::kOutput);
  EXPECT_EQ(block.bytes()[5], std::byte{0});
  EXPECT_TRUE(memory->Find(block.bytes().subspan(7)).has_value());
  std::vector<std::byte> other(10);
  EXPECT_FALSE(memory->Find(other).has_value());
}

class Outputs : public testing::Test {
 protected:
  // The first byte of an output of `writer`, which is then marked by it.
  int Mark(SharedMemory::Writer writer, size_t size = 3 * kPageBytes) {
    auto block = memory_->AllocateFor(writer, size);
    EXPECT_TRUE(block.ok()) << block.status();
    EXPECT_EQ(block->bytes().size(), size);
    const int found = static_cast<int>(block->bytes()[0]);
    std::fill(block->bytes().begin(), block->bytes().end(), static_cast<std::byte>(writer));
    return found;
  }

  const std::shared_ptr<SharedMemory> memory_ = SharedMemory::Make();
};

TEST_F(Outputs, AreUsedAgainForTheirWriterAlone) {
  EXPECT_EQ(Mark(1), 0);
  EXPECT_EQ(Mark(2), 0);
  EXPECT_EQ(Mark(3), 0);
  EXPECT_EQ(Mark(2), 2);
  EXPECT_EQ(Mark(1), 1);
  const auto one = memory_->AllocateFor(1, 3 * kPageBytes);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->bytes()[0], std::byte{1});
  EXPECT_EQ(Mark(1), 0) << "the one that it had is in use";
}

TEST_F(Outputs, OfAWriterThatEndedAreNeverUsedAgain) {
  EXPECT_EQ(Mark(1), 0);
  EXPECT_EQ(Mark(2), 0);
  auto in_use = memory_->AllocateFor(1, 9 * kPageBytes);
  ASSERT_TRUE(in_use.ok());
  in_use->bytes()[0] = std::byte{9};
  memory_->Forget(1);
  *in_use = SharedMemory::Block();
  for (const SharedMemory::Writer writer : {3, 4}) {
    EXPECT_EQ(Mark(writer, 3 * kPageBytes), 0);
    EXPECT_EQ(Mark(writer, 9 * kPageBytes), 0);
  }
  EXPECT_EQ(Mark(2), 2) << "another's stay";
}

TEST_F(Outputs, AreUsedAgainForAboutTheirSizeAndHaveNoPagesBeyondIt) {
  EXPECT_EQ(Mark(1, 100 * kPageBytes), 0);
  EXPECT_EQ(Mark(1, 10 * kPageBytes), 0) << "nine tenths would be given up";
  EXPECT_EQ(Mark(1, 90 * kPageBytes - 1), 1);
  EXPECT_EQ(Mark(1, 11 * kPageBytes), 1);
  const auto larger = memory_->AllocateFor(1, 100 * kPageBytes);
  ASSERT_TRUE(larger.ok());
  EXPECT_EQ(larger->bytes()[0], std::byte{1});
  EXPECT_EQ(std::count(larger->bytes().begin(), larger->bytes().end(), std::byte{0}), 10 * kPageBytes)
      << "what was cut away is gone";
}

TEST_F(Outputs, AreInUseWhileAPartHasPagesOfThem) {
  constexpr size_t kSize = 100 * kPageBytes;
  auto part = memory_->Allocate(SharedMemory::Use::kOutput, 3 * kSize);
  auto made = memory_->AllocateFor(1, kSize);
  ASSERT_TRUE(part.ok() && made.ok());
  const ino_t file = FileOf(*memory_, *made);
  std::fill(made->bytes().begin(), made->bytes().end(), std::byte{'a'});
  ASSERT_TRUE(memory_->Move(*made, 0, part->bytes().subspan(kSize, kSize)).ok());
  *made = SharedMemory::Block();
  {
    auto next = memory_->AllocateFor(1, kSize);
    ASSERT_TRUE(next.ok());
    EXPECT_NE(FileOf(*memory_, *next), file);
    EXPECT_EQ(next->bytes()[0], std::byte{0});
    std::fill(next->bytes().begin(), next->bytes().end(), std::byte{'b'});
    ASSERT_TRUE(memory_->Move(*next, 0, part->bytes().first(kSize)).ok());
  }
  EXPECT_EQ(std::count(part->bytes().begin(), part->bytes().end(), std::byte{'a'}), kSize);
  EXPECT_EQ(std::count(part->bytes().begin(), part->bytes().end(), std::byte{'b'}), kSize);
  *part = SharedMemory::Block();
  const auto again = memory_->AllocateFor(1, kSize);
  const auto another = memory_->AllocateFor(1, kSize);
  ASSERT_TRUE(again.ok() && another.ok());
  EXPECT_NE(again->bytes()[0], std::byte{0});
  EXPECT_NE(another->bytes()[0], std::byte{0});
  EXPECT_NE(again->bytes()[0], another->bytes()[0]);
}

TEST_F(Outputs, AreKeptUpToABoundTheLatestFirst) {
  constexpr size_t kSize = 40 << 20;  // three fit into 128 MiB
  std::vector<SharedMemory::Block> blocks;
  for (int i = 1; i <= 4; ++i) {
    blocks.push_back(*memory_->AllocateFor(i, kSize));
    blocks.back().bytes()[0] = static_cast<std::byte>(i);
  }
  blocks.clear();  // from the first to the last
  EXPECT_EQ(Mark(1, kSize), 0);
}

TEST_F(Outputs, TakeAQuarterOfTheFileHandlesAtMost) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{40, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto memory = SharedMemory::Make();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<SharedMemory::Block> blocks;
  for (int i = 0; i < 12; ++i) {
    blocks.push_back(*memory->AllocateFor(1, kPageBytes));
    blocks.back().bytes()[0] = std::byte{1};
  }
  blocks.clear();
  int again = 0;
  for (int i = 0; i < 12; ++i) {
    blocks.push_back(*memory->AllocateFor(1, kPageBytes));
    again += static_cast<int>(blocks.back().bytes()[0]);
  }
  EXPECT_EQ(again, 10);
}

TEST(SharedMemory, MovesWholePagesAndCopiesWhatIsBesideThem) {
  constexpr size_t kSize = 300001,
                   kAt = 2 * kPageBytes - 5;  // five bytes before a page, and some behind the last
  const auto memory = SharedMemory::Make();
  auto part = memory->Allocate(SharedMemory::Use::kOutput, 2 * kSize);
  auto made = memory->Allocate(SharedMemory::Use::kOutput, kSize + kPageBytes);
  ASSERT_TRUE(part.ok() && made.ok());
  const std::span<std::byte> all = part->bytes(), from = made->bytes();
  std::fill(all.begin(), all.end(), std::byte{'-'});
  std::fill(from.begin(), from.end(), std::byte{'m'});
  ASSERT_TRUE(memory->Move(*made, kPageBytes - 5, all.subspan(kAt, kSize)).ok());
  EXPECT_EQ(std::count(all.begin() + kAt, all.begin() + kAt + kSize, std::byte{'m'}), kSize);
  EXPECT_EQ(std::count(all.begin(), all.end(), std::byte{'-'}), kSize);
  std::fill(from.begin(), from.end(), std::byte{'l'});  // who still has the file reaches what was moved alone
  const size_t whole = (kSize - 5) / kPageBytes * kPageBytes;
  EXPECT_EQ(std::count(all.begin(), all.end(), std::byte{'l'}), whole);
  EXPECT_EQ(std::count(all.begin() + kAt + 5, all.begin() + kAt + 5 + whole, std::byte{'l'}), whole);
  *made = SharedMemory::Block();
  EXPECT_EQ(all[kAt + 1000], std::byte{'l'}) << "what was moved outlives its block";

  std::vector<std::byte> heap(kSize);
  const auto other = memory->Allocate(SharedMemory::Use::kOutput, kSize);
  ASSERT_TRUE(other.ok());
  other->bytes()[kSize - 1] = std::byte{'h'};
  ASSERT_TRUE(memory->Move(*other, 0, heap).ok());
  EXPECT_EQ(heap[kSize - 1], std::byte{'h'});
}

TEST(DecoderPool, StartsOnlyWhereThereIsOneThread) {
  if (!kConfinesFully) GTEST_SKIP() << "sanitizers have threads of their own";
  std::mutex hold;
  hold.lock();
  std::thread other([&] { std::lock_guard<std::mutex> lock(hold); });
  const auto decoders = DecoderPool::Start(HostileProcessor(), {});
  hold.unlock();
  other.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(decoders.status())) << decoders.status();
}

TEST(DecoderPool, StartsOnlyWithTheMemoryThatAnItemNeeds) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{64 << 20} - 1, UINT64_MAX}) {
    const absl::Status status = DecoderPool::Start(HostileProcessor(), {.memory_bytes = bytes}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--decoder-memory must be from 64 MiB"));
  }
}

// Of a stream whose audio is decoded by processes: what a part then is.
TEST(IsolatedStream, MakesTheSamePartsAndNamesTheSampleThatCrashedItsDecoder) {
  Job job = stream::FakeJob(1, 4);
  job.isolation = Isolation::kAll;
  std::vector<stream::FakeSample> samples = stream::MixedSamples(4);
  samples[2].items = {{.medium = Medium::kAudio, .bytes = "Threw"}};
  for (const bool isolated : {false, true}) {
    const auto stream = stream::MakeFakeStream(job, samples);
    if (isolated) {
      auto decoders = DecoderPool::Start(*stream->processor, {});
      ASSERT_TRUE(decoders.ok()) << decoders.status();
      Isolate(stream->processor, *std::move(decoders), stream->job);
    }
    const auto plan = std::make_shared<const stream::StepPlan>(*stream::PlanStep(*stream, 0));
    stream::PartBuilder builder(*stream, nullptr);
    int failed = 0;
    for (const PartName& name : builder.PartsOf(*plan, 0)) {
      const auto task = builder.Prepare(plan, name);
      ASSERT_TRUE(task.ok());
      EXPECT_EQ((*task)->is_shared(), isolated && name.phase != Phase::kLlm);
      std::vector<std::byte> part((*task)->num_bytes());
      (*task)->Begin(part);
      for (size_t unit = 0; unit < (*task)->num_units(); ++unit) {
        const absl::Status made = (*task)->RunUnit(unit, part);
        if (made.ok()) continue;
        ++failed;
        EXPECT_TRUE(absl::IsInternal(made)) << made;
        EXPECT_THAT(stream::ExcludeLine(made), HasSubstr("/key-2")) << made;
      }
    }
    EXPECT_EQ(failed, 1);
  }
}

}  // namespace
}  // namespace evenkeel::isolation
