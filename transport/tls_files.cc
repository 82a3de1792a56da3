// Parses the certificate files with OpenSSL and checks dates, keys and chains.
#include "transport/tls_files.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/read_file.h"
#include "core/status.h"

namespace evenkeel::transport {
namespace {

constexpr size_t kMaxPemBytes = 4 << 20;  // 20 times a bundle of all public authorities

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

template <typename... Words>
absl::Status Invalid(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

absl::StatusOr<std::string> ReadPem(const std::string& path, const char* what) {
  std::error_code ignored;  // a file that does not exist fails below
  const auto type = std::filesystem::status(path, ignored).type();
  if (type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::socket ||
      type == std::filesystem::file_type::character) {
    // Reading one may block forever, and a second read returns nothing.
    return Invalid(path, ": a pipe, socket or device, expected a file with the ", what);
  }
  absl::StatusOr<std::string> text = ReadAtMost(path, kMaxPemBytes);
  if (!text.ok()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot read the ", what, " (PEM file): ", text.status().message()));
  }
  if (!absl::StrContains(*text, "-----BEGIN ")) {
    return Invalid(path, ": not a PEM file, expected the ", what,
                   "; a DER file becomes one by openssl x509 (or pkey) -inform DER -in FILE -out FILE.pem");
  }
  return text;
}

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

bool HoldsPrivateKey(const std::string& text) { return absl::StrContains(text, "PRIVATE KEY-----"); }

absl::StatusOr<std::vector<Certificate>> ParseCertificates(const std::string& path, const std::string& text,
                                                           const char* what) {
  const Bio bio = BioOf(text);
  std::vector<Certificate> certificates;
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))
    certificates.emplace_back(next);
  // The loop ends at the first block that is not a certificate; only "no start line" means the end of the
  // file.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) {
    return Invalid(path, ": certificate ", certificates.size() + 1, " of the ", what,
                   " is damaged; inspect it with openssl x509 -in ", path, " -noout -text");
  }
  if (certificates.empty()) {
    return Invalid(path, ": contains no certificate", HoldsPrivateKey(text) ? ", but a private key" : "",
                   "; expected the ", what);
  }
  return certificates;
}

absl::StatusOr<Key> ParseKey(const std::string& path, const std::string& text) {
  if (!HoldsPrivateKey(text)) {
    return Invalid(path, ": contains no private key",
                   absl::StrContains(text, "CERTIFICATE-----") ? ", but a certificate" : "",
                   "; expected the private key");
  }
  // OpenSSL would ask the terminal for a passphrase; this callback only records that it wanted to.
  bool asked = false;
  const auto ask = [](char*, int, int, void* asked_for) {
    *static_cast<bool*>(asked_for) = true;
    return -1;
  };
  const Bio bio = BioOf(text);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, ask, &asked));
  ERR_clear_error();
  if (asked) {
    return Invalid(path, ": the private key is encrypted, and a service cannot ask for its passphrase; ",
                   "decrypt it: openssl pkey -in ", path, " -out FILE");
  }
  if (key == nullptr) {
    return Invalid(
        path, ": the private key is damaged, or of a kind that OpenSSL does not support; inspect it with ",
        "openssl pkey -in ", path, " -noout -text");
  }
  return key;
}

std::string TextOf(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);  // NOLINT(google-runtime-int): the library's
  return std::string(data, static_cast<size_t>(std::max(size, 0L)));
}

std::string TimeOf(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  return TextOf(bio);
}

// "CN = worker"
std::string SubjectOf(const Certificate& certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate.get()), 0, XN_FLAG_ONELINE);
  return TextOf(bio);
}

absl::Status CheckTime(const std::string& path, const Certificate& certificate, const char* what) {
  const ASN1_TIME* const first = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const last = X509_get0_notAfter(certificate.get());
  if (X509_cmp_current_time(first) >= 0) {
    return Invalid(path, ": the ", what, " (", SubjectOf(certificate), ") is not valid before ",
                   TimeOf(first), "; is this machine's clock right?");
  }
  if (X509_cmp_current_time(last) <= 0) {
    return Invalid(path, ": the ", what, " (", SubjectOf(certificate), ") expired on ", TimeOf(last),
                   "; issue another one (or is this machine's clock wrong?)");
  }
  return absl::OkStatus();
}

