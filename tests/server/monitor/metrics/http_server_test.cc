#include "server/monitor/metrics/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/auth/certificates.h"
#include "tests/server/monitor/metrics/http_client.h"
#include "tests/server/monitor/metrics/https_client.h"

namespace kaon::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "0123456789abcdef-token";

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() { Start("127.0.0.1:0"); }

  void Start(const std::string& address) {
    HttpOptions options;
    options.address = address;
    options.token = kToken;
    options.routes.push_back({"/metrics", false, [](const HttpRequest& request) {
                                HttpResponse response;
                                response.body = "metrics";
                                for (const auto& [key, value] : request.query) {
                                  response.body += " " + key + "=" + value;
                                }
                                return response;
                              }});
    options.routes.push_back({"/", true, [](const HttpRequest&) {
                                HttpResponse response;
                                response.body = "page";
                                return response;
                              }});
    options.routes.push_back({"/events", true, [](const HttpRequest&) {
                                HttpResponse response;
                                response.stream = [sent = 0]() mutable {
                                  return "event " + std::to_string(++sent) + "\n\n";
                                };
                                return response;
                              }});
    absl::StatusOr<std::unique_ptr<HttpServer>> started = HttpServer::Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  std::string Get(const std::string& target, const std::string& more = "") {
    return Fetch(server_->port(), target, more);
  }

  const std::string bearer_ = absl::StrCat("Authorization: Bearer ", kToken, "\r\n");
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesMetricsOnLoopbackWithoutAToken) {
  const std::string response = Get("/metrics?a=1%202&b");
  EXPECT_EQ(StatusOf(response), 200) << response;
  EXPECT_THAT(response, HasSubstr("metrics a=1 2 b="));
  EXPECT_THAT(response, HasSubstr("X-Content-Type-Options: nosniff"));
}

TEST_F(HttpServerTest, AsksForTheTokenOfAPage) {
  EXPECT_EQ(StatusOf(Get("/")), 401);
  EXPECT_EQ(StatusOf(Get("/?token=wrong")), 401);
  EXPECT_EQ(StatusOf(Get("/", "Authorization: Bearer \r\n")), 401);
  EXPECT_EQ(StatusOf(Get("/", absl::StrCat("Authorization: Basic ", kToken, "\r\n"))), 401);
  EXPECT_THAT(Get("/", bearer_), HasSubstr("page"));
  EXPECT_EQ(
      StatusOf(Get("/", absl::StrCat("Cookie: kaon_token_", server_->port(), "=", kToken, "\r\n"))),
      401);
}

TEST_F(HttpServerTest, ExchangesTheTokenOfALinkForACookie) {
  const std::string response = Get(absl::StrCat("/?token=", kToken));
  EXPECT_EQ(StatusOf(response), 303) << response;
  EXPECT_THAT(response, HasSubstr("Location: /\r\n"));
  EXPECT_THAT(response, HasSubstr("; HttpOnly; SameSite=Strict; Path=/\r\n"));
  const std::string name = absl::StrCat("kaon_token_", server_->port(), "=");
  EXPECT_THAT(response, HasSubstr("Set-Cookie: " + name));
  // A cookie that leaks opens the page of this port alone: the token is not in it.
  EXPECT_THAT(response, Not(HasSubstr(kToken)));
  const size_t from = response.find(name);
  const std::string cookie = response.substr(from, response.find(';', from) - from);
  EXPECT_THAT(Get("/", "Cookie: " + cookie + "\r\n"), HasSubstr("page"));
}

TEST_F(HttpServerTest, KeepsTheOtherArgumentsOfALink) {
  EXPECT_THAT(Get(absl::StrCat("/?last=all&token=", kToken, "&q=a%20%26b%0D%0AX:1")),
              HasSubstr("Location: /?last=all&q=a%20%26b%0D%0AX%3A1\r\n"));
}

TEST_F(HttpServerTest, IgnoresTheCookieOfAnotherPort) {
  const int first = server_->port();
  const std::string response = Get(absl::StrCat("/?token=", kToken));
  const size_t from = response.find('=', response.find("Set-Cookie: "));
  const std::string value = response.substr(from, response.find(';', from) - from);
  Start("127.0.0.1:0");
  for (const int port : {first, server_->port()}) {
    EXPECT_EQ(StatusOf(Get("/", absl::StrCat("Cookie: kaon_token_", port, value, "\r\n"))), 401);
  }
}

