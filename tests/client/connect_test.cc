// Client::Connect proves that a coordinator answers, or says within its deadline why none does.
#include <gmock/gmock.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "client/kaon/client.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "tests/server/auth/certificates.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/fake_cluster.h"

namespace kaon {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string ContentsOf(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A server with the files of one certificate, a shard's service and health. One thread.
class Server {
 public:
  explicit Server(const TlsFiles& files) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = ContentsOf(files.ca);
    options.pem_key_cert_pairs = {{ContentsOf(files.private_key), ContentsOf(files.certificate)}};
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:0",
        files.ca.empty() ? grpc::InsecureServerCredentials() : grpc::SslServerCredentials(options),
        &port_);
    builder.RegisterService(&shard_data_);
    server_ = builder.BuildAndStart();
  }

  void ServeAsCoordinator() {
    server_->GetHealthCheckService()->SetServingStatus("kaon.v1.Coordinator", false);
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  v1::ShardData::Service shard_data_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

Status ConnectTo(const std::string& address, const TlsFiles& tls) {
  ClientOptions options;
  options.coordinators = {address};
  options.tls = tls;
  options.call_deadline = std::chrono::milliseconds(2000);
  return Client::Connect(options).status();
}

TEST(ConnectTest, SaysThatAnAddressIsUnreachable) {
  const Status status = ConnectTo("127.0.0.1:1", {});
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(),
              ContainsRegex("waited 2s for a coordinator to answer, [0-9]+ tries; "
                            "127.0.0.1:1: UNAVAILABLE: "));
  EXPECT_THAT(status.message(), HasSubstr("Connection refused"));
}

TEST(ConnectTest, SaysThatTheServerIsNoCoordinator) {
  Server server(TlsFiles{});
  EXPECT_EQ(ConnectTo(server.address(), {}).ToString(),
            "FAILED_PRECONDITION: another server than a coordinator answers at " +
                server.address() +
                ": name coordinators in ClientOptions::coordinators or KAON_ENDPOINTS");
}

TEST(ConnectTest, WaitsForAnAddressThatDoesNotAnswerYet) {
  Server other(TlsFiles{});
  ClientOptions options;
  options.coordinators = {other.address(), "127.0.0.1:1"};
  options.call_deadline = std::chrono::milliseconds(500);
  const Status status = Client::Connect(options).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:1: UNAVAILABLE: "));
}

TEST(ConnectTest, SaysOnTheLogWhatItWaitsFor) {
  const testing::CapturedLog log;
  Server server(TlsFiles{});
  ClientOptions options;
  options.coordinators = {server.address(), "127.0.0.1:1"};
  options.wait_log_interval = std::chrono::milliseconds(20);
  Status status;
  std::thread waiting([&] { status = Client::Connect(options).status(); });
  while (log.text().find("for a coordinator to answer; ") == std::string::npos) {
    std::this_thread::yield();
  }
  server.ServeAsCoordinator();
  waiting.join();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(ConnectTest, AcceptsACoordinatorWhoseJobIsStopped) {
  const testing::Certificates certificates("");
  Server server(certificates.Client("coordinator"));
  server.ServeAsCoordinator();
  const Status status = ConnectTo(server.address(), certificates.Client("worker-0"));
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(ConnectTest, SaysThatTheServerHasAnotherRole) {
  const testing::Certificates certificates("");
  Server server(certificates.Client("shard"));
  const Status status = ConnectTo(server.address(), certificates.Client("worker-0"));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("server has role shard, expecting coordinator"));
}

TEST(ConnectTest, SaysThatTheCaIsAnotherOne) {
  const testing::Certificates theirs(""), ours("");
  Server server(theirs.Client("coordinator"));
  const Status status = ConnectTo(server.address(), ours.Client("worker-0"));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("certificate verify failed"));
}

TEST(ConnectTest, FindsTheOneAddressThatAnswers) {
  const testing::FakeCluster cluster;
  Server other(TlsFiles{});
  ClientOptions options;
  options.coordinators = {"127.0.0.1:1", other.address(), cluster.address()};
  EXPECT_TRUE(Client::Connect(options));
}

}  // namespace
}  // namespace kaon
