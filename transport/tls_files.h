// The certificate files of this process: what they contain, and what is wrong with them, found before a
// connection fails because of it: TLS tells nobody more than that the other side hung up. Internal to
// transport.
//
// Thread safety: functions without state.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "transport/credentials.h"

namespace evenkeel::transport {

// The bytes of the three files.
struct TlsContents {
  std::string certificate;
  std::string key;
  std::string ca;

  bool operator==(const TlsContents&) const = default;
};

// InvalidArgument: not all three are given, or one is not a PEM file; NotFound: one cannot be read. The three
// are read one after the other: while somebody replaces them the result may be a mixture.
absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files);

// Whether a connection could be made with these contents now; when the certificate is valid. Errors name the
// file (`files`) and what to do. InvalidArgument: a file has something else in it (files swapped); the key is
// encrypted; the key does not belong to the certificate, or to another one of its chain; the certificate, or
// every one of the CA file, has expired or is not valid yet by this machine's clock.
// Does not look at the peer: whether the CA signed its certificate only the handshake shows.
absl::StatusOr<CertificateValidity> CheckTlsContents(const TlsFiles& files, const TlsContents& contents);

}  // namespace evenkeel::transport
