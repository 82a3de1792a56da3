// Probes and metrics are answered whatever else is connected.
#include "server/http_responder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/server/dial.h"

namespace evenkeel::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class Responder : public testing::Test {
 protected:
  std::string Ask(std::string_view request) {
    const Handle connection = Dial(responder_->address());
    SendAll(connection, request);
    return ReadAll(connection);
  }

  const std::string large_ = std::string(4 << 20, 'x');
  const std::unique_ptr<HttpResponder> responder_ =
      *HttpResponder::Start("--probes", "127.0.0.1:0", [this](std::string_view path) {
        if (path == "/healthz") return HttpResponder::Reply{.body = "ok\n"};
        if (path == "/readyz") return HttpResponder::Reply{.code = 503, .body = "draining\n"};
        if (path == "/large") return HttpResponder::Reply{.body = large_};
        return HttpResponder::Reply{.code = 404};
      });
};

constexpr std::string_view kHealth = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";

TEST_F(Responder, AnswersByPath) {
  EXPECT_THAT(Ask(kHealth), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Ask(kHealth), EndsWith("Connection: close\r\n\r\nok\n"));
  EXPECT_THAT(Ask("GET /healthz?verbose HTTP/1.0\r\n\r\n"), HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(Ask("GET /readyz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(Ask("HEAD /healthz HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
  EXPECT_THAT(Ask("POST /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask("\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Ask("GET\r\n\r\n"), StartsWith("HTTP/1.1 400"));
}

TEST_F(Responder, SendsAReplyThatFillsTheSocketManyTimes) {
  EXPECT_THAT(Ask("GET /large HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n" + large_));
}

TEST_F(Responder, TakesARequestInPieces) {
  const Handle connection = Dial(responder_->address());
  for (const char c : kHealth) SendAll(connection, {&c, 1});
  EXPECT_THAT(ReadAll(connection), EndsWith("ok\n"));
}

TEST_F(Responder, ClosesARequestWithoutEnd) { EXPECT_EQ(Ask(std::string(9000, 'x')), ""); }

TEST_F(Responder, AnswersWhileHundredsOfConnectionsSayNothing) {
  std::vector<Handle> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(Dial(responder_->address()));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Ask(kHealth), EndsWith("ok\n"));
  EXPECT_TRUE(Eventually([&] { return IsClosed(idle.front()); }));
}

TEST_F(Responder, AnswersWhileNobodyReadsWhatItSends) {
  std::vector<Handle> deaf;
  for (int i = 0; i < 100; ++i) {
    deaf.push_back(Dial(responder_->address()));
    SendAll(deaf.back(), "GET /large HTTP/1.1\r\n\r\n");
  }
  EXPECT_THAT(Ask(kHealth), EndsWith("ok\n"));
}

TEST_F(Responder, AnswersWhenTheProcessHasNoHandleLeft) {
  std::vector<Handle> dialled;
  for (int i = 0; i < 3; ++i) dialled.push_back(UnconnectedSocket(responder_->address()));
  const NoHandleLeft no_handle;
  for (const Handle& socket : dialled) {
    Connect(socket, responder_->address());
    SendAll(socket, kHealth);
    EXPECT_THAT(ReadAll(socket), EndsWith("ok\n"));
  }
}

}  // namespace
}  // namespace evenkeel::server
