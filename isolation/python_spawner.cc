// Starts the interpreter with python_items.py, and the orders by which it forks and ends processes.
#include "isolation/python_spawner.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "isolation/child_watch.h"
#include "isolation/decoder_sandbox.h"
#include "isolation/python_message.h"

namespace evenkeel::isolation {
namespace {

constexpr absl::Duration kMinBackOff = absl::Milliseconds(100), kMaxBackOff = absl::Seconds(30);
constexpr absl::Duration kHelloPatience = absl::Seconds(30);
constexpr off_t kMaxDescription = 16 << 20;
constexpr size_t kMaxErrorText = 2000;
constexpr char kScript[] = "share/evenkeel/python_items.py";

// One thread a process: the worker has as many processes as threads. And nothing is loaded from a network.
constexpr const char* kEnvironment[] = {
    "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1",      "OPENBLAS_NUM_THREADS=1", "TOKENIZERS_PARALLELISM=false",
    "HF_HUB_OFFLINE=1",  "TRANSFORMERS_OFFLINE=1", "PYTHONHASHSEED=0",       "PYTHONUNBUFFERED=1"};

bool IsProgram(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

absl::StatusOr<std::string> FindInterpreter(const std::string& given) {
  std::vector<std::string> names = {given};
  if (given.empty()) names = {"python", "python3"};
  const char* path = std::getenv("PATH");
  for (const std::string& name : names) {
    if (name.find('/') != std::string::npos) {
      if (IsProgram(name)) return name;
      continue;
    }
    for (absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
      std::string candidate = absl::StrCat(folder, "/", name);
      if (IsProgram(candidate)) return candidate;
    }
  }
  return absl::NotFoundError(
      given.empty() ? "processor.python: PATH has neither python nor python3; name an interpreter by --python"
                    : absl::StrCat("--python ", given, ": is not a program that can be run"));
}

absl::StatusOr<std::string> FindScript(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path script = program.parent_path().parent_path() / kScript;
  if (!error && std::filesystem::exists(script, error)) return script.string();
  return absl::NotFoundError(absl::StrCat(
      script.string(), ": is missing; it is installed with the program, and processor.python needs it"));
}

absl::StatusOr<Handle> MemoryFile(const char* name) {
  Handle file(memfd_create(name, MFD_CLOEXEC));
  if (file.get() >= 0) return file;
  return absl::UnavailableError(absl::StrCat("memfd_create: ", std::strerror(errno)));
}

std::string Contents(const Handle& file, off_t most) {
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0 || facts.st_size == 0) return "";
  const off_t begin = std::max<off_t>(0, facts.st_size - most);  // the end of what is longer
  std::string text(static_cast<size_t>(facts.st_size - begin), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), begin);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

// The files of a process that is about to start, by their numbers there.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void Open(int number, const char* path) {
    posix_spawn_file_actions_addopen(&actions_, number, path, O_RDWR, 0);
  }
  // A copy with a high number first, so that no file is overwritten before it is used.
  absl::Status Give(int number, int file) {
    constexpr int kHigh = 100;
    Handle high(fcntl(file, F_DUPFD_CLOEXEC, kHigh));
    if (high.get() < 0) return absl::UnavailableError(absl::StrCat("fcntl: ", std::strerror(errno)));
    posix_spawn_file_actions_adddup2(&actions_, high.get(), number);
    copies_.push_back(std::move(high));
    return absl::OkStatus();
  }
  // Once the process has been started: then only it holds its end of a socket, and its end can be noticed.
  void CloseCopies() { copies_.clear(); }
  void CloseFrom(int number) { posix_spawn_file_actions_addclosefrom_np(&actions_, number); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
  std::vector<Handle> copies_;
};

// This process's environment with kEnvironment in place of its own values.
std::vector<char*> Environment() {
  std::vector<char*> out;
  for (char** own = environ; *own != nullptr; ++own) {
    const absl::string_view name = absl::string_view(*own).substr(0, absl::string_view(*own).find('=') + 1);
    const bool replaced = std::any_of(std::begin(kEnvironment), std::end(kEnvironment),
                                      [&](const char* ours) { return absl::StartsWith(ours, name); });
    if (!replaced) out.push_back(*own);
  }
  for (const char* ours : kEnvironment) out.push_back(const_cast<char*>(ours));
  out.push_back(nullptr);
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PythonSpawner>> PythonSpawner::Start(const ProcessorSpec& spec,
                                                                    const Options& options) {
  std::unique_ptr<PythonSpawner> spawner(new PythonSpawner(PythonSpec(spec, options.memory_bytes), options));
  EVENKEEL_ASSIGN_OR_RETURN(spawner->interpreter_, FindInterpreter(options.program.interpreter));
  EVENKEEL_ASSIGN_OR_RETURN(spawner->script_, FindScript(options.program.script));
  MutexLock lock(spawner->mutex_);
  EVENKEEL_RETURN_IF_ERROR(spawner->Begin(&spawner->described_));
  EVENKEEL_ASSIGN_OR_RETURN(spawner->description_, ReadPythonDescription(spawner->described_));
  return spawner;
}

PythonSpawner::~PythonSpawner() {
  MutexLock lock(mutex_);
  Stop();
}

absl::Status PythonSpawner::Begin(std::string* description) {
  EVENKEEL_ASSIGN_OR_RETURN(auto ends, MakeSocketPair());
  EVENKEEL_ASSIGN_OR_RETURN(const Handle described, MemoryFile("python-description"));
  EVENKEEL_ASSIGN_OR_RETURN(const Handle filter, MemoryFile("python-filter"));
  EVENKEEL_ASSIGN_OR_RETURN(const Handle errors, MemoryFile("python-errors"));
  if (kConfinesFully) EVENKEEL_RETURN_IF_ERROR(WritePythonFilter(filter.get()));
  if (lseek(filter.get(), 0, SEEK_SET) != 0) return absl::UnavailableError("lseek of a memory file");
  FileActions files;
  files.Open(STDIN_FILENO, "/dev/null");
  files.Open(STDOUT_FILENO, "/dev/null");
  constexpr int kSocket = 3, kDescription = 4, kFilter = 5;  // as python_items.py has them
  EVENKEEL_RETURN_IF_ERROR(files.Give(STDERR_FILENO, errors.get()));
  EVENKEEL_RETURN_IF_ERROR(files.Give(kSocket, ends.second.get()));
  EVENKEEL_RETURN_IF_ERROR(files.Give(kDescription, described.get()));
  EVENKEEL_RETURN_IF_ERROR(files.Give(kFilter, filter.get()));
  files.CloseFrom(kFilter + 1);
  std::string script = script_, spec = spec_, name = interpreter_;
  char* const arguments[] = {name.data(), script.data(), spec.data(), nullptr};
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, interpreter_.c_str(), files.get(), nullptr, arguments, Environment().data());
  if (error != 0)
    return absl::UnavailableError(absl::StrCat(interpreter_, ": posix_spawn: ", std::strerror(error)));
  pid_ = pid;
  socket_ = std::move(ends.first);
  ends.second = Handle();
  files.CloseCopies();
  absl::Status loaded = WaitUntilReadable(socket_.get(), options_.start, interpreter_);
  if (loaded.ok()) {
    const absl::StatusOr<std::string> hello = ReceiveText(socket_.get());
    if (hello.ok()) {
      const absl::StatusOr<PythonReply> reply = ReadPythonReply(*hello);
      loaded = reply.ok() ? reply->status : reply.status();
    } else {
      loaded = absl::InvalidArgumentError(
          absl::StrCat("ended before it had loaded the processor: ", Contents(errors, kMaxErrorText)));
    }
  }
  if (!loaded.ok()) {
    Stop();
    return AddContext(loaded, absl::StrCat("processor.python, interpreter ", interpreter_,
                                           " (--python names another one)"));
  }
  ++current_;
  *description = Contents(described, kMaxDescription);
  return absl::OkStatus();
}

absl::Status PythonSpawner::BeginAgain(const absl::Status& why) {
  if (pid_ > 0) {
    if (options_.events != nullptr) options_.events->OnSpawnerReplaced(why);
    Stop();
  }
  // A short wait costs less than a failed attempt.
  constexpr absl::Duration kMaxWait = absl::Seconds(1);
  const absl::Duration left = not_before_ - SteadyNow();
  if (left > absl::ZeroDuration() && left <= kMaxWait) absl::SleepFor(left);
  if (left > kMaxWait) {
    return absl::UnavailableError(absl::StrCat("the Python interpreter ended and is started again in ",
                                               absl::FormatDuration(not_before_ - SteadyNow())));
  }
  back_off_ = std::clamp(2 * back_off_, kMinBackOff, kMaxBackOff);
  not_before_ = SteadyNow() + back_off_;
  std::string described;
  if (const absl::Status begun = Begin(&described); !begun.ok())
    return absl::UnavailableError(begun.message());
  if (described != described_) {
    Stop();
    return absl::UnavailableError(
        "the Python code, its packages or the checkpoint changed since the worker started; restart the "
        "worker");
  }
  return absl::OkStatus();
}

void PythonSpawner::Stop() {
  socket_ = Handle();
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);  // what it forked ends with it
  int status = 0;
  (void)waitpid(pid_, &status, 0);
  pid_ = -1;
}

