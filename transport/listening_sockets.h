// The TCP sockets that this process listens on, to notice when a library has closed one of its own.
//
// Example:
//     const ListeningSockets others = ListeningSockets::OfProcess();
//     library.Open();
//     const ListeningSockets own = ListeningSockets::OfProcess().Without(others);
//     if (absl::Status open = own.CheckOpen(); !open.ok()) return open;  // one of them was closed
//
// Thread safety: immutable. A socket that another thread opens between the two calls counts as the library's.
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
  // The sockets that are open now.
  static ListeningSockets OfProcess();
  ListeningSockets Without(const ListeningSockets& others) const;

  size_t size() const { return sockets_.size(); }
  std::set<uint16_t> ports() const;
  // Unavailable, with the port, if one of them is closed. Needs no file handle.
  absl::Status CheckOpen() const;

 private:
  struct Socket {
    int handle;
    ino_t inode;  // the kernel reuses a handle's number, not its inode
    uint16_t port;
    auto operator<=>(const Socket&) const = default;
  };
  std::set<Socket> sockets_;
};

}  // namespace evenkeel::transport
