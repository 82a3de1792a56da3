// Watches certificate files and passes valid contents on to gRPC. gRPC could watch the files itself, but its
// watcher adopts whatever it can read, and an empty certificate or key ends the process by an assertion. Here
// gRPC watches files in memory that only validated contents reach.
#include "transport/certificates.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel::transport {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);
constexpr unsigned kGrpcLookSeconds = 1;  // how often gRPC looks at the files in memory
// Files that are bad at one look may be half written; only the second bad look in a row is reported.
constexpr int kBadLooks = 2;
constexpr absl::Duration kRepeat = absl::Hours(1);

// Chain and key go into one file, so that gRPC never pairs a new certificate with an old key. It finds both
// by their PEM headers.
std::string Identity(const TlsContents& contents) {
  return absl::StrCat(contents.certificate, "\n", contents.key);
}

std::string Named(const TlsFiles& files, const CertificateValidity& own) {
  return absl::StrCat(files.certificate, " (", own.subject, ")");
}

std::string Utc(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

}  // namespace

Lifetime LifetimeAt(const CertificateValidity& validity, absl::Time now) {
  if (now >= validity.not_after) return Lifetime::kOver;
  const absl::Duration ending =
      std::min(absl::Hours(7 * 24), (validity.not_after - validity.not_before) / 10);
  return validity.not_after - now < ending ? Lifetime::kEnding : Lifetime::kGood;
}

absl::StatusOr<std::shared_ptr<Certificates>> Certificates::Open(const TlsFiles& files, CertificateLog log) {
  EVENKEEL_ASSIGN_OR_RETURN(TlsContents contents, ReadTlsFiles(files));
  EVENKEEL_ASSIGN_OR_RETURN(const CertificateValidity own, CheckTlsContents(files, contents));
  EVENKEEL_ASSIGN_OR_RETURN(MemoryFile identity, MemoryFile::Create("evenkeel-identity", Identity(contents)));
  EVENKEEL_ASSIGN_OR_RETURN(MemoryFile ca, MemoryFile::Create("evenkeel-ca", contents.ca));
  return std::shared_ptr<Certificates>(
      new Certificates(files, std::move(log), std::move(contents), std::move(identity), std::move(ca), own));
}

Certificates::Certificates(const TlsFiles& files, CertificateLog log, TlsContents contents,
                           MemoryFile identity, MemoryFile ca, const CertificateValidity& own)
    : files_(files),
      log_(std::move(log)),
      contents_(std::move(contents)),
      identity_(std::move(identity)),
      ca_(std::move(ca)),
      next_refusal_(absl::InfinitePast()),
      next_lifetime_(absl::InfinitePast()),
      provider_(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          identity_.path(), identity_.path(), ca_.path(), kGrpcLookSeconds)) {
  state_.own = own;
  thread_ = std::thread([this] { Watch(); });
  pthread_setname_np(thread_.native_handle(), "evenkeel-certs");
}

Certificates::~Certificates() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

CertificateState Certificates::state() const {
  MutexLock lock(mutex_);
  return state_;
}

void Certificates::Watch() {
  for (;;) {
    Look();
    LogLifetime();
    const absl::Time due = SteadyNow() + kLook;
    MutexLock lock(mutex_);
    while (!stopping_ && wake_.WaitUntil(mutex_, due)) continue;
    if (stopping_) return;
  }
}

void Certificates::Look() {
  absl::StatusOr<TlsContents> seen = ReadTlsFiles(files_);
  if (!seen.ok()) return Refuse(seen.status());
  if (*seen != contents_) {
    const absl::StatusOr<CertificateValidity> own = CheckTlsContents(files_, *seen);
    if (!own.ok()) return Refuse(own.status());
    if (*seen != candidate_) {
      // Adopted if the next look sees the same: a bundle that is cut between two certificates looks complete.
      candidate_ = *std::move(seen);
      return;
    }
    if (absl::Status taken = TakeUp(candidate_, *own); !taken.ok()) return Refuse(taken);
  }
  candidate_ = {};
  bad_looks_ = 0;
  next_refusal_ = absl::InfinitePast();
  MutexLock lock(mutex_);
  state_.files = absl::OkStatus();
}

absl::Status Certificates::TakeUp(const TlsContents& contents, const CertificateValidity& own) {
  // The order does not matter: each of the two is valid by itself.
  EVENKEEL_RETURN_IF_ERROR(ca_.Replace(contents.ca));
  EVENKEEL_RETURN_IF_ERROR(identity_.Replace(Identity(contents)));
  contents_ = contents;
  next_lifetime_ = absl::InfinitePast();
  logged_ = Lifetime::kGood;
  {
    MutexLock lock(mutex_);
    state_.own = own;
    state_.files = absl::OkStatus();  // before the counter shows the replacement
    ++state_.replacements;
  }
  log_({CertificateNotice::Level::kInfo, "certificates_replaced",
        absl::StrCat("new connections use ", Named(files_, own), ", valid until ", Utc(own.not_after))});
  return absl::OkStatus();
}

void Certificates::Refuse(const absl::Status& why) {
  candidate_ = {};
  if (++bad_looks_ < kBadLooks) return;
  CertificateValidity own;
  {
    MutexLock lock(mutex_);
    state_.files = why;
    own = state_.own;
  }
  if (SteadyNow() < next_refusal_) return;
  next_refusal_ = SteadyNow() + kRepeat;
  log_({CertificateNotice::Level::kWarning, "certificates_refused",
        absl::StrCat(why.message(), "; connections keep using the certificates read before (", own.subject,
                     ", valid until ", Utc(own.not_after), ")")});
}

void Certificates::LogLifetime() {
  const CertificateValidity own = state().own;
  const Lifetime now = LifetimeAt(own, absl::Now());
  if (now == Lifetime::kGood || (now == logged_ && SteadyNow() < next_lifetime_)) return;
  logged_ = now;
  next_lifetime_ = SteadyNow() + kRepeat;
  if (now == Lifetime::kEnding) {
    log_({CertificateNotice::Level::kWarning, "certificate_expires",
          absl::StrCat(Named(files_, own), " expires on ", Utc(own.not_after), ", in ",
                       absl::FormatDuration(absl::Trunc(own.not_after - absl::Now(), absl::Minutes(1))),
                       "; replace it: after that no peer accepts new connections of this process")});
  } else {
    log_({CertificateNotice::Level::kError, "certificate_expired",
          absl::StrCat(
              Named(files_, own), " expired on ", Utc(own.not_after),
              "; peers refuse new connections of this process until the file is replaced (or is this ",
              "machine's clock wrong?)")});
  }
}

}  // namespace evenkeel::transport
