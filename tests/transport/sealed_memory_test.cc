// Sealed memory, and that its pages reach a consumer's buffer without a copy and without a way back.
#include "transport/sealed_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "core/digest.h"
#include "tests/transport/peers.h"

namespace evenkeel::transport {
namespace {

constexpr size_t kPage = 4096;

// Private memory that begins at a page, as a consumer's receive memory is.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) abort();
    data_ = static_cast<std::byte*>(data);
  }
  ~Pages() { munmap(data_, bytes_); }
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  const size_t bytes_;
  std::byte* data_;
};

SealedMemory Sealed(const std::vector<std::byte>& content) {
  absl::StatusOr<SealedMemory> memory = SealedMemory::CopyOf(content);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

// True if the mapping that contains `address` is one of a part's file.
bool IsPartsFile(const std::byte* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at >= begin && at < end) return absl::StrContains(line, "memfd:evenkeel-part");
  }
  return false;
}

TEST(SealedMemory, KeepsItsBytesWhenItIsSealed) {
  for (size_t bytes : {size_t{0}, size_t{1}, kPage, 3 * kPage + 17}) {
    const std::vector<std::byte> content = Payload(bytes, 1);
    const SealedMemory memory = Sealed(content);
    absl::StatusOr<ReceivedMemory> received = ReceivedMemory::Map(memory.handle(), bytes);
    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_TRUE(
        std::equal(content.begin(), content.end(), received->bytes().begin(), received->bytes().end()));
  }
}

TEST(SealedMemory, CannotBeChangedByAnybody) {
  const SealedMemory memory = Sealed(Payload(2 * kPage, 1));
  EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memory.handle(), 0), MAP_FAILED);
  EXPECT_EQ(pwrite(memory.handle(), "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(memory.handle(), 0), -1);
  EXPECT_EQ(ftruncate(memory.handle(), 3 * kPage), -1);
  EXPECT_EQ(fallocate(memory.handle(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), -1);
  EXPECT_EQ(fcntl(memory.handle(), F_ADD_SEALS, F_SEAL_SHRINK), -1);
}

TEST(SealedMemory, IsNotReceivedUnlessItIsSealedAndOfTheAnnouncedSize) {
  const Handle open(memfd_create("open", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(open.get(), kPage), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReceivedMemory::Map(open.get(), kPage).status()));
  const SealedMemory sealed = Sealed(Payload(kPage, 1));
  for (uint64_t bytes : {uint64_t{0}, uint64_t{kPage - 1}, uint64_t{kPage + 1}, UINT64_MAX}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReceivedMemory::Map(sealed.handle(), bytes).status())) << bytes;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ReceivedMemory::Map(STDIN_FILENO, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReceivedMemory::Map(-1, 0).status()));
}

TEST(SealedMemory, OfHugePagesIsNotReceived) {
  const int huge = memfd_create("huge", MFD_HUGETLB | MFD_ALLOW_SEALING | MFD_CLOEXEC);
  if (huge < 0) GTEST_SKIP() << "no huge pages here: " << strerror(errno);
  const Handle owned(huge);
  ASSERT_EQ(ftruncate(huge, 2 << 20), 0);
  ASSERT_EQ(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
  // Reading a huge page that the machine does not have would end this process.
  EXPECT_TRUE(absl::IsInvalidArgument(ReceivedMemory::Map(huge, 2 << 20).status()));
}

void ExpectMoves() {
  for (size_t bytes : {size_t{1}, kPage, kPage + 1, 5 * kPage + 100}) {
    const std::vector<std::byte> content = Payload(bytes, 1);
    const SealedMemory memory = Sealed(content);
    const Pages pages(8 * kPage);
    std::fill(pages.span().begin(), pages.span().end(), std::byte{0x5a});
    absl::StatusOr<ReceivedMemory> received = ReceivedMemory::Map(memory.handle(), bytes);
    ASSERT_TRUE(received.ok()) << received.status();
    received->MoveTo(pages.span().first(bytes));
    EXPECT_TRUE(std::equal(content.begin(), content.end(), pages.span().begin()));
    EXPECT_TRUE(std::all_of(pages.span().begin() + bytes, pages.span().end(),
                            [](std::byte b) { return b == std::byte{0x5a}; }));
    EXPECT_EQ(IsPartsFile(pages.span().data()), bytes >= kPage);
  }
}

TEST(SealedMemory, MovesWholePagesAndTheRestAndNothingBeyond) { ExpectMoves(); }

// UCX replaces mmap and mremap in the whole process while it watches memory, whoever loaded it.
TEST(SealedMemory, MovesAllThatWhereUcxWatchesMemory) {
  void* const library = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);  // which loads libucm
  if (library == nullptr) GTEST_SKIP() << "no UCX here: " << dlerror();
  using Handler = void (*)(unsigned event_type, void* event, void* argument);
  using SetHandler = int8_t (*)(int events, int priority, Handler handler, void* argument);
  const auto set_handler = reinterpret_cast<SetHandler>(dlsym(library, "ucm_set_event_handler"));
  ASSERT_NE(set_handler, nullptr);
  constexpr int kMappedAndUnmapped = 3 << 16;  // UCM_EVENT_VM_MAPPED, UCM_EVENT_VM_UNMAPPED
  const int status = set_handler(
      kMappedAndUnmapped, 0, [](unsigned, void*, void*) {}, nullptr);
  if (status != 0) GTEST_SKIP() << "UCX may not watch memory here: " << status;
  ExpectMoves();
}

