// Authentication of the control plane, and the gRPC settings that both sides must agree on.
//
// Either all three certificate files are given, and every connection is mutually authenticated TLS; or none
// is, and only loopback addresses may be used, with a warning that contains INSECURE.
//
// Example:
//     EVENKEEL_RETURN_IF_ERROR(CheckAddress(tls, listen));  // PermissionDenied: no loopback, no certificate
//     if (!tls.given()) std::cerr << kInsecureWarning << "\n";
//     EVENKEEL_ASSIGN_OR_RETURN(auto certificates, OpenCertificates(tls, log));  // null without files
//     auto credentials = MakeServerCredentials(certificates);
//     grpc::ServerBuilder builder;
//     ConfigureServer(builder);
//     builder.AddListeningPort(listen, credentials, &port);
//     auto channel =
//         grpc::CreateCustomChannel(target, MakeChannelCredentials(certificates), ClientArguments());
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
class ServerBuilder;
class ServerCredentials;
}  // namespace grpc

namespace evenkeel::transport {

// Paths of PEM files: this process's certificate chain, its private key, and the authority that signs its
// peers' certificates.
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

// No message on the control plane is larger.
inline constexpr int kMaxControlMessageBytes = 4 << 20;
// Parts travel in chunks of at most kChunkBytes. gRPC encrypts a whole chunk before it writes it and decrypts
// a whole one before it delivers it, so a chunk should fit into a core's L2 cache.
inline constexpr int kChunkBytes = 256 << 10;
inline constexpr int kMaxChunkHeadBytes = 1 << 10;

// A certificate's name and dates.
struct CertificateValidity {
  std::string subject;  // "CN = worker"
  absl::Time not_before;
  absl::Time not_after;
};

// The state of a process's certificates: what is in use, and what is wrong with the files.
struct CertificateState {
  CertificateValidity own;    // the first certificate of this process's chain, as in use
  uint64_t replacements = 0;  // times that new contents were adopted
  absl::Status files;         // not OK: why the present contents of the files are not in use
};

// An event for the operator. A lasting condition is repeated every hour.
struct CertificateNotice {
  enum class Level : uint8_t { kInfo, kWarning, kError };
  Level level;
  // certificates_replaced | certificates_refused | certificate_expires | certificate_expired
  std::string event;
  std::string message;
};
using CertificateLog = std::function<void(const CertificateNotice&)>;

class Certificates;  // transport/certificates.h

// Reads and checks the files, and follows their changes for the life of the result: valid new contents apply
// within seconds to every connection made from then on; while the files are invalid, the last good contents
// stay in use. Existing connections keep their certificates, for at most half an hour.
//
// Returns null without files. InvalidArgument: some but not all three files, or files that no connection
// could be made with (transport/tls_files.h); NotFound: a file that cannot be read. `log`: see Certificates;
// may be null.
absl::StatusOr<std::shared_ptr<Certificates>> OpenCertificates(const TlsFiles& files, CertificateLog log);
// All fields are empty for null.
CertificateState StateOf(const std::shared_ptr<Certificates>& certificates);

// For null: insecure credentials, for loopback only (CheckAddress). Credentials may outlive `certificates`,
// and then keep its last contents.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const std::shared_ptr<Certificates>& certificates);
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const std::shared_ptr<Certificates>& certificates);
// For a process that dials itself: presents its own certificate and does not check the server's name or
// certificate.
std::shared_ptr<grpc::ChannelCredentials> MakeOwnCredentials(
    const std::shared_ptr<Certificates>& certificates);

// A hint for a failed handshake, which does not reveal whose certificate is at fault: "FILE (CN = rank) from
// DATE until DATE; CA-FILE (CN = ours) from DATE until DATE", or what is wrong with the files.
std::string DescribeDates(const TlsFiles& files);

// True if a gRPC address ("127.0.0.1:7000", "[::1]:0", "localhost:7000", "unix:/path",
// "dns:///localhost:7000") can only reach this machine. Names other than "localhost" are not resolved: false.
bool IsLoopback(std::string_view address);
// PermissionDenied if there are no certificates and `address` (to bind or to dial) is not loopback.
absl::Status CheckAddress(const TlsFiles& files, std::string_view address);

// Sets message sizes, keepalive (the server tolerates our client's pings), streams per connection, and the
// memory quota.
void ConfigureServer(grpc::ServerBuilder& builder);
// The client's counterpart. A channel with these arguments has a connection of its own, shared with no other
// channel. `max_receive_bytes`: of one message.
grpc::ChannelArguments ClientArguments(int max_receive_bytes = kMaxControlMessageBytes);

}  // namespace evenkeel::transport
