// How a worker watches a process that works for it: its CPU time while a reply is awaited, and why it ended.
//
// Thread safety: pure functions, except that WaitForReply adds to the calling thread's RemoteWork().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace evenkeel::isolation {

// Waits until the reply can be read from `socket`; then the result is empty. Otherwise it is the reason why the
// process is given up: "cpu" (it used more than `cpu_budget`), "still" (it used no CPU time for `still`),
// "crash" (it is gone), "abandoned" (`abandoned` became true). Its CPU time is added to RemoteWork(), which the
// part pool reads as progress.
std::string WaitForReply(pid_t pid, int socket, absl::Duration cpu_budget, absl::Duration still,
                         const std::atomic<bool>& abandoned);

// The reason of a process that ended by itself, from its wait status: "forbidden_call", "killed", "memory" or
// "crash".
std::string ReasonOf(int wait_status);
// "signal 9, Killed" or "exit code 1".
std::string DescribeEnd(int wait_status);
// Whether a process is stopped or waits for a disk: then the item did not make it stand still.
bool IsStopped(pid_t pid);
// The failure of the attempt after a process was replaced for `reason`. Unavailable: it was killed or stopped
// by others. A process that stood still is a failure of the machine (core/failure.h).
absl::Status ReplacedError(const std::string& what, const std::string& reason, bool was_stopped);

// Waits until a message can be read. Unavailable: none came within `patience`; names `what` did not answer.
absl::Status WaitUntilReadable(int socket, absl::Duration patience, std::string_view what);

}  // namespace evenkeel::isolation
