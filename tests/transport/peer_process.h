// A transport_peer under the test's control.
#pragma once

#include <sys/types.h>

#include <list>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/transport/peers.h"

namespace evenkeel::transport {

class PeerProcess {
 public:
  // `own_network`: in a network namespace of its own, which must be permitted. `arguments`: device and
  // address.
  PeerProcess(bool is_source, Backend backend, bool own_network = false,
              std::vector<std::string> arguments = {});
  ~PeerProcess();  // kills it

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  void Tell(const std::string& line);
  // The rest of the next line that begins with `word` (earlier ones that do not are kept for later);
  // "timeout".
  std::string Hear(const std::string& word, absl::Duration timeout = absl::Seconds(60));
  std::string Ask(const std::string& line, const std::string& word) {
    Tell(line);
    return Hear(word);
  }
  // "start", and what it answered. False, with the reason in `address`, where it cannot. Only who waits for
  // `connect_timeout` to pass makes it short: a busy machine takes seconds to connect.
  bool Start(absl::Duration connect_timeout = absl::Seconds(30));
  std::string address, endpoint;

 private:
  bool ReadMore(absl::Time deadline);

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string partial_;
  std::list<std::string> lines_;
};

// Connects `session` on both, as server and client do.
bool OpenSession(PeerProcess& source, PeerProcess& sink, int session);

}  // namespace evenkeel::transport