absl::Status CheckKeyBelongs(const TlsFiles& files, const std::vector<Certificate>& chain, const Key& key) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool belongs = X509_check_private_key(chain[i].get(), key.get()) == 1;
    ERR_clear_error();
    if (belongs && i == 0) return absl::OkStatus();
    if (belongs) {
      return Invalid(files.certificate, ": certificate ", i + 1, " (", SubjectOf(chain[i]),
                     ") is the one that matches the private key ", files.key,
                     "; it must come first, followed by the certificates that signed it");
    }
  }
  return Invalid(files.key, ": this private key does not belong to the certificate ", files.certificate, " (",
                 SubjectOf(chain[0]), "); use a certificate and a key that were created together");
}

// One valid authority is enough: a bundle may contain old ones next to new ones.
absl::Status CheckAuthorities(const std::string& path, const std::string& text) {
  EVENKEEL_ASSIGN_OR_RETURN(const auto authorities, ParseCertificates(path, text, "CA"));
  absl::Status last;
  for (const Certificate& authority : authorities) {
    last = CheckTime(path, authority, "CA");
    if (last.ok()) break;
  }
  return last;
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm fields{};
  return ASN1_TIME_to_tm(time, &fields) == 1 ? absl::FromTM(fields, absl::UTCTimeZone())
                                             : absl::InfiniteFuture();
}

CertificateValidity ValidityOf(const Certificate& certificate) {
  return {SubjectOf(certificate), ToTime(X509_get0_notBefore(certificate.get())),
          ToTime(X509_get0_notAfter(certificate.get()))};
}

std::string Dates(const std::string& path, const Certificate& certificate) {
  return absl::StrCat(path, " (", SubjectOf(certificate), ") from ",
                      TimeOf(X509_get0_notBefore(certificate.get())), " until ",
                      TimeOf(X509_get0_notAfter(certificate.get())));
}

}  // namespace

absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty() || files.ca.empty()) {
    return Invalid(
        "mutual TLS needs a certificate, a key and a CA file: give all three, or none for loopback only");
  }
  TlsContents contents;
  EVENKEEL_ASSIGN_OR_RETURN(contents.certificate, ReadPem(files.certificate, "certificate"));
  EVENKEEL_ASSIGN_OR_RETURN(contents.key, ReadPem(files.key, "private key"));
  EVENKEEL_ASSIGN_OR_RETURN(contents.ca, ReadPem(files.ca, "CA"));
  return contents;
}

absl::StatusOr<CertificateValidity> CheckTlsContents(const TlsFiles& files, const TlsContents& contents) {
  EVENKEEL_ASSIGN_OR_RETURN(const auto chain,
                            ParseCertificates(files.certificate, contents.certificate, "certificate"));
  EVENKEEL_ASSIGN_OR_RETURN(const Key key, ParseKey(files.key, contents.key));
  EVENKEEL_RETURN_IF_ERROR(CheckKeyBelongs(files, chain, key));
  EVENKEEL_RETURN_IF_ERROR(CheckTime(files.certificate, chain[0], "certificate"));
  EVENKEEL_RETURN_IF_ERROR(CheckAuthorities(files.ca, contents.ca));
  return ValidityOf(chain[0]);
}

std::string DescribeDates(const TlsFiles& files) {
  const absl::StatusOr<TlsContents> contents = ReadTlsFiles(files);
  if (!contents.ok()) return std::string(contents.status().message());
  std::string text;
  const auto append = [&](const std::string& path, const std::string& pem, const char* what) {
    const auto certificates = ParseCertificates(path, pem, what);
    if (!text.empty()) text += "; ";
    text +=
        certificates.ok() ? Dates(path, certificates->front()) : std::string(certificates.status().message());
  };
  append(files.certificate, contents->certificate, "certificate");
  append(files.ca, contents->ca, "CA");
  return text;
}

}  // namespace evenkeel::transport
