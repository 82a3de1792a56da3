// Whatever Python code does with an item: a verdict or a failed attempt, and the next item is made.
#include "isolation/python_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "isolation/decoder_sandbox.h"
#include "tests/source_dir.h"

namespace evenkeel::isolation {
namespace {

using testing::HasSubstr;

constexpr char kPython[] = "/usr/bin/python3";

// An item's first byte says what its process does.
constexpr char kSource[] = R"(
import os
import sys
import time

import numpy as np


class Behaves:
    media = {"image": {"placeholder": "<image>", "fields": {"values": ("uint8", ("rows", 2)), "sides": ("int64", (1, 2))}},
             "audio": {"lengths": "bytes", "fields": {"values": ("float32", ("rows",))}}}

    def __init__(self, folder):
        self.kept = []

    def lengths(self, item):
        if item.medium == "audio":
            return len(item.bytes), 7, 9
        if item.facts["width"] == 13:
            raise ValueError("no such width")
        return item.facts["width"], item.facts["height"]

    def process(self, item):
        what = chr(item.bytes[0])
        if item.medium == "audio":
            values = np.frombuffer(item.bytes, np.uint8).astype(np.float32)
            if what == "N":
                values[1] = np.inf
            return {"values": values}
        rows = item.facts["width"]
        out = {"values": np.frombuffer(item.bytes[: 2 * rows], np.uint8).reshape(rows, 2),
               "sides": np.array([[item.facts["width"], item.facts["height"]]])}
        if what == "C":
            os.abort()
        if what == "E":
            os._exit(0)
        if what == "H":
            while True:
                pass
        if what == "S":
            time.sleep(1000)
        if what == "L":
            while True:
                self.kept.append(np.ones(1 << 20))
        if what == "R":
            out["values"] = out["values"][1:]
        if what == "D":
            out["values"] = out["values"].astype(np.int64)
        if what == "P":
            print("{}" * 1000, flush=True)
            os.write(1, b"x" * 100000)
            os.write(2, b"x" * 100000)
        if what == "W":
            os.write(3, b'{"code": 0, "lengths": [1, -1, "a"], "runs": 5}')
        if what == "V":
            os.write(3, b'{"code": 0, "number": 1}')
        if what == "X":
            raise IndexError("past the end")
        if what == "O":
            open("/etc/hostname")
        if what == "F":
            os.fork()
        return out
)";

std::vector<std::byte> BytesOf(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

class PythonProcessesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system(absl::StrCat(kPython, " -c 'import numpy' 2>/dev/null").c_str()) != 0)
      GTEST_SKIP() << kPython << " has no numpy";
    folder_ = absl::StrCat(testing::TempDir(), "/python-pool-", getpid());
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/behaves.py") << kSource;
    setenv("PYTHONPATH", folder_.c_str(), 1);
    spec_.python = "behaves:Behaves";
    spec_.vision = spec_.audio = folder_;
    options_.spawner.program = {.interpreter = kPython,
                                .script = std::string(SourceDir()) + "/isolation/python_items.py"};
    options_.spawner.memory_bytes = 128 << 20;
    options_.cpu = absl::Seconds(1);
    options_.still = absl::Seconds(2);
    auto pool = PythonPool::Start(spec_, options_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }
  void TearDown() override {
    pool_.reset();
    std::filesystem::remove_all(folder_);
  }

  static MediaFacts Picture(uint32_t width) {
    MediaFacts facts;
    facts.width = width;
    facts.height = 5;
    return facts;
  }

  // Produces an item of 8 rows, and checks what was made if it was.
  absl::Status Produce(char what) {
    const std::vector<std::byte> bytes = BytesOf(std::string(1, what) + "bcdefghijklmnopqrst");
    std::vector<std::byte> values(16), sides(16);
    const std::span<std::byte> fields[] = {values, sides};
    const absl::Status made = pool_->Produce({.medium = Medium::kImage,
                                              .suffix = "png",
                                              .bytes = bytes,
                                              .facts = Picture(8),
                                              .planned = {5, 8, 5}},
                                             fields);
    if (!made.ok()) return made;
    EXPECT_EQ(std::memcmp(values.data(), bytes.data(), values.size()), 0);
    int64_t seen[2];
    std::memcpy(seen, sides.data(), sizeof(seen));
    EXPECT_EQ(seen[0], 8);
    EXPECT_EQ(seen[1], 5);
    return made;
  }

