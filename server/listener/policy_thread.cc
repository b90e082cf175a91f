#include "server/listener/policy_thread.h"

#include <glog/logging.h>

#include <map>
#include <utility>

#include "absl/status/status.h"

namespace kaon::listener {

namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(500);

}  // namespace

PolicyThread::PolicyThread(Options options)
    : options_(std::move(options)), thread_(kInterval, [this] { return Look(); }) {}

absl::Duration PolicyThread::Look() {
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
  return kInterval;
}

}  // namespace kaon::listener
