#include "server/monitor/service_health.h"

#include <glog/logging.h>

namespace kaon::monitor {

void ServiceHealth::SetReason(const std::string& cause, const std::string& reason) {
  MutexLock lock(mu_);
  const bool was_serving = reasons_.empty();
  if (reason.empty()) {
    reasons_.erase(cause);
  } else {
    reasons_[cause] = reason;
  }
  if (reasons_.empty() == was_serving) return;
  LOG_IF(INFO, !was_serving) << service_ << ": SERVING again";
  LOG_IF(ERROR, was_serving) << service_ << ": NOT_SERVING: " << cause << ": " << reason;
  if (server_ != nullptr) server_->SetServingStatus(service_, reasons_.empty());
}

std::string ServiceHealth::reason(const std::string& cause) const {
  MutexLock lock(mu_);
  const auto found = reasons_.find(cause);
  return found == reasons_.end() ? "" : found->second;
}

bool ServiceHealth::serving() const {
  MutexLock lock(mu_);
  return reasons_.empty();
}

void ServiceHealth::ShowIn(grpc::HealthCheckServiceInterface* server) {
  MutexLock lock(mu_);
  server_ = server;
  if (server_ != nullptr) server_->SetServingStatus(service_, reasons_.empty());
}

}  // namespace kaon::monitor
