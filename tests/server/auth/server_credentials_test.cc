#include "server/auth/server_credentials.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

#include "client/transport/channel.h"
#include "proto/grpc_limits.h"
#include "server/auth/authorization_matrix.h"
#include "server/auth/call_limits.h"
#include "server/auth/peer_certificate.h"
#include "tests/server/auth/certificates.h"
#include "tests/server/auth/secured_server.h"

namespace kaon::auth {
namespace {

using proto::Role;
using testing::CallEmpty;

constexpr char kDescribe[] = "/kaon.v1.ShardControl/DescribeShard";

// One certificate directory and one server for all tests: nothing here changes them.
class ServerCredentialsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    certificates_ = std::make_unique<testing::Certificates>(
        "--extra reader=reader --extra checkpointer=checkpointer --extra shard-client=shard "
        "--extra wizard=wizard");
    server_ = std::make_unique<testing::SecuredServer>(certificates_->Server("shard"));
  }
  static void TearDownTestSuite() {
    server_.reset();
    certificates_.reset();
  }

  static grpc::Status CallAs(const kaon::TlsFiles& tls, const std::string& method) {
    return CallEmpty(*client::CreateChannel(server_->address(), tls, Role::kShard), method);
  }

  static std::unique_ptr<testing::Certificates> certificates_;
  static std::unique_ptr<testing::SecuredServer> server_;
};

std::unique_ptr<testing::Certificates> ServerCredentialsTest::certificates_;
std::unique_ptr<testing::SecuredServer> ServerCredentialsTest::server_;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(ServerCredentialsTest, EveryRoleReachesExactlyTheMethodsOfItsRow) {
  const std::pair<Role, const char*> clients[] = {
      {Role::kWorker, "worker-0"},           {Role::kReader, "reader"},
      {Role::kCheckpointer, "checkpointer"}, {Role::kAdmin, "admin"},
      {Role::kCoordinator, "coordinator"},   {Role::kShard, "shard-client"}};
  for (const auto& [role, name] : clients) {
    auto channel =
        client::CreateChannel(server_->address(), certificates_->Client(name), Role::kShard);
    ASSERT_TRUE(channel.ok()) << channel.status();
    for (const MethodRule& rule : AuthorizationMatrix()) {
      if (rule.method.find("grpc.health") != absl::string_view::npos) continue;
      const std::string method(rule.method);
      const bool allowed = AuthorizeMethod(role, method).ok();
      // The test server's handlers answer UNIMPLEMENTED, but for one.
      const grpc::StatusCode reached = method == kDescribe ? grpc::OK : grpc::UNIMPLEMENTED;
      const grpc::Status status = CallEmpty(*channel, method);
      EXPECT_EQ(status.error_code(), allowed ? reached : grpc::PERMISSION_DENIED)
          << method << " by " << name << ": " << status.error_message();
    }
  }
}

TEST_F(ServerCredentialsTest, RefusesMethodThatDoesNotExist) {
  const grpc::Status status = CallAs(certificates_->Client("admin"), "/kaon.v1.Admin/Explode");
  EXPECT_EQ(status.error_code(), grpc::PERMISSION_DENIED) << status.error_message();
}

// P20: "counted and logged with peer identity".
TEST_F(ServerCredentialsTest, TellsWhoWasRefused) {
  CallAs(certificates_->Client("worker-0"), kDescribe);
  const std::string refused = server_->last_refused();
  EXPECT_EQ(refused.find("spiffe://"), 0u) << refused;
  EXPECT_NE(refused.find("/worker/"), std::string::npos) << refused;
  EXPECT_NE(refused.find("role worker may not call /kaon.v1.ShardControl/DescribeShard"),
            std::string::npos)
      << refused;
}

TEST_F(ServerCredentialsTest, TellsOfEveryCallWhateverBecomesOfIt) {
  const int before = server_->arrived();
  EXPECT_TRUE(CallAs(certificates_->Client("coordinator"), kDescribe).ok());
  EXPECT_EQ(server_->arrived(), before + 1);
  EXPECT_FALSE(CallAs(certificates_->Client("worker-0"), kDescribe).ok());
  EXPECT_EQ(server_->arrived(), before + 2);
}