TEST_F(HttpServerTest, TellsNobodyWithoutATokenWhichPagesExist) {
  EXPECT_EQ(StatusOf(Get("/nothing")), 401);
  EXPECT_EQ(StatusOf(Get("/nothing", bearer_)), 404);
}

TEST_F(HttpServerTest, RefusesNamesOfOtherMachinesOnLoopback) {
  EXPECT_EQ(StatusOf(Fetch(server_->port(), "/metrics", "", "GET", "evil.example.org")), 403);
  EXPECT_EQ(StatusOf(Fetch(server_->port(), "/metrics", "", "GET", "127.0.0.1.example.org:80")),
            403);
  EXPECT_EQ(StatusOf(Fetch(server_->port(), "/metrics", "", "GET", "localhost:7710")), 200);
  EXPECT_EQ(StatusOf(Fetch(server_->port(), "/metrics", "", "GET", "[::1]")), 200);
}

TEST_F(HttpServerTest, OnlyReads) {
  EXPECT_EQ(StatusOf(Fetch(server_->port(), "/metrics", "Content-Length: 3\r\n", "POST")), 405);
  EXPECT_EQ(StatusOf(Fetch(server_->port(), "/metrics", "", "DELETE")), 405);
  const std::string head = Fetch(server_->port(), "/metrics", "", "HEAD");
  EXPECT_EQ(StatusOf(head), 200);
  EXPECT_THAT(head, Not(HasSubstr("\r\n\r\nmetrics")));
  // The stream of a HEAD never begins.
  EXPECT_EQ(StatusOf(Fetch(server_->port(), "/events", bearer_, "HEAD")), 200);
}

TEST_F(HttpServerTest, BoundsARequest) {
  const std::string large(64 << 10, 'x');
  EXPECT_NE(StatusOf(Get("/metrics?" + large)), 200);
  EXPECT_EQ(StatusOf(Get("/metrics")), 200);
}

TEST_F(HttpServerTest, BoundsConnections) {
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 80; ++i) {
    // Fewer of each address than one may have.
    idle.push_back(
        std::make_unique<HttpConnection>(server_->port(), absl::StrCat("127.0.0.", 2 + i % 3)));
  }
  // Those beyond the limit are closed.
  EXPECT_EQ(idle.back()->ReadUntil(""), "");
  // Silent ones would be closed after a while, too, and then there would be room.
  EXPECT_NE(StatusOf(Get("/metrics")), 200);
  idle.clear();
  while (StatusOf(Get("/metrics")) != 200) {
  }
}

TEST_F(HttpServerTest, OneAddressLeavesConnectionsToOthers) {
  std::vector<std::unique_ptr<HttpConnection>> slow;
  for (int i = 0; i < 80; ++i) {
    slow.push_back(std::make_unique<HttpConnection>(server_->port()));
    slow.back()->Send("GET /metrics HTTP/1.1\r\nX: ");
  }
  EXPECT_EQ(slow.back()->ReadUntil(""), "");
  HttpConnection other(server_->port(), "127.0.0.2");
  other.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(StatusOf(other.ReadUntil("")), 200);
}

TEST_F(HttpServerTest, StreamsUntilItStops) {
  HttpConnection connection(server_->port());
  connection.Send("GET /events HTTP/1.1\r\nHost: localhost\r\n" + bearer_ + "\r\n");
  EXPECT_THAT(connection.ReadUntil("event 3\n\n"), HasSubstr("event 1\n\n"));
  server_->Stop();
  EXPECT_FALSE(HttpConnection(server_->port()).connected());
}

TEST_F(HttpServerTest, BoundsStreamsBelowConnections) {
  std::vector<std::unique_ptr<HttpConnection>> open;
  std::string last;
  for (int i = 0; i < 25; ++i) {
    open.push_back(std::make_unique<HttpConnection>(server_->port()));
    open.back()->Send("GET /events HTTP/1.1\r\nHost: localhost\r\n" + bearer_ + "\r\n");
    last = open.back()->ReadUntil("\r\n\r\n");
  }
  EXPECT_EQ(StatusOf(last), 503) << last;
  EXPECT_EQ(StatusOf(Get("/metrics")), 200);
}

