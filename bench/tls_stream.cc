// Both sides use OpenSSL as a careful program would: blocking sockets without Nagle's delay, TLS 1.3 with the
// library's first cipher suite (the one that gRPC negotiates, too), and reading ahead, so that a record costs
// one system call and not two.
#include "bench/tls_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace evenkeel::transport {
namespace {

constexpr size_t kReadAheadBytes = 64 << 10;
constexpr size_t kRecordBytes = 16 << 10;

void Require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s failed\n", what);
  ERR_print_errors_fp(stderr);
  std::exit(2);
}

template <typename T, auto Free>
using Owned = std::unique_ptr<T, decltype([](T* object) { Free(object); })>;

void WritePem(const std::string& path, auto&& write) {
  Owned<FILE, fclose> file(std::fopen(path.c_str(), "w"));
  Require(file != nullptr && write(file.get()) == 1, path.c_str());
}

SSL* Make(int socket, const transport::TlsFiles& files, bool server) {
  const Owned<SSL_CTX, SSL_CTX_free> context(SSL_CTX_new(TLS_method()));
  SSL_CTX* const to = context.get();
  SSL_CTX_set_min_proto_version(to, TLS1_3_VERSION);
  SSL_CTX_set_verify(to, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_read_ahead(to, 1);
  SSL_CTX_set_default_read_buffer_len(to, kReadAheadBytes);
  Require(SSL_CTX_use_certificate_chain_file(to, files.certificate.c_str()) == 1 &&
              SSL_CTX_use_PrivateKey_file(to, files.key.c_str(), SSL_FILETYPE_PEM) == 1 &&
              SSL_CTX_load_verify_locations(to, files.ca.c_str(), nullptr) == 1,
          "loading the certificate");
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  SSL* const ssl = SSL_new(to);
  Require(ssl != nullptr && SSL_set_fd(ssl, socket) == 1, "SSL_new");
  Require((server ? SSL_accept(ssl) : SSL_connect(ssl)) == 1, "the TLS handshake");
  return ssl;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

transport::TlsFiles MakeCertificateFiles(const std::string& folder) {
  const transport::TlsFiles files = {folder + "/tls.pem", folder + "/tls.key", folder + "/tls.pem"};
  const Owned<EVP_PKEY, EVP_PKEY_free> key(EVP_EC_gen("P-256"));
  const Owned<X509, X509_free> certificate(X509_new());
  Require(key != nullptr && certificate != nullptr, "making a key");
  X509* const to = certificate.get();
  X509_set_version(to, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(to), 1);
  X509_gmtime_adj(X509_getm_notBefore(to), -3600);
  X509_gmtime_adj(X509_getm_notAfter(to), 24 * 3600);
  X509_set_pubkey(to, key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(to), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("bench"), -1, -1, 0);
  X509_set_issuer_name(to, X509_get_subject_name(to));
  const Owned<X509_EXTENSION, X509_EXTENSION_free> name(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1"));
  const Owned<X509_EXTENSION, X509_EXTENSION_free> authority(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"));
  Require(X509_add_ext(to, name.get(), -1) == 1 && X509_add_ext(to, authority.get(), -1) == 1 &&
              X509_sign(to, key.get(), EVP_sha256()) != 0,
          "making a certificate");
  WritePem(files.certificate, [&](FILE* file) { return PEM_write_X509(file, to); });
  WritePem(files.key, [&](FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return files;
}

void TlsStream::Close::operator()(SSL* ssl) const {
  const int socket = SSL_get_fd(ssl);
  SSL_free(ssl);
  close(socket);
}

TlsStream TlsStream::Dial(int port, const transport::TlsFiles& files) {
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  Require(connect(handle, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "connect");
  return TlsStream(Make(handle, files, false));
}

void TlsStream::Send(std::span<const std::byte> bytes) {
  size_t written = 0;
  Require(SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written) == 1 && written == bytes.size(),
          "SSL_write_ex");
}

void TlsStream::Receive(std::span<std::byte> buffer, Digester* digester) {
  while (!buffer.empty()) {
    size_t read = 0;
    Require(SSL_read_ex(ssl_.get(), buffer.data(), std::min(buffer.size(), kRecordBytes), &read) == 1,
            "SSL_read_ex");
    if (digester != nullptr) digester->Update(buffer.first(read));
    buffer = buffer.subspan(read);
  }
}

std::string TlsStream::cipher() const { return SSL_get_cipher_name(ssl_.get()); }

TlsListener::TlsListener(const transport::TlsFiles& files)
    : files_(files), socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in address = Loopback(0);
  Require(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
              listen(socket_, 1) == 0,
          "listen");
}

TlsListener::~TlsListener() { close(socket_); }

int TlsListener::port() const {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  Require(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
  return ntohs(address.sin_port);
}

TlsStream TlsListener::Accept() {
  const int handle = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
  Require(handle >= 0, "accept");
  return TlsStream(Make(handle, files_, true));
}

}  // namespace evenkeel::transport
