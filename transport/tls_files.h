// What is wrong with the certificate files of this process, found before a connection fails because of it:
// TLS tells nobody more than that the other side hung up. Internal to transport.
//
// Thread safety: functions without state.
#pragma once

#include "absl/status/status.h"
#include "transport/credentials.h"

namespace evenkeel::transport {

// Reads all three files and asks whether a connection could be made with them now. Errors name the file and
// what to do:
//   InvalidArgument: not all three are given; a file is no PEM file or holds something else (files swapped);
//     the key is encrypted; the key does not belong to the certificate, or to another one of its chain; the
//     certificate, or every one of the CA file, has expired or is not valid yet by this machine's clock;
//   NotFound: a file cannot be read.
// Says nothing of the peer: whether the CA signed its certificate only the handshake shows.
absl::Status CheckTlsFiles(const TlsFiles& files);

}  // namespace evenkeel::transport