  // All processes of this test, the one that forks the others among them.
  std::vector<pid_t> Processes() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      int pid = 0;
      if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
      std::ifstream file(entry.path() / "cmdline");
      const std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (line.find("python_items.py") != std::string::npos && line.find(folder_) != std::string::npos)
        found.push_back(pid);
    }
    return found;
  }

  std::string folder_;
  ProcessorSpec spec_;
  PythonPool::Options options_;
  std::shared_ptr<PythonPool> pool_;
};

TEST_F(PythonProcessesTest, DescribeTheClass) {
  const preprocess::PythonDescription& described = pool_->description();
  EXPECT_EQ(described.name, "behaves:Behaves");
  ASSERT_EQ(described.media.size(), 2);
  EXPECT_EQ(described.media[0].placeholder, "<image>");
  EXPECT_FALSE(described.media[0].measures_stored);
  EXPECT_TRUE(described.media[1].measures_stored);
  ASSERT_EQ(described.media[0].fields.size(), 2);
  EXPECT_TRUE(described.media[0].fields[0].per_row);
  EXPECT_EQ(described.media[0].fields[1].dtype, DType::kI64);
  EXPECT_EQ(described.versions[0].first, "python");
  EXPECT_EQ(described.versions.back().first, "source");
}

TEST_F(PythonProcessesTest, MeasureByFactsAndByBytes) {
  auto lengths = pool_->Measure(Picture(21), "png", {});
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_EQ(lengths->lengths, (ItemLengths{5, 21, 5}));
  MediaFacts sound;
  sound.medium = Medium::kAudio;
  lengths = pool_->Measure(sound, "wav", BytesOf("0123"));
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_EQ(lengths->lengths, (ItemLengths{9, 4, 7}));
  lengths = pool_->Measure(Picture(13), "png", {});
  EXPECT_TRUE(absl::IsInvalidArgument(lengths.status()));
  EXPECT_THAT(lengths.status().message(), HasSubstr("ValueError: no such width"));
}

TEST_F(PythonProcessesTest, MakeItems) { EXPECT_TRUE(Produce('a').ok()); }

TEST_F(PythonProcessesTest, WhatTheyPrintReachesNobody) {
  EXPECT_TRUE(Produce('P').ok());
  EXPECT_TRUE(Produce('a').ok());
  EXPECT_EQ(pool_->num_replaced(), 0);
}

TEST_F(PythonProcessesTest, GiveVerdictsOnWrongResults) {
  const std::pair<char, const char*> wrong[] = {{'R', "values: has shape [7, 2], expected [8, 2]"},
                                                {'D', "values: has values of type int64, expected uint8"},
                                                {'X', "IndexError: past the end"}};
  for (const auto& [what, message] : wrong) {
    const absl::Status made = Produce(what);
    EXPECT_TRUE(IsVerdict(made)) << made;
    EXPECT_THAT(made.message(), HasSubstr(message));
  }
  std::vector<std::byte> values(16);
  const std::span<std::byte> fields[] = {values};
  const absl::Status made = pool_->Produce({.medium = Medium::kAudio,
                                            .bytes = BytesOf("Nbcd"),
                                            .facts = {.medium = Medium::kAudio},
                                            .planned = {1, 4, 1}},
                                           fields);
  EXPECT_TRUE(IsVerdict(made)) << made;
  EXPECT_THAT(made.message(), HasSubstr("values: 1 of 4 values are not finite"));
  EXPECT_EQ(pool_->num_replaced(), 0);
}

TEST_F(PythonProcessesTest, AreReplacedAtOnceAndTheNextItemIsMade) {
  const std::pair<char, const char*> failures[] = {
      {'C', "crash"}, {'E', "crash"}, {'H', "cpu"}, {'W', "crash"}, {'V', "crash"}};
  uint64_t replaced = 0;
  for (const auto& [what, reason] : failures) {
    const absl::Status made = Produce(what);
    EXPECT_TRUE(absl::IsInternal(made)) << what << ": " << made;
    EXPECT_FALSE(IsVerdict(made));
    EXPECT_THAT(made.message(), HasSubstr(reason));
    EXPECT_EQ(pool_->num_replaced(), ++replaced);
    EXPECT_TRUE(Produce('a').ok()) << what;
  }
}