TEST_F(ServerCredentialsTest, RefusesUnknownRole) {
  const grpc::Status status = CallAs(certificates_->Client("wizard"), kDescribe);
  EXPECT_EQ(server_->last_refused().find("a certificate that names nobody"), 0u)
      << server_->last_refused();
  EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << status.error_message();
  EXPECT_NE(status.error_message().find("unknown role 'wizard'"), std::string::npos)
      << status.error_message();
}

TEST_F(ServerCredentialsTest, RefusesCertificateOfAnotherCa) {
  const testing::Certificates strangers("");
  kaon::TlsFiles tls = strangers.Client("admin");
  tls.ca = certificates_->Client("admin").ca;
  const int before = server_->described();
  EXPECT_EQ(CallAs(tls, kDescribe).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(server_->described(), before);
}

TEST_F(ServerCredentialsTest, RefusesCertificateThatIsOnlyForServers) {
  EXPECT_EQ(CallAs(certificates_->Client("shard"), kDescribe).error_code(), grpc::UNAVAILABLE);
}

TEST_F(ServerCredentialsTest, RefusesCallerWithoutCertificate) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ReadFile(certificates_->Client("admin").ca);
  auto channel = grpc::CreateChannel(server_->address("localhost"), grpc::SslCredentials(options));
  EXPECT_EQ(CallEmpty(channel, kDescribe).error_code(), grpc::UNAVAILABLE);
}

TEST_F(ServerCredentialsTest, RefusesPlaintextCaller) {
  auto channel = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(CallEmpty(channel, kDescribe).error_code(), grpc::UNAVAILABLE);
}

TEST(PeerPolicyOfServerTest, EndsOpenConnectionsOfADeniedIdentityAndLeavesOthers) {
  const testing::Certificates certificates("");
  v1::TlsConfig tls = certificates.Server("shard");
  tls.set_deny_file(certificates.directory() + "/denied");
  std::ofstream(tls.deny_file()) << "# nobody yet\n";
  testing::SecuredServer server(tls);
  const auto connect = [&](const char* name) {
    return *client::CreateChannel(server.address(), certificates.Client(name), Role::kShard);
  };
  // A worker may not describe a shard, but it may wait for its health.
  const std::string health = "/grpc.health.v1.Health/Check";
  const auto stolen = connect("worker-0");
  const auto honest = connect("coordinator");
  ASSERT_NE(CallEmpty(stolen, health).error_code(), grpc::UNAUTHENTICATED);
  ASSERT_TRUE(CallEmpty(honest, kDescribe).ok());
  ASSERT_EQ(stolen->GetState(false), GRPC_CHANNEL_READY);

  std::ofstream(tls.deny_file()) << "spiffe://kaon.local/kaon/worker/kaon-train  # stolen\n";
  // The open connection ends, although it is idle.
  ASSERT_TRUE(stolen->WaitForStateChange(
      GRPC_CHANNEL_READY, std::chrono::system_clock::now() + std::chrono::seconds(20)));
  const grpc::Status status = CallEmpty(stolen, health);
  EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << status.error_message();
  EXPECT_NE(status.error_message().find("denied by line 1 of "), std::string::npos)
      << status.error_message();
  EXPECT_EQ(honest->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_TRUE(CallEmpty(honest, kDescribe).ok());
}

// Both have the same identity. Their calls have no handler, and so count until the connection ends.
TEST(PeerPolicyOfServerTest, ADeniedCertificateTakesNoCallsOfItsSuccessor) {
  const testing::Certificates certificates("--extra renewed=worker/kaon-train/0");
  const auto denied = ParseCertificate(ReadFile(certificates.directory() + "/worker-0.crt"));
  ASSERT_TRUE(denied.ok()) << denied.status();
  v1::TlsConfig tls = certificates.Server("shard");
  tls.set_deny_file(certificates.directory() + "/denied");
  std::ofstream(tls.deny_file()) << "serial:" << denied->serial << "\n";
  testing::SecuredServer server(tls);
  constexpr int kCalls = 2 * CallLimits::kFreeCalls;
  server.listener().GuardMemory(kCalls * 4 * CallLimits::kCallBytes);
  const auto connect = [&](const char* name) {
    return *client::CreateChannel(server.address(), certificates.Client(name), Role::kShard);
  };
  const auto stolen = connect("worker-0");
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(CallEmpty(stolen, kDescribe).error_code(), grpc::UNAUTHENTICATED);
  }
  const auto honest = connect("renewed");
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(CallEmpty(honest, kDescribe).error_code(), grpc::PERMISSION_DENIED);
  }
}

