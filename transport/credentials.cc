// Makes gRPC credentials and channel arguments, and restricts processes without certificates to loopback.
#include "transport/credentials.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "transport/certificates.h"

namespace evenkeel::transport {
namespace {

// The client pings an idle connection at this interval, so that a partition is also noticed between requests.
// The server must tolerate that, or it closes the connection with "too many pings".
constexpr int kPingMillis = 15'000;
constexpr int kPingTimeoutMillis = 5'000;
constexpr int kToleratedPingMillis = 10'000;
constexpr int kMaxStreamsPerConnection = 256;  // one per part in flight, Deliver, and room for the rest
constexpr int kMaxConnectionAgeMillis = 30 * 60'000;
constexpr int kHandshakeTimeoutMillis = 20'000;  // of TLS, and until HTTP/2's settings are there
constexpr size_t kServerMemoryBytes = 512u << 20;
// A synchronous call occupies one thread while it lasts. Far above what sessions need; a bound on what
// connections can cost.
constexpr int kServerThreads = 4096;

// 127.0.0.0/8, but not names that merely begin like it ("127.evil.example").
bool IsLoopbackIpv4(std::string_view host) {
  std::vector<std::string> parts = absl::StrSplit(absl::string_view(host.data(), host.size()), '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (const std::string& part : parts) {
    uint32_t value;
    if (part.empty() || part.size() > 3 || !absl::SimpleAtoi(part, &value) || value > 255) return false;
  }
  return true;
}

bool IsLoopbackHost(std::string_view host) {
  return host == "localhost" || host == "::1" || IsLoopbackIpv4(host);
}

// The host of "host:port", "[v6]:port" or "host".
std::string_view HostOf(std::string_view address) {
  if (!address.empty() && address.front() == '[') {
    size_t end = address.find(']');
    return end == std::string_view::npos ? std::string_view() : address.substr(1, end - 1);
  }
  size_t colon = address.find(':');
  if (colon != std::string_view::npos && address.find(':', colon + 1) != std::string_view::npos)
    return address;
  return address.substr(0, colon);
}

bool TakePrefix(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Every handshake uses the certificate and authority that `certificates` has at that moment.
void Follow(const Certificates& certificates, grpc::experimental::TlsCredentialsOptions& options) {
  options.set_certificate_provider(certificates.provider());
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Certificates>> OpenCertificates(const TlsFiles& files, CertificateLog log) {
  if (!files.given()) return nullptr;
  if (log == nullptr) log = [](const CertificateNotice&) {};
  return Certificates::Open(files, std::move(log));
}

CertificateState StateOf(const std::shared_ptr<Certificates>& certificates) {
  return certificates == nullptr ? CertificateState() : certificates->state();
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const std::shared_ptr<Certificates>& certificates) {
  if (certificates == nullptr) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(certificates->provider());
  Follow(*certificates, options);
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const std::shared_ptr<Certificates>& certificates) {
  if (certificates == nullptr) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  Follow(*certificates, options);
  // Explicit, although it is the default: the server's certificate must be valid for the dialled name.
  options.set_verify_server_certs(true);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::HostNameCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> MakeOwnCredentials(
    const std::shared_ptr<Certificates>& certificates) {
  if (certificates == nullptr) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  Follow(*certificates, options);
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

bool IsLoopback(std::string_view address) {
  if (TakePrefix(&address, "unix:")) return true;
  if (TakePrefix(&address, "dns:///") || TakePrefix(&address, "dns:") || TakePrefix(&address, "ipv4:") ||
      TakePrefix(&address, "ipv6:")) {
    // gRPC accepts several addresses in one target; all of them must be local.
    for (absl::string_view one : absl::StrSplit(absl::string_view(address.data(), address.size()), ',')) {
      if (!IsLoopbackHost(HostOf(std::string_view(one.data(), one.size())))) return false;
    }
    return true;
  }
  return IsLoopbackHost(HostOf(address));
}

absl::Status CheckAddress(const TlsFiles& files, std::string_view address) {
  if (files.given() || IsLoopback(address)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(std::string(address),
                   ": without certificates only loopback addresses (127.0.0.1, [::1], localhost) "
                   "may be used; give a certificate, a key and a CA file"));
}

void ConfigureServer(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  builder.SetMaxSendMessageSize(kMaxControlMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kToleratedPingMillis);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // No grace period: an old connection takes no new calls and ends with its last stream, so that a Deliver
  // stream is never cut.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kMaxConnectionAgeMillis);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT,
                             0);  // a second worker on the same port is an error
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMillis);
  grpc::ResourceQuota quota("evenkeel");
  quota.Resize(kServerMemoryBytes);
  quota.SetMaxThreads(kServerThreads);
  builder.SetResourceQuota(quota);
}

grpc::ChannelArguments ClientArguments(int max_receive_bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_receive_bytes);
  arguments.SetMaxSendMessageSize(kMaxControlMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMillis);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMillis);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);  // also bounds one connection attempt
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace evenkeel::transport
