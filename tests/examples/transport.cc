// The examples of transport/.
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <iostream>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "core/status.h"
#include "transport/certificates.h"
#include "transport/chunk.h"
#include "transport/copy.h"
#include "transport/credentials.h"
#include "transport/listening_sockets.h"
#include "transport/loan.h"
#include "transport/memory_file.h"

namespace evenkeel::transport {

absl::Status Open(const TlsFiles& files, const CertificateLog& log) {
#include "examples/transport/certificates.h.inc"
  return absl::OkStatus();
}

void Append(std::span<const std::byte> data);
absl::Status Chunks(ChunkHead head, grpc::ByteBuffer message) {
#include "examples/transport/chunk.h.inc"
  return absl::OkStatus();
}

absl::Status Authenticate(const TlsFiles& tls, const std::string& listen, const std::string& target,
                          const CertificateLog& log, int port) {
#include "examples/transport/credentials.h.inc"
  return absl::OkStatus();
}

void Copy(std::span<std::byte> part, size_t offset, std::span<const std::byte> chunk) {
#include "examples/transport/copy.h.inc"
}

void LendBytes(std::shared_ptr<Lender> lender, Done done, std::span<const std::byte> bytes,
               const absl::Status& status) {
#include "examples/transport/loan.h.inc"
}

struct Library {
  void Open();
  void Watch(const std::string& path);
};
absl::Status Listen(Library& library) {
#include "examples/transport/listening_sockets.h.inc"
  return absl::OkStatus();
}
absl::Status Watch(Library& library, const std::string& text, const std::string& other) {
#include "examples/transport/memory_file.h.inc"
  return absl::OkStatus();
}

}  // namespace evenkeel::transport
