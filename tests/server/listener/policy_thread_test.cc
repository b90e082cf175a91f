#include "server/listener/policy_thread.h"

#include <gtest/gtest.h>

#include <fstream>

#include "kernels/mutex.h"
#include "tests/server/auth/certificates.h"

namespace kaon::listener {
namespace {

TEST(PolicyThreadTest, EndsDeniedAndExpiredConnectionsAndLeavesOthers) {
  const testing::Certificates certificates("");
  v1::TlsConfig tls = certificates.Server("shard");
  tls.set_deny_file(certificates.directory() + "/denied");
  std::ofstream(tls.deny_file()) << "serial:AB\n";
  const auto certificate = [](const char* serial, absl::Time expires) {
    return std::make_shared<auth::PeerCertificate>(
        auth::PeerCertificate{"spiffe://kaon.local/kaon/worker/gpt/0", "issuer", serial, expires});
  };
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  const auto good = certificate("1", now);
  const auto denied = certificate("AB", now);
  const auto expired = certificate("2", now - absl::Seconds(1));

  Mutex mu;
  CondVar changed;
  std::vector<uint64_t> ended;
  PolicyThread::Options options;
  options.policy = *auth::PeerPolicy::Create(tls);
  options.connections = [&] {
    return std::vector<CertifiedConnection>{
        {1, good}, {2, denied}, {3, expired}, {4, good}, {5, denied}};
  };
  options.end = [&](const std::vector<uint64_t>& ids) {
    MutexLock lock(mu);
    ended = ids;
    changed.NotifyAll();
    return ids.size();
  };
  options.now = [now] { return now; };
  const PolicyThread thread(std::move(options));
  MutexLock lock(mu);
  while (ended.empty()) changed.Wait(mu);
  EXPECT_EQ(ended, std::vector<uint64_t>({2, 3, 5}));
}

}  // namespace
}  // namespace kaon::listener