TEST_F(HttpServerTest, NamesAnAddressInUse) {
  HttpOptions options;
  options.address = absl::StrCat("127.0.0.1:", server_->port());
  const absl::Status status = HttpServer::Start(std::move(options)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("metrics_address is \"127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Address already in use"));
}

TEST_F(HttpServerTest, NeedsATokenEverywhereOffLoopback) {
  Start("0.0.0.0:0");
  EXPECT_EQ(StatusOf(Get("/metrics")), 401);
  EXPECT_EQ(StatusOf(Get("/metrics", bearer_)), 200);
}

TEST_F(HttpServerTest, OpensNoPageWithoutAToken) {
  HttpOptions options;
  options.address = "127.0.0.1:0";
  options.routes.push_back({"/", true, [](const HttpRequest&) { return HttpResponse(); }});
  const auto closed = HttpServer::Start(std::move(options));
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_EQ(StatusOf(Fetch((*closed)->port(), "/?token=")), 401);
  EXPECT_EQ(StatusOf(Fetch((*closed)->port(), "/", "Authorization: Bearer \r\n")), 401);
}

// A server with the certificate "shard", whose files can change.
class HttpsServerTest : public ::testing::Test {
 protected:
  HttpsServerTest() {
    Use("shard", ".crt");
    Use("shard", ".key");
  }
  void Start() {
    HttpOptions options;
    options.address = "127.0.0.1:0";
    options.certificate_file = directory_ + "/served.crt";
    options.private_key_file = directory_ + "/served.key";
    options.routes.push_back({"/metrics", false, [](const HttpRequest&) {
                                HttpResponse response;
                                response.body = "metrics";
                                return response;
                              }});
    absl::StatusOr<std::unique_ptr<HttpServer>> started = HttpServer::Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  // Replaces the file that is served by that of the certificate `name`.
  void Use(const std::string& name, const std::string& extension) {
    std::filesystem::copy_file(directory_ + "/" + name + extension,
                               directory_ + "/served" + extension,
                               std::filesystem::copy_options::overwrite_existing);
  }
  void Expect(const std::string& certificate) {
    const HttpsAnswer answer = FetchSecurely(server_->port(), "/metrics");
    EXPECT_EQ(StatusOf(answer.response), 200);
    EXPECT_THAT(answer.subject, HasSubstr("CN=" + certificate));
  }

  const testing::Certificates certificates_{""};
  const std::string directory_ = certificates_.directory();
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpsServerTest, AnswersWhateverTheFilesBecome) {
  Start();
  Expect("shard");
  // The key comes later than its certificate.
  Use("coordinator", ".crt");
  for (int i = 0; i < 3; ++i) {
    server_->RereadCertificates();
    Expect("shard");
  }
  Use("coordinator", ".key");
  server_->RereadCertificates();
  Expect("coordinator");
  std::filesystem::resize_file(directory_ + "/served.crt", 100);
  server_->RereadCertificates();
  Expect("coordinator");
  Use("shard", ".crt");
  Use("shard", ".key");
  server_->RereadCertificates();
  Expect("shard");
}

TEST_F(HttpsServerTest, RefusesFilesThatDoNotMatch) {
  Use("coordinator", ".key");
  HttpOptions options;
  options.address = "127.0.0.1:0";
  options.certificate_file = directory_ + "/served.crt";
  options.private_key_file = directory_ + "/served.key";
  EXPECT_THAT(std::string(HttpServer::Start(std::move(options)).status().message()),
              HasSubstr("do not match"));
}

TEST_F(HttpsServerTest, RefusesOldVersionsOfTls) {
  Start();
  EXPECT_EQ(FetchSecurely(server_->port(), "/metrics", TLS1_1_VERSION).response, "");
  EXPECT_EQ(StatusOf(FetchSecurely(server_->port(), "/metrics", TLS1_2_VERSION).response), 200);
}

}  // namespace
}  // namespace kaon::metrics
