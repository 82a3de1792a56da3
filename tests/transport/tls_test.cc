// Mutual TLS between a server and a client of ours, with certificates made on the spot; and files that no
// connection could be made with.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/digest.h"
#include "core/steady_time.h"
#include "tests/transport/peers.h"
#include "transport/certificates.h"
#include "transport/credentials.h"

namespace evenkeel::transport {
namespace {

using testing::HasSubstr;

bool Shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// What was logged, from any thread. Outlives the certificates that log.
class Notices {
 public:
  CertificateLog log() {
    return [state = state_](const CertificateNotice& notice) {
      MutexLock lock(state->mutex);
      state->events.push_back(notice.event);
      state->changed.NotifyAll();
    };
  }
  bool WaitFor(const std::string& event) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(60);
    MutexLock lock(state_->mutex);
    while (std::count(state_->events.begin(), state_->events.end(), event) == 0) {
      if (!state_->changed.WaitUntil(state_->mutex, deadline)) return false;
    }
    return true;
  }
  int64_t Count(const std::string& event) {
    MutexLock lock(state_->mutex);
    return std::count(state_->events.begin(), state_->events.end(), event);
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    std::vector<std::string> events ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

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

  static std::shared_ptr<Certificates> Open(const TlsFiles& files, CertificateLog log = nullptr) {
    absl::StatusOr<std::shared_ptr<Certificates>> opened = OpenCertificates(files, std::move(log));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : nullptr;
  }
  // Whether a part arrives at a consumer with these files, from a worker with those.
  absl::Status Fetch(const TlsFiles& consumer) {
    auto certificates = Open(consumer);
    return Fetch(MakeChannelCredentials(certificates));
  }
  absl::Status Fetch(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    auto worker = Open(Files("worker"));
    return Fetch(credentials, MakeServerCredentials(worker));
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
  absl::Status status = Fetch(Files("consumer"));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(MutualTls, RefusesACertificateOfAnotherAuthority) {
  EXPECT_TRUE(absl::IsUnavailable(Fetch(Files("stranger"))));
}

TEST_F(MutualTls, RefusesAClientWithoutACertificate) {
  grpc::SslCredentialsOptions options;
  std::ifstream file(Path("good.pem"));
  options.pem_root_certs.assign(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(absl::IsUnavailable(Fetch(grpc::SslCredentials(options))));
  EXPECT_TRUE(absl::IsUnavailable(Fetch(grpc::InsecureChannelCredentials())));
}

TEST_F(MutualTls, TakesUpFilesThatWereReplacedOnBothSides) {
  auto workers = Open(Files("worker")), consumers = Open(Files("consumer"));
  auto worker = MakeServerCredentials(workers);
  auto consumer = MakeChannelCredentials(consumers);
  ASSERT_TRUE(MakeCertificate("evil", "next_worker") && MakeCertificate("evil", "next_consumer"));
  TlsFiles next = Files("next_consumer");
  next.ca = Path("evil.pem");
  EXPECT_TRUE(Fetch(consumer, worker).ok());
  EXPECT_TRUE(absl::IsUnavailable(Fetch(MakeChannelCredentials(Open(next)), worker)));
  for (const char* name : {"worker", "consumer"}) {
    for (const char* suffix : {".pem", ".key"}) {
      std::filesystem::rename(Path(absl::StrCat("next_", name, suffix)), Path(absl::StrCat(name, suffix)));
    }
  }
  std::filesystem::rename(Path("evil.pem"), Path("good.pem"));
  absl::Status status;
  for (int i = 0; i < 100; ++i) {
    absl::SleepFor(absl::Milliseconds(200));
    status = Fetch(MakeChannelCredentials(Open(Files("consumer"))), worker);
    if (status.ok()) break;
  }
  EXPECT_TRUE(status.ok()) << "the server: " << status;
  for (int i = 0; i < 100 && !(status = Fetch(consumer, worker)).ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(200));
  }
  EXPECT_TRUE(status.ok()) << "the channel: " << status;
  EXPECT_EQ(StateOf(workers).replacements, 1) << "never half of the new files";
}

// What the files may be like while somebody replaces them carelessly, or a disk is full.
class BadFiles : public MutualTls {
 protected:
  // Copies of a party's files in a folder of their own.
  TlsFiles Copy(const std::string& of, const std::string& folder) {
    std::filesystem::create_directories(Path(folder));
    TlsFiles from = Files(of),
             files = {Path(folder + "/tls.crt"), Path(folder + "/tls.key"), Path(folder + "/ca")};
    std::filesystem::copy_file(from.certificate, files.certificate);
    std::filesystem::copy_file(from.key, files.key);
    std::filesystem::copy_file(from.ca, files.ca);
    return files;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

  struct Case {
    std::string name;
    TlsFiles files;
    Notices notices;
    std::shared_ptr<Certificates> certificates;
  };
  void Add(const std::string& name, const std::function<void(const TlsFiles&)>& damage) {
    Case& one = cases_.emplace_back();
    one.name = name;
    one.files = Copy("worker", absl::StrCat("case", cases_.size()));
    one.certificates = Open(one.files, one.notices.log());
    damages_.push_back([damage, files = one.files] { damage(files); });
  }

  std::deque<Case> cases_;
  std::vector<std::function<void()>> damages_;
};

TEST_F(BadFiles, NeverReplaceGoodOnesOnEitherSide) {
  for (std::string TlsFiles::*file : {&TlsFiles::certificate, &TlsFiles::key, &TlsFiles::ca}) {
    Add("empty", [file](const TlsFiles& files) { Write(files.*file, ""); });
    Add("junk", [file](const TlsFiles& files) { Write(files.*file, std::string(5000, '\x80')); });
    Add("half", [file](const TlsFiles& files) {
      const std::string text = Read(files.*file);
      Write(files.*file, text.substr(0, text.size() / 2));
    });
    Add("missing", [file](const TlsFiles& files) { std::filesystem::remove(files.*file); });
    Add("a pipe", [file](const TlsFiles& files) {
      std::filesystem::remove(files.*file);
      ASSERT_EQ(mkfifo((files.*file).c_str(), 0600), 0);
    });
  }
  Add("another key", [this](const TlsFiles& files) { Write(files.key, Read(Path("consumer.key"))); });
  for (const auto& damage : damages_) damage();
  for (Case& one : cases_) {
    EXPECT_TRUE(one.notices.WaitFor("certificates_refused")) << one.name;
    EXPECT_FALSE(StateOf(one.certificates).files.ok()) << one.name;
  }
  absl::SleepFor(absl::Seconds(2));  // a look of gRPC's own
  for (Case& one : cases_) {
    absl::Status status =
        Fetch(MakeChannelCredentials(one.certificates), MakeServerCredentials(one.certificates));
    EXPECT_TRUE(status.ok()) << one.name << ": " << status;
    EXPECT_EQ(one.notices.Count("certificates_refused"), 1) << one.name;
    EXPECT_EQ(StateOf(one.certificates).replacements, 0) << one.name;
  }
}

TEST_F(BadFiles, AreForgottenWhenGoodOnesCome) {
  TlsFiles files = Copy("worker", "one");
  Notices notices;
  auto certificates = Open(files, notices.log());
  Write(files.certificate, "");
  ASSERT_TRUE(notices.WaitFor("certificates_refused"));
  ASSERT_TRUE(MakeCertificate("good", "next"));
  Write(files.certificate, Read(Path("next.pem")));
  Write(files.key, Read(Path("next.key")));
  ASSERT_TRUE(notices.WaitFor("certificates_replaced"));
  const CertificateState state = StateOf(certificates);
  EXPECT_TRUE(state.files.ok()) << state.files;
  EXPECT_EQ(state.own.subject, "CN = next");
  EXPECT_EQ(state.replacements, 1);
  EXPECT_TRUE(Fetch(MakeChannelCredentials(certificates), MakeServerCredentials(certificates)).ok());
}

TEST_F(BadFiles, CredentialsKeepTheirContentsWhenTheFilesAreNoLongerFollowed) {
  auto certificates = Open(Files("worker"));
  auto worker = MakeServerCredentials(certificates);
  auto consumer = MakeChannelCredentials(certificates);
  certificates.reset();
  // Descriptors that are free now must not be taken for the certificates.
  std::vector<std::unique_ptr<std::ofstream>> empty;
  for (int i = 0; i < 16; ++i) {
    empty.push_back(std::make_unique<std::ofstream>(Path(absl::StrCat("empty", i))));
  }
  absl::SleepFor(absl::Seconds(3));
  absl::Status status = Fetch(consumer, worker);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(MutualTls, RefusesAServerWithAnotherName) {
  ASSERT_TRUE(MakeCertificate("good", "worker", "DNS:elsewhere.example"));
  EXPECT_TRUE(absl::IsUnavailable(Fetch(Files("consumer"))));
}

TEST_F(MutualTls, RefusesAServerOfAnotherAuthority) {
  TlsFiles files = Files("consumer");
  files.ca = Path("evil.pem");
  EXPECT_TRUE(absl::IsUnavailable(Fetch(files)));
}

class TlsFilesError : public MutualTls {
 protected:
  void Expect(const TlsFiles& files, absl::StatusCode code, const std::vector<std::string>& words) {
    const absl::Status status = OpenCertificates(files, nullptr).status();
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

TEST_F(TlsFilesError, AChainInTheWrongOrderNamesTheCertificateOfTheKey) {
  Append("chain.pem", "good.pem");
  Append("chain.pem", "worker.pem");
  TlsFiles files = Files("worker");
  files.certificate = Path("chain.pem");
  Expect(files, absl::StatusCode::kInvalidArgument,
         {files.certificate + ": certificate 2", "must come first"});
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
  EXPECT_TRUE(OpenCertificates(authority, nullptr).ok());
}

TEST_F(TlsFilesError, OfACertificateThatExpiresMeanwhileIsLoggedBeforeAndAfter) {
  const absl::Time end = absl::Now() + absl::Seconds(15);
  ASSERT_TRUE(
      MakeAuthority("brief", "200101000000Z", absl::FormatTime("%y%m%d%H%M%SZ", end, absl::UTCTimeZone())));
  Notices notices;
  auto certificates = Open(Files("brief"), notices.log());
  ASSERT_NE(certificates, nullptr);
  EXPECT_TRUE(notices.WaitFor("certificate_expires"));
  EXPECT_EQ(StateOf(certificates).own.not_after, absl::FromUnixSeconds(absl::ToUnixSeconds(end)));
  EXPECT_TRUE(notices.WaitFor("certificate_expired"));
  EXPECT_EQ(notices.Count("certificate_expires"), 1);
}

TEST(LifetimeAt, WarnsAWeekAheadOrInTheLastTenthOfAShortValidity) {
  const absl::Time begin = absl::FromUnixSeconds(1'700'000'000);
  const auto at = [&](absl::Duration length, absl::Duration left) {
    return LifetimeAt({"CN = x", begin, begin + length}, begin + length - left);
  };
  const absl::Duration day = absl::Hours(24);
  EXPECT_EQ(at(365 * day, 8 * day), Lifetime::kGood);
  EXPECT_EQ(at(365 * day, 6 * day), Lifetime::kEnding);
  EXPECT_EQ(at(day, absl::Hours(3)), Lifetime::kGood);
  EXPECT_EQ(at(day, absl::Hours(2)), Lifetime::kEnding);
  EXPECT_EQ(at(day, absl::ZeroDuration()), Lifetime::kOver);
  EXPECT_EQ(at(day, -day), Lifetime::kOver);
}

TEST(MemoryFile, IsReplacedAsAWholeAndNeverInPlace) {
  absl::StatusOr<MemoryFile> file = MemoryFile::Create("test", "one");
  ASSERT_TRUE(file.ok()) << file.status();
  std::ifstream before(file->path());
  const auto first = std::filesystem::last_write_time(file->path());
  ASSERT_TRUE(file->Replace(std::string(1 << 20, 'x')).ok());
  std::string text;
  before >> text;
  EXPECT_EQ(text, "one");
  EXPECT_EQ(std::filesystem::file_size(file->path()), 1 << 20);
  EXPECT_NE(std::filesystem::last_write_time(file->path()), first);
  EXPECT_FALSE(std::ofstream(file->path(), std::ios::app) << "more" << std::flush) << "sealed";
}

TEST(MemoryFile, TakesOverThePathOfTheOneBefore) {
  std::string path;
  {
    absl::StatusOr<MemoryFile> file = MemoryFile::Create("test", "one");
    ASSERT_TRUE(file.ok());
    path = file->path();
  }
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "one") << "a reader may be late";
  absl::StatusOr<MemoryFile> next = MemoryFile::Create("test", "two");
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->path(), path);
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "two");
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
         {Path("worker.key") + ": contains no certificate, but a private key"});
  expect([&](TlsFiles& files) { files.key = files.certificate; }, kInvalid,
         {Path("worker.pem") + ": contains no private key, but a certificate"});
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