// Two ranks that get the same part: each may write to its arrays in place.
TEST(HandedOverMemory, CanBeWrittenAndChangesNothingForOthers) {
  const std::vector<std::byte> content = Payload((1 << 20) + 100, 1);
  const Options options = OptionsFor(Backend::kMemory);
  absl::StatusOr<std::unique_ptr<WorkerSide>> worker = WorkerSide::Start(Backend::kMemory, options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  Source& source = (*worker)->source();
  const Pages one(2 << 20), two(2 << 20);
  std::vector<std::unique_ptr<Sink>> sinks;
  for (const Pages* pages : {&one, &two}) {
    const SessionId session = sinks.size() + 1;
    sinks.push_back(*MakeSink(Backend::kMemory, options));
    Sink& sink = *sinks.back();
    ASSERT_TRUE(sink.RegisterMemory(pages->span()).ok());
    ASSERT_TRUE(source.Connect(session, sink.address(), SecretOf(1)).ok());
    ASSERT_TRUE(sink.Connect(session, "worker:1", source.address(), SecretOf(1)).ok());
    Outcome sent, arrived;
    sink.Expect(session, 1, pages->span().first(content.size()), arrived.callback());
    source.Send(session, 1, content, DigestOf(content), absl::Seconds(50), sent.callback());
    ASSERT_TRUE(arrived.Wait().ok()) << arrived.Wait();
    ASSERT_TRUE(sent.Wait().ok());
    ASSERT_TRUE(IsPartsFile(pages->span().data())) << "the pages were copied";
  }
  std::fill(one.span().begin(), one.span().end(), std::byte{0x5a});
  EXPECT_TRUE(std::equal(content.begin(), content.end(), two.span().begin()));
}

TEST(HandedOverMemory, WithAWrongHashLeavesTheBufferAlone) {
  const std::vector<std::byte> content = Payload(1 << 20, 1);
  const Options options = OptionsFor(Backend::kMemory);
  absl::StatusOr<std::unique_ptr<WorkerSide>> worker = WorkerSide::Start(Backend::kMemory, options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  Source& source = (*worker)->source();
  const std::unique_ptr<Sink> sink = *MakeSink(Backend::kMemory, options);
  const Pages pages(1 << 20);
  ASSERT_TRUE(sink->RegisterMemory(pages.span()).ok());
  ASSERT_TRUE(source.Connect(1, sink->address(), SecretOf(1)).ok());
  ASSERT_TRUE(sink->Connect(1, "worker:1", source.address(), SecretOf(1)).ok());
  Outcome sent, arrived;
  sink->Expect(1, 1, pages.span(), arrived.callback());
  source.Send(1, 1, content, DigestOf("another"), absl::Seconds(50), sent.callback());
  EXPECT_TRUE(absl::IsDataLoss(arrived.Wait())) << arrived.Wait();
  EXPECT_TRUE(sent.Wait().ok());
  EXPECT_FALSE(IsPartsFile(pages.span().data()));
}

}  // namespace
}  // namespace evenkeel::transport
