// The process that Python processes are forked from: an interpreter that has loaded the job's processor.
//
// It is started as a program (posix_spawn), at the start and again if it ends, and forks a process for each
// order, which takes milliseconds because everything is imported already. It never reads a medium. It and all
// that it forked end with the worker. Starts after the first are tried at most once in a back-off that doubles
// from 0.1 s to 30 s.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto spawner, PythonSpawner::Start(spec, options));
//     EVENKEEL_ASSIGN_OR_RETURN(PythonSpawner::Child child, spawner->Spawn());
//     // ... calls over child.socket ...
//     int status = spawner->End(child);  // as waitpid reports it
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "core/handle.h"
#include "core/job.h"
#include "isolation/decoder_events.h"
#include "preprocess/python_processes.h"

namespace evenkeel::isolation {

// An interpreter and the script that it runs.
struct PythonProgram {
  std::string
      interpreter;     // a path, or a name in PATH; empty: `python`, or `python3` where PATH has no `python`
  std::string script;  // python_items.py; empty: share/evenkeel next to the folder of this program
};

class PythonSpawner {
 public:
  struct Options {
    PythonProgram program;
    uint64_t memory_bytes = 4ull << 30;           // that one process may allocate after it has started
    absl::Duration start = absl::Minutes(5);      // for the interpreter to load the processor
    absl::Duration patience = absl::Seconds(10);  // for an answer of the process that forks
    DecoderEvents* events = nullptr;              // may be null; must outlive the spawner
  };
  struct Child {
    pid_t pid = -1;
    Handle socket;
    uint64_t spawner = 0;  // number of the process that forked it
  };

  // NotFound: no interpreter or no script. InvalidArgument: the processor cannot be loaded, and why.
  // Unavailable: the machine has no process, or it did not answer.
  static absl::StatusOr<std::unique_ptr<PythonSpawner>> Start(const ProcessorSpec& spec,
                                                              const Options& options);
  ~PythonSpawner();

  // Unavailable: no process can be made now.
  absl::StatusOr<Child> Spawn();
  // Kills the child if it still runs, and returns its wait status: SIGKILL if its spawner is gone.
  int End(const Child& child);

  // The number of the current process that forks. Children of earlier ones have ended.
  uint64_t current() const { return current_; }
  const preprocess::PythonDescription& description() const { return description_; }
  const std::string& interpreter() const { return interpreter_; }

 private:
  PythonSpawner(std::string spec, const Options& options) : spec_(std::move(spec)), options_(options) {}

  // Starts the process, and fills `description` from what it wrote.
  absl::Status Begin(std::string* description) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginAgain(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Stop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int> Exchange(const std::string& order, std::span<const int> files)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string spec_;
  const Options options_;
  std::string interpreter_, script_, described_;  // set once by Start
  preprocess::PythonDescription description_;
  std::atomic<uint64_t> current_{0};
  Mutex mutex_;
  pid_t pid_ ABSL_GUARDED_BY(mutex_) = -1;
  Handle socket_ ABSL_GUARDED_BY(mutex_);
  absl::Time not_before_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Duration back_off_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::isolation
