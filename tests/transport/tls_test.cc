// Mutual TLS between a server and a client of ours, with certificates made on the spot.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "tests/transport/peers.h"
#include "transport/credentials.h"

namespace evenkeel::transport {
namespace {

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

}  // namespace
}  // namespace evenkeel::transport