TEST_F(PythonProcessesTest, ThatLeakEndWithoutBlamingTheItem) {
  if (!kConfinesFully) GTEST_SKIP() << "sanitizers reserve memory of their own";
  const absl::Status made = Produce('L');
  EXPECT_TRUE(absl::IsInternal(made)) << made;
  EXPECT_THAT(made.message(), HasSubstr("memory"));
  EXPECT_TRUE(Produce('a').ok());
}

TEST_F(PythonProcessesTest, ThatStandStillAreFailuresOfTheMachine) {
  const absl::Status made = Produce('S');
  EXPECT_EQ(KindOf(made), FailureKind::kMachine) << made;
  EXPECT_THAT(made.message(), HasSubstr("still"));
  EXPECT_TRUE(Produce('a').ok());
}

TEST_F(PythonProcessesTest, MayNotOpenFilesOrFork) {
  if (!kConfinesFully) GTEST_SKIP() << "sanitizers make system calls of their own";
  for (const char what : {'O', 'F'}) {
    const absl::Status made = Produce(what);
    EXPECT_TRUE(absl::IsInternal(made)) << what << ": " << made;
    EXPECT_THAT(made.message(), HasSubstr("PermissionError"));
  }
  EXPECT_TRUE(Produce('a').ok());
}

// EVENKEEL_KILLS=1000 takes three minutes.
TEST_F(PythonProcessesTest, SurviveManyKills) {
  const char* given = std::getenv("EVENKEEL_KILLS");
  int wanted = 60;
  if (given != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(given, &wanted));
  }
  int kills = 0, failed = 0, made = 0;
  while (kills < wanted) {
    // Every twentieth round the process that forks the others is killed, too.
    const std::vector<pid_t> processes = Processes();
    for (size_t i = processes.size() > 1 && made % 20 != 0 ? 1 : 0; i < processes.size(); ++i)
      kills += kill(processes[i], SIGKILL) == 0;
    for (int retry = 0; retry < 200; ++retry) {
      const absl::Status one = Produce('a');
      if (one.ok()) break;
      EXPECT_EQ(KindOf(one), FailureKind::kMachine) << one;
      ++failed;
      usleep(50'000);
    }
    ASSERT_TRUE(Produce('b').ok());
    ++made;
  }
  EXPECT_GT(pool_->num_replaced(), 0);
  EXPECT_LT(failed, 200 * made);
}

TEST_F(PythonProcessesTest, NoticeThatAnInterpreterIsKilledWhileItStarts) {
  for (const pid_t pid : Processes()) kill(pid, SIGKILL);
  std::thread killer([this] {
    for (int i = 0; i < 5; ++i) {
      usleep(60'000);
      for (const pid_t pid : Processes()) kill(pid, SIGKILL);
    }
  });
  absl::Status made = Produce('a');
  killer.join();
  for (int retry = 0; !made.ok() && retry < 200; ++retry) {
    EXPECT_EQ(KindOf(made), FailureKind::kMachine) << made;
    usleep(50'000);
    made = Produce('a');
  }
  EXPECT_TRUE(made.ok()) << made;
}

TEST_F(PythonProcessesTest, EndWithThePool) {
  ASSERT_TRUE(Produce('a').ok());
  EXPECT_GE(Processes().size(), 2);
  pool_.reset();
  for (int i = 0; i < 100 && !Processes().empty(); ++i) usleep(20'000);
  EXPECT_TRUE(Processes().empty());
}

TEST_F(PythonProcessesTest, ServeManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        if (t == 0 && i % 5 == 0) {
          EXPECT_TRUE(absl::IsInternal(Produce('C')));
        } else {
          EXPECT_TRUE(Produce('a').ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(Processes().size(), 5 + 4);
}

TEST_F(PythonProcessesTest, RefuseWhatCannotBeLoaded) {
  spec_.python = "behaves:Missing";
  auto pool = PythonPool::Start(spec_, options_);
  EXPECT_TRUE(absl::IsInvalidArgument(pool.status())) << pool.status();
  EXPECT_THAT(pool.status().message(), HasSubstr("has no attribute 'Missing'"));
  EXPECT_THAT(pool.status().message(), HasSubstr(kPython));
  options_.spawner.program.interpreter = "/nowhere/python";
  EXPECT_TRUE(absl::IsNotFound(PythonPool::Start(spec_, options_).status()));
}

}  // namespace
}  // namespace evenkeel::isolation
