// The TCP sockets at which this process listens, to notice that a library closed one of its own.
//
// Example:
//     const ListeningSockets others = ListeningSockets::OfProcess();
//     library.Open();
//     const ListeningSockets own = ListeningSockets::OfProcess().Without(others);
//     if (absl::Status open = own.CheckOpen(); !open.ok()) return open;  // one of them was closed
//
// Thread safety: immutable. What another thread opens meanwhile is taken for the library's.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>

#include "absl/status/status.h"

namespace evenkeel::transport {

class ListeningSockets {
 public:
  // Those that are open now.
  static ListeningSockets OfProcess();
  ListeningSockets Without(const ListeningSockets& others) const;

  size_t size() const { return sockets_.size(); }
  std::set<uint16_t> ports() const;
  // Unavailable, with the port, where one of them is closed. Needs no file handle.
  absl::Status CheckOpen() const;

 private:
  struct Socket {
    int handle;
    ino_t inode;  // a handle's number is used again
    uint16_t port;
    auto operator<=>(const Socket&) const = default;
  };
  std::set<Socket> sockets_;
};

}  // namespace evenkeel::transport
