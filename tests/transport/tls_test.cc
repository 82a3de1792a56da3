// Mutual TLS between a server and a client of ours, with certificates made on the spot; and files that no
// connection could be made with.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "tests/transport/peers.h"
#include "transport/credentials.h"

namespace evenkeel::transport {
namespace {

using testing::HasSubstr;

bool Shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

class MutualTls : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/evenkeel_tls_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    if (!MakeAuthority("good") || !MakeAuthority("evil") || !MakeCertificate("good", "worker") ||
        !MakeCertificate("good", "consumer") || !MakeCertificate("evil", "stranger")) {
      GTEST_SKIP() << "openssl cannot make certificates here";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) { return absl::StrCat(folder_, "/", name); }
  bool MakeAuthority(const std::string& name) {
    return Shell(absl::StrCat(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=", name,
        " -keyout ", Path(name + ".key"), " -out ", Path(name + ".pem")));
  }
  bool MakeCertificate(const std::string& authority, const std::string& name,
                       const std::string& names = "DNS:localhost,IP:127.0.0.1") {
    std::string key = Path(name + ".key"), request = Path(name + ".csr"), extensions = Path("san");
    std::ofstream(extensions) << "subjectAltName=" << names << "\n";
    return Shell(absl::StrCat("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=",
                              name, " -keyout ", key, " -out ", request)) &&
           Shell(absl::StrCat("openssl x509 -req -days 2 -in ", request, " -CA ", Path(authority + ".pem"),
                              " -CAkey ", Path(authority + ".key"), " -CAcreateserial -extfile ", extensions,
                              " -out ", Path(name + ".pem")));
  }
  TlsFiles Files(const std::string& name) {
    return {Path(name + ".pem"), Path(name + ".key"), Path("good.pem")};
  }

