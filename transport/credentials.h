// Who may speak on the control plane, and the gRPC settings that both sides must agree on.
//
// Either all three files are given, and every connection is mutually authenticated TLS; or none is, and only
// loopback addresses may be bound or dialled, with a warning that says INSECURE.
//
//   EVENKEEL_RETURN_IF_ERROR(CheckAddress(tls, listen));  // PermissionDenied: no loopback, no certificate
//   if (!tls.given()) std::cerr << kInsecureWarning << "\n";
//   EVENKEEL_ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(tls));
//   grpc::ServerBuilder builder;
//   ConfigureServer(builder);
//   builder.AddListeningPort(listen, credentials, &port);
//
//   auto channel = grpc::CreateCustomChannel(target, *MakeChannelCredentials(tls), ClientArguments());
//
// Thread safety: functions without state.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
class ServerBuilder;
class ServerCredentials;
}  // namespace grpc

namespace evenkeel::transport {

// Paths of PEM files: this process's certificate chain and private key, and the authority that signs its
// peers'.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string ca;

  bool given() const { return !certificate.empty() || !key.empty() || !ca.empty(); }
};

inline constexpr std::string_view kInsecureWarning =
    "INSECURE: no certificate, key and CA were given; connections are neither encrypted nor authenticated "
    "and are "
    "restricted to loopback addresses";

// No message on the control plane is larger. Parts travel in chunks of at most kChunkBytes.
inline constexpr int kMaxControlMessageBytes = 4 << 20;
inline constexpr int kChunkBytes = 1 << 20;

// InvalidArgument: some but not all three files, or files that no connection could be made with (a key that
// does not belong to its certificate, one that has expired, files swapped: CheckTlsFiles); NotFound: a file
// that cannot be read. Without files: insecure ones, for loopback only (CheckAddress).
//
// Files that change are read again within seconds and count for every connection made from then on; those
// that stand keep what they began with, half an hour at most. Replace certificate and key together (a folder
// or a link that is renamed, as Kubernetes does with secrets): while they do not belong together nobody can
// connect.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsFiles& files);

// Whether a gRPC address ("127.0.0.1:7000", "[::1]:0", "localhost:7000", "unix:/path",
// "dns:///localhost:7000") names this machine alone. Names other than "localhost" are not resolved: false.
bool IsLoopback(std::string_view address);
// PermissionDenied where there are no certificates and `address` (to bind or to dial) is not loopback.
absl::Status CheckAddress(const TlsFiles& files, std::string_view address);

// Message sizes, keepalive (the server tolerates what our client sends), streams per connection, memory
// quota.
void ConfigureServer(grpc::ServerBuilder& builder);
// The client's half. A channel made with them has its own connection: it shares none with other channels.
grpc::ChannelArguments ClientArguments();

}  // namespace evenkeel::transport
