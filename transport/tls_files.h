// Reads and validates the certificate files of this process, so that a problem is reported before a
// connection fails because of it: TLS reveals no more than that the other side hung up. Internal to
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

// InvalidArgument: not all three are given, or one is not a PEM file; NotFound: one cannot be read. The files
// are read one after the other: during a replacement the result may be a mixture.
absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files);

// Returns the certificate's validity if a connection could be made with these contents now. Errors name the
// file (`files`) and the remedy. InvalidArgument: a file contains something else (files swapped); the key is
// encrypted; the key belongs to no certificate, or to a later one of the chain; the certificate, or every
// certificate of the CA file, has expired or is not valid yet by this machine's clock. Whether the CA signed
// the peer's certificate is only known at the handshake.
absl::StatusOr<CertificateValidity> CheckTlsContents(const TlsFiles& files, const TlsContents& contents);

}  // namespace evenkeel::transport