  // Whether a part arrives at a consumer with these credentials.
  absl::Status Fetch(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    return Fetch(credentials, *MakeServerCredentials(Files("worker")));
  }
  absl::Status Fetch(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                     const std::shared_ptr<grpc::ServerCredentials>& server_credentials) {
    Options options = OptionsFor(Backend::kGrpc);
    std::unique_ptr<GrpcSource> source = *MakeGrpcSource(options);
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", server_credentials, &port);
    builder.RegisterService(source->service());
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    std::unique_ptr<Sink> sink = *MakeGrpcSink(options, credentials);
    std::vector<std::byte> payload = Payload(100'000, 1), received(payload.size());
    Outcome sent, arrived;
    EXPECT_TRUE(source->Connect(1, "", SecretOf(1)).ok());
    EXPECT_TRUE(sink->Connect(1, absl::StrCat("127.0.0.1:", port), "", SecretOf(1)).ok());
    sink->Expect(1, 1, received, arrived.callback());
    source->Send(1, 1, payload, DigestOf(payload), absl::Seconds(50), sent.callback());
    absl::Status status = arrived.Wait();
    source->Stop();
    server->Shutdown();
    EXPECT_TRUE(!status.ok() || received == payload);
    return status;
  }

  std::string folder_;
};

TEST_F(MutualTls, LetsInWhoHasACertificateOfTheAuthority) {
  absl::Status status = Fetch(*MakeChannelCredentials(Files("consumer")));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(MutualTls, RefusesACertificateOfAnotherAuthority) {
  EXPECT_TRUE(absl::IsUnavailable(Fetch(*MakeChannelCredentials(Files("stranger")))));
}

TEST_F(MutualTls, RefusesAClientWithoutACertificate) {
  grpc::SslCredentialsOptions options;
  std::ifstream file(Path("good.pem"));
  options.pem_root_certs.assign(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(absl::IsUnavailable(Fetch(grpc::SslCredentials(options))));
  EXPECT_TRUE(absl::IsUnavailable(Fetch(grpc::InsecureChannelCredentials())));
}

TEST_F(MutualTls, TakesUpFilesThatWereReplacedOnBothSides) {
  auto worker = *MakeServerCredentials(Files("worker"));
  auto consumer = *MakeChannelCredentials(Files("consumer"));
  ASSERT_TRUE(MakeCertificate("evil", "next_worker") && MakeCertificate("evil", "next_consumer"));
  TlsFiles next = Files("next_consumer");
  next.ca = Path("evil.pem");
  EXPECT_TRUE(Fetch(consumer, worker).ok());
  EXPECT_TRUE(absl::IsUnavailable(Fetch(*MakeChannelCredentials(next), worker)));
  for (const char* name : {"worker", "consumer"}) {
    for (const char* suffix : {".pem", ".key"}) {
      std::filesystem::rename(Path(absl::StrCat("next_", name, suffix)), Path(absl::StrCat(name, suffix)));
    }
  }
  std::filesystem::rename(Path("evil.pem"), Path("good.pem"));
  absl::Status status;
  for (int i = 0; i < 100; ++i) {
    absl::SleepFor(absl::Milliseconds(200));
    status = Fetch(*MakeChannelCredentials(Files("consumer")), worker);
    if (status.ok()) break;
  }
  EXPECT_TRUE(status.ok()) << "the server: " << status;
  for (int i = 0; i < 100 && !(status = Fetch(consumer, worker)).ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(200));
  }
  EXPECT_TRUE(status.ok()) << "the channel: " << status;
}

TEST_F(MutualTls, RefusesAServerWithAnotherName) {
  ASSERT_TRUE(MakeCertificate("good", "worker", "DNS:elsewhere.example"));
  EXPECT_TRUE(absl::IsUnavailable(Fetch(*MakeChannelCredentials(Files("consumer")))));
}

TEST_F(MutualTls, RefusesAServerOfAnotherAuthority) {
  TlsFiles files = Files("consumer");
  files.ca = Path("evil.pem");
  EXPECT_TRUE(absl::IsUnavailable(Fetch(*MakeChannelCredentials(files))));
}

// Both sides look at the files before they begin; their messages are the same.
class TlsFilesError : public MutualTls {
 protected:
  void Expect(const TlsFiles& files, absl::StatusCode code, const std::vector<std::string>& words) {
    const absl::Status status = MakeServerCredentials(files).status();
    EXPECT_EQ(status, MakeChannelCredentials(files).status());
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
  // A certificate of its own authority, valid from then to then ("YYMMDDHHMMSSZ").
  bool MakeAuthority(const std::string& name, const std::string& from, const std::string& to) {
    std::ofstream(Path("ca.conf"))
        << "[ca]\ndefault_ca=a\n[a]\ndefault_md=sha256\npolicy=p\nunique_subject=no\n"
        << "new_certs_dir=" << folder_ << "\ndatabase=" << Path("index.txt") << "\nserial=" << Path("serial")
        << "\n[p]\ncommonName=supplied\n";
    std::ofstream(Path("index.txt")).close();
    std::ofstream(Path("serial")) << "01\n";
    return Shell(absl::StrCat("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=",
                              name, " -keyout ", Path(name + ".key"), " -out ", Path(name + ".csr"))) &&
           Shell(absl::StrCat("openssl ca -batch -notext -selfsign -config ", Path("ca.conf"), " -keyfile ",
                              Path(name + ".key"), " -in ", Path(name + ".csr"), " -startdate ", from,
                              " -enddate ", to, " -out ", Path(name + ".pem")));
  }
  void Append(const std::string& to, const std::string& from) {
    std::ifstream in(Path(from), std::ios::binary);
    std::ofstream(Path(to), std::ios::binary | std::ios::app) << in.rdbuf();
  }
};

TEST_F(TlsFilesError, OfAKeyThatDoesNotBelongToItsCertificateNamesBoth) {
  TlsFiles files = Files("worker");
  files.key = Path("consumer.key");
  Expect(files, absl::StatusCode::kInvalidArgument,
         {files.key + ": this private key does not belong to the certificate " + files.certificate,
          "CN = worker"});
}

TEST_F(TlsFilesError, OfAChainInTheWrongOrderNamesTheCertificateThatTheKeyBelongsTo) {
  Append("chain.pem", "good.pem");
  Append("chain.pem", "worker.pem");
  TlsFiles files = Files("worker");
  files.certificate = Path("chain.pem");
  Expect(files, absl::StatusCode::kInvalidArgument,
         {files.certificate + ": certificate 2", "must be the first"});
}

TEST_F(TlsFilesError, OfExpiredAndOfFutureCertificatesNamesTheTime) {
  ASSERT_TRUE(MakeAuthority("old", "200101000000Z", "200201000000Z"));
  ASSERT_TRUE(MakeAuthority("new", "450101000000Z", "460101000000Z"));
  TlsFiles old = Files("old");
  Expect(old, absl::StatusCode::kInvalidArgument,
         {old.certificate + ": the certificate (CN = old) expired on Feb  1 00:00:00 2020 GMT"});
  TlsFiles future = Files("new");
  Expect(future, absl::StatusCode::kInvalidArgument,
         {future.certificate + ": the certificate (CN = new) is not valid before Jan  1 00:00:00 2045",
          "clock"});
  TlsFiles authority = Files("worker");
  authority.ca = Path("old.pem");
  Expect(authority, absl::StatusCode::kInvalidArgument, {authority.ca + ": the CA (CN = old) expired on"});
  // An old authority beside the one that counts is nobody's business.
  Append("old.pem", "good.pem");
  EXPECT_TRUE(MakeServerCredentials(authority).ok()) << MakeServerCredentials(authority).status();
}

TEST_F(TlsFilesError, OfFilesThatAreMissingSwappedDamagedOrEncryptedSaysSo) {
  const auto expect = [&](auto&& change, absl::StatusCode code, const std::vector<std::string>& words) {
    TlsFiles files = Files("worker");
    change(files);
    Expect(files, code, words);
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  expect([&](TlsFiles& files) { files.ca = Path("none.pem"); }, absl::StatusCode::kNotFound,
         {Path("none.pem") + ": cannot read the CA", "No such file"});
  expect([&](TlsFiles& files) { files.key = folder_; }, absl::StatusCode::kNotFound,
         {folder_ + ": cannot read the private key", "Is a directory"});
  expect([&](TlsFiles& files) { std::swap(files.key, files.certificate); }, kInvalid,
         {Path("worker.key") + ": holds no certificate, but a private key"});
  expect([&](TlsFiles& files) { files.key = files.certificate; }, kInvalid,
         {Path("worker.pem") + ": holds no private key, but a certificate"});
  std::ofstream(Path("text")) << "hello";
  expect([&](TlsFiles& files) { files.certificate = Path("text"); }, kInvalid,
         {Path("text") + ": not a PEM file, expected the certificate"});
  std::ofstream(Path("damaged.pem")) << "-----BEGIN CERTIFICATE-----\nMIIBszCC\n-----END CERTIFICATE-----\n";
  expect([&](TlsFiles& files) { files.ca = Path("damaged.pem"); }, kInvalid,
         {Path("damaged.pem") + ": certificate 1 of the CA is damaged"});
  std::ofstream(Path("damaged.key")) << "-----BEGIN PRIVATE KEY-----\nMIIBszCC\n-----END PRIVATE KEY-----\n";
  expect([&](TlsFiles& files) { files.key = Path("damaged.key"); }, kInvalid,
         {Path("damaged.key") + ": the private key is damaged"});
  ASSERT_TRUE(Shell(absl::StrCat("openssl pkey -aes256 -passout pass:secret -in ", Path("worker.key"),
                                 " -out ", Path("locked.key"))));
  expect([&](TlsFiles& files) { files.key = Path("locked.key"); }, kInvalid,
         {Path("locked.key") + ": the private key is encrypted"});
}

}  // namespace
}  // namespace evenkeel::transport
