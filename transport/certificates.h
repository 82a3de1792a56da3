// The certificate, key and authority of a process, kept valid while their files are replaced.
//
// The files are read every second. New contents are adopted when they are complete: all three can be read,
// belong together, are valid now (transport/tls_files.h) and were the same one second before. They then apply
// to every connection made from that moment on. Until then, and whatever state the files are in meanwhile
// (empty, half written, garbage, missing, a key of another certificate), the last good contents stay in use.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto certificates, Certificates::Open(files, log));
//     std::shared_ptr<grpc::ServerCredentials> credentials = MakeServerCredentials(certificates);
//
// It does not verify peers; the TLS library does. No key is written to disk: gRPC reads files in memory
// (transport/memory_file.h). Costs two file handles and two threads that sleep. Credentials made from it keep
// the last contents after it is destroyed.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "transport/credentials.h"
#include "transport/memory_file.h"
#include "transport/tls_files.h"

namespace grpc::experimental {
class CertificateProviderInterface;
}

namespace evenkeel::transport {

// The state of a certificate at a time. kEnding: within 7 days of its end, or within the last tenth of its
// validity if that is shorter.
enum class Lifetime : uint8_t { kGood, kEnding, kOver };
Lifetime LifetimeAt(const CertificateValidity& validity, absl::Time now);

class Certificates {
 public:
  // `log` is called from a thread of this object, never after the destructor has returned; it must not block
  // or destroy the object. Errors: as ReadTlsFiles and CheckTlsContents; ResourceExhausted: no file handle
  // left.
  static absl::StatusOr<std::shared_ptr<Certificates>> Open(const TlsFiles& files, CertificateLog log);
  ~Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  CertificateState state() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The source that gRPC reads certificates from. Lives at least as long as this object.
  const std::shared_ptr<grpc::experimental::CertificateProviderInterface>& provider() const {
    return provider_;
  }

 private:
  Certificates(const TlsFiles& files, CertificateLog log, TlsContents contents, MemoryFile identity,
               MemoryFile ca, const CertificateValidity& own);
  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  void Look();
  absl::Status TakeUp(const TlsContents& contents, const CertificateValidity& own)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Refuse(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void LogLifetime() ABSL_LOCKS_EXCLUDED(mutex_);

  const TlsFiles files_;
  const CertificateLog log_;
  // Used by the thread alone.
  TlsContents contents_;   // in use
  TlsContents candidate_;  // valid contents that were seen once
  MemoryFile identity_;    // certificate chain and key in one file, so that they are replaced together
  MemoryFile ca_;
  int bad_looks_ = 0;
  // By SteadyNow(): a lasting condition is not logged again before this time.
  absl::Time next_refusal_;
  absl::Time next_lifetime_;
  Lifetime logged_ = Lifetime::kGood;

  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;

  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CertificateState state_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace evenkeel::transport