absl::StatusOr<int> PythonSpawner::Exchange(const std::string& order, std::span<const int> files) {
  EVENKEEL_RETURN_IF_ERROR(SendText(socket_.get(), order, files));
  EVENKEEL_RETURN_IF_ERROR(
      WaitUntilReadable(socket_.get(), options_.patience, "the process that forks Python processes"));
  EVENKEEL_ASSIGN_OR_RETURN(const std::string reply, ReceiveText(socket_.get()));
  return ReadPythonDone(reply);
}

absl::StatusOr<PythonSpawner::Child> PythonSpawner::Spawn() {
  Child child;
  {
    MutexLock lock(mutex_);
    if (pid_ < 0) EVENKEEL_RETURN_IF_ERROR(BeginAgain(absl::OkStatus()));
    EVENKEEL_ASSIGN_OR_RETURN(auto ends, MakeSocketPair());
    const int files[] = {ends.second.get()};
    absl::StatusOr<int> pid = Exchange(PythonForkOrder(), files);
    if (!pid.ok()) {
      EVENKEEL_RETURN_IF_ERROR(BeginAgain(pid.status()));
      pid = Exchange(PythonForkOrder(), files);
    }
    if (!pid.ok()) return pid.status();
    child = {.pid = *pid, .socket = std::move(ends.first), .spawner = current_};
  }
  absl::Status confined = WaitUntilReadable(child.socket.get(), kHelloPatience, "a new Python process");
  if (confined.ok()) {
    const absl::StatusOr<std::string> text = ReceiveText(child.socket.get());
    const absl::StatusOr<PythonReply> hello = text.ok() ? ReadPythonReply(*text) : text.status();
    confined = hello.ok() ? hello->status : hello.status();
  }
  if (!confined.ok()) {
    (void)End(child);
    return confined;
  }
  MutexLock lock(mutex_);
  back_off_ = absl::ZeroDuration();
  return child;
}

int PythonSpawner::End(const Child& child) {
  MutexLock lock(mutex_);
  if (child.spawner != current_ || pid_ < 0) return SIGKILL;
  const absl::StatusOr<int> status = Exchange(PythonEndOrder(child.pid), {});
  if (status.ok()) return *status;
  (void)BeginAgain(status.status());
  return SIGKILL;
}

}  // namespace evenkeel::isolation
