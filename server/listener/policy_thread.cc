#include "server/listener/policy_thread.h"

#include <glog/logging.h>

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "kernels/steady_clock.h"

namespace kaon::listener {

namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(500);

}  // namespace

PolicyThread::PolicyThread(Options options)
    : options_(std::move(options)), thread_([this] { Run(); }) {}

PolicyThread::~PolicyThread() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    stop_.NotifyAll();
  }
  thread_.join();
}

void PolicyThread::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      const absl::Time next = SteadyNow() + kInterval;
      while (!stopped_ && SteadyNow() < next) stop_.WaitFor(mu_, next - SteadyNow());
      if (stopped_) return;
    }
    Look();
  }
}

void PolicyThread::Look() {
  options_.policy->Refresh();
  const absl::Time now = options_.now();
  // Many connections share a certificate, and PeerPolicy shares what it has parsed.
  std::map<const auth::PeerCertificate*, absl::Status> checked;
  std::vector<uint64_t> refused;
  const std::vector<CertifiedConnection> connections = options_.connections();
  for (const CertifiedConnection& connection : connections) {
    const auto [found, is_new] = checked.try_emplace(connection.certificate.get());
    if (is_new) {
      found->second = options_.policy->CheckConnection(*connection.certificate, now);
      LOG_IF(WARNING, !found->second.ok()) << "connections end: " << found->second.message();
    }
    if (!found->second.ok()) refused.push_back(connection.id);
  }
  if (!refused.empty()) options_.end(refused);
}

}  // namespace kaon::listener