TEST(PeerPolicyOfServerTest, ServersAndCallersAcceptTheirOwnTrustDomainOnly) {
  const std::string ca = ::testing::TempDir() + "/ca_of_two_domains";
  const testing::Certificates here("--ca-dir " + ca);
  const testing::Certificates there("--domain elsewhere --ca-dir " + ca);
  const testing::SecuredServer server(here.Server("shard"));
  const auto call = [&](const kaon::TlsFiles& tls) {
    return CallEmpty(*client::CreateChannel(server.address(), tls, Role::kShard), kDescribe);
  };
  EXPECT_TRUE(call(here.Client("coordinator")).ok());
  // The caller already refuses the server.
  EXPECT_EQ(call(there.Client("coordinator")).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(server.described(), 1);
}

TEST(CreateServerCredentialsTest, RefusesPlaintextOffLoopback) {
  for (const char* listen : {"0.0.0.0:0", "[::]:0", "10.0.0.1:443", "example.org:1"}) {
    EXPECT_EQ(CreateServerCredentials({}, listen, nullptr).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << listen;
  }
}

TEST(CreateServerCredentialsTest, RefusesHalfASetOfFiles) {
  v1::TlsConfig tls;
  tls.set_ca_file("ca.crt");
  EXPECT_EQ(CreateServerCredentials(tls, "127.0.0.1:0", nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CreateServerCredentialsTest, NamesTheFileThatCannotBeRead) {
  v1::TlsConfig tls;
  tls.set_ca_file("/nonexistent/ca.crt");
  tls.set_certificate_file("/nonexistent/x.crt");
  tls.set_private_key_file("/nonexistent/x.key");
  const absl::Status status = CreateServerCredentials(tls, "127.0.0.1:0", nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "tls ca file '/nonexistent/ca.crt' cannot be read");
}

TEST(CreateServerCredentialsTest, RefusesListenWithoutPort) {
  for (const char* listen : {"", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:x", "unix:/tmp/s:1"}) {
    EXPECT_EQ(CreateServerCredentials({}, listen, nullptr).status().code(),
              absl::StatusCode::kInvalidArgument)
        << listen;
  }
}

class HardenServerTest : public ::testing::Test {
 protected:
  grpc::Status Describe(const std::string& job, grpc_compression_algorithm compression) {
    auto stub = v1::ShardControl::NewStub(
        grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.set_compression_algorithm(compression);
    v1::DescribeShardRequest request;
    request.set_job(job);
    v1::DescribeShardResponse response;
    return stub->DescribeShard(&context, request, &response);
  }

  testing::SecuredServer server_{{}};
};

TEST_F(HardenServerTest, RefusesCompressedRequest) {
  const grpc::Status status = Describe(std::string(64 << 10, 'x'), GRPC_COMPRESS_GZIP);
  EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED) << status.error_message();
  EXPECT_EQ(server_.described(), 0);
}

TEST_F(HardenServerTest, AcceptsMessageOfTheLargestSize) {
  const grpc::Status status =
      Describe(std::string(proto::kMaxMessageBytes - 16, 'x'), GRPC_COMPRESS_NONE);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(HardenServerTest, RefusesOversizedMessage) {
  const grpc::Status status =
      Describe(std::string(proto::kMaxMessageBytes + 1, 'x'), GRPC_COMPRESS_NONE);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(server_.described(), 0);
}

}  // namespace
}  // namespace kaon::auth
