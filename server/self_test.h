// Regularly calls the worker's own control plane as a consumer would: a worker that answers /metrics but no
// longer accepts consumers must not look healthy.
//
// Example:
//     SelfTest test({.target = "ipv4:127.0.0.1:7000", .credentials = credentials});
//     test.failures();  // consecutive failures so far
//
// A test makes a new connection and one call of Describe. With TLS it presents the worker's own certificate.
// Not every certificate is valid for a client, and it may expire: if the connection is refused, the control
// plane still passes if it reads and answers the beginning of a handshake.
//
// Thread safety: all members may be called from many threads. It has a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"

namespace grpc {
class ChannelCredentials;
}

namespace evenkeel::server {

class SelfTest {
 public:
  struct Options {
    std::string target;  // Listener::dial
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    bool tls = false;
    absl::Duration interval = absl::Seconds(10);  // between the end of a test and the next
    absl::Duration deadline = absl::Seconds(5);   // of one test
  };

  explicit SelfTest(Options options);
  ~SelfTest();
  SelfTest(const SelfTest&) = delete;
  SelfTest& operator=(const SelfTest&) = delete;

  // Waits for a running test, for `deadline` at most.
  void Stop();

  uint32_t failures() const { return failures_; }     // consecutive
  uint64_t total_failures() const { return total_; }  // since the start
  std::string last_error() const;                     // of the latest failure

 private:
  void Run();
  absl::Status Test() const;

  const Options options_;
  std::atomic<uint32_t> failures_{0};
  std::atomic<uint64_t> total_{0};
  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace evenkeel::server
