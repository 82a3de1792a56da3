#include "tests/transport/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace evenkeel::transport {

namespace {

// Keeps what is mounted from here on out of other namespaces. In a chroot the root may be no mount point, but
// /sys is.
bool KeepMountsHere() {
  constexpr unsigned long kPrivate = MS_REC | MS_PRIVATE;
  return mount("none", "/", nullptr, kPrivate, nullptr) == 0 ||
         mount("none", "/sys", nullptr, kPrivate, nullptr) == 0;
}

// With a /sys that shows its devices, which is where UCX looks for them.
bool EnterOwnNetwork() {
  return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 && KeepMountsHere() &&
         mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
}

}  // namespace

PeerProcess::PeerProcess(bool is_source, Backend backend, bool own_network,
                         std::vector<std::string> arguments) {
  std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "transport_peer").string();
  std::vector<std::string> words = {program, is_source ? "source" : "sink", BackendName(backend)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) abort();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    if (own_network && !EnterOwnNetwork()) _exit(3);
    execv(argv[0], argv.data());
    _exit(4);
  }
  close(to[0]);
  close(from[1]);
  in_ = to[1];
  out_ = from[0];
}

PeerProcess::~PeerProcess() {
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(in_);
  close(out_);
}

void PeerProcess::Signal(int signal) { kill(pid_, signal); }

void PeerProcess::Tell(const std::string& line) {
  std::string text = line + "\n";
  (void)!write(in_, text.data(), text.size());
}

bool PeerProcess::ReadMore(absl::Time deadline) {
  pollfd ready{out_, POLLIN, 0};
  int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
  if (left < 0 || poll(&ready, 1, static_cast<int>(left) + 1) <= 0) return false;
  char bytes[4096];
  ssize_t count = read(out_, bytes, sizeof(bytes));
  if (count <= 0) return false;
  partial_.append(bytes, count);
  for (size_t end; (end = partial_.find('\n')) != std::string::npos; partial_.erase(0, end + 1)) {
    lines_.push_back(partial_.substr(0, end));
  }
  return true;
}

std::string PeerProcess::Hear(const std::string& word, absl::Duration timeout) {
  absl::Time deadline = absl::Now() + timeout;
  do {
    for (auto line = lines_.begin(); line != lines_.end(); ++line) {
      if (*line != word && !absl::StartsWith(*line, word + " ")) continue;
      std::string rest = *line == word ? "" : line->substr(word.size() + 1);
      lines_.erase(line);
      return rest;
    }
  } while (ReadMore(deadline));
  return "timeout";
}

bool PeerProcess::Start(absl::Duration connect_timeout) {
  std::istringstream answer(Ask(absl::StrCat("start ", absl::ToInt64Milliseconds(connect_timeout)), "start"));
  std::string outcome;
  answer >> outcome >> address >> endpoint;
  if (outcome != "good") address = answer.str();
  return outcome == "good";
}

bool OpenSession(PeerProcess& source, PeerProcess& sink, int session) {
  return source.Ask(absl::StrCat("connect ", session, " ", sink.address, " none"), "connected") == "OK" &&
         sink.Ask(absl::StrCat("connect ", session, " ", source.address, " ", source.endpoint),
                  "connected") == "OK";
}

}  // namespace evenkeel::transport
