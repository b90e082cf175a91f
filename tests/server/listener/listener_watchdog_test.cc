#include "server/listener/listener_watchdog.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <future>
#include <string>

#include "proto/descriptor.h"
#include "tests/server/auth/certificates.h"
#include "tests/server/auth/secured_server.h"

namespace kaon::listener {
namespace {

sockaddr_storage Loopback(uint16_t port) {
  sockaddr_storage address = {};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  v4.sin_port = htons(port);
  return address;
}

TEST(ProbePortTest, IsAnsweredByAServerWithAndWithoutTls) {
  const testing::Certificates certificates("");
  testing::SecuredServer secured(certificates.Server("shard"));
  testing::SecuredServer plain({});
  const absl::Duration timeout = absl::Seconds(60);
  EXPECT_TRUE(ProbePort(Loopback(secured.listener().port()), true, timeout).ok());
  EXPECT_TRUE(ProbePort(Loopback(plain.listener().port()), false, timeout).ok());
}

// A port whose connections the kernel completes, and no process accepts.
class DeafPort {
 public:
  DeafPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_ = Loopback(0);
    socklen_t size = sizeof(sockaddr_in);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(listen(socket_.get(), 8), 0);
    EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }
  const sockaddr_storage& address() const { return address_; }

 private:
  proto::Descriptor socket_;
  sockaddr_storage address_;
};

TEST(ListenerWatchdogTest, SaysWhenThePortHasNotAnsweredSeveralTimes) {
  const DeafPort port;
  std::promise<std::string> reason;
  ListenerWatchdog::Options options;
  options.address = port.address();
  options.tls = true;
  options.interval = options.timeout = absl::Milliseconds(1);
  options.on_deaf = [&reason](const std::string& why) { reason.set_value(why); };
  const ListenerWatchdog watchdog(std::move(options));
  EXPECT_THAT(reason.get_future().get(),
              ::testing::HasSubstr("the port has not answered 3 times in a row (no byte of a "
                                   "handshake comes)"));
}

TEST(ListenerWatchdogTest, EndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto watch = [] {
    const DeafPort port;
    ListenerWatchdog::Options options;
    options.address = port.address();
    options.interval = options.timeout = absl::Milliseconds(1);
    const ListenerWatchdog watchdog(std::move(options));
    std::promise<void>().get_future().wait();
  };
  EXPECT_EXIT(watch(), ::testing::ExitedWithCode(1), "the port has not answered");
}

}  // namespace
}  // namespace kaon::listener
