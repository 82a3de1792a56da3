// A plain TLS 1.3 stream over TCP by OpenSSL alone: what the transport over gRPC is compared with. And a
// certificate for both, made on the spot.
//
//   sender                                        receiver
//   TlsListener listener(files);                  TlsStream stream = TlsStream::Dial(port, files);
//   TlsStream stream = listener.Accept();
//   stream.Send(part);                            stream.Receive(buffer, &digester);
//
// Errors end the program: this is a benchmark. Thread safety: none, one thread per object.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/digest.h"
#include "transport/credentials.h"

namespace evenkeel::transport {

// Writes a self-signed certificate for 127.0.0.1 and its key (P-256) into `folder`; it is its own authority.
transport::TlsFiles MakeCertificateFiles(const std::string& folder);

class TlsStream {
 public:
  static TlsStream Dial(int port, const transport::TlsFiles& files);
  TlsStream(TlsStream&&) = default;

  void Send(std::span<const std::byte> bytes);
  // Fills `buffer`; each record is hashed right after it was decrypted, if `digester` is not null.
  void Receive(std::span<std::byte> buffer, Digester* digester);
  std::string cipher() const;  // "TLS_AES_256_GCM_SHA384"

 private:
  friend class TlsListener;
  struct Close {
    void operator()(SSL* ssl) const;
  };
  explicit TlsStream(SSL* ssl) : ssl_(ssl) {}

  std::unique_ptr<SSL, Close> ssl_;
};

// On a free port of 127.0.0.1.
class TlsListener {
 public:
  explicit TlsListener(const transport::TlsFiles& files);
  ~TlsListener();
  TlsListener(const TlsListener&) = delete;
  TlsListener& operator=(const TlsListener&) = delete;

  int port() const;
  TlsStream Accept();

 private:
  const transport::TlsFiles files_;
  int socket_ = -1;
};

}  // namespace evenkeel::transport
