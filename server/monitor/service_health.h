// Health of one service of this process, as grpc.health.v1 reports it (reliability.md P18):
// NOT_SERVING while at least one cause has a reason, else SERVING. Each change is logged once.
// Thread-safe. The server that offers the service owns it.
#ifndef KAON_SERVER_MONITOR_SERVICE_HEALTH_H_
#define KAON_SERVER_MONITOR_SERVICE_HEALTH_H_

#include <grpcpp/health_check_service_interface.h>

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace kaon::monitor {

class ServiceHealth {
 public:
  // `service` is the name on the wire: package.Service.
  explicit ServiceHealth(std::string service) : service_(std::move(service)) {}

  // Sets why the service takes no calls as far as `cause`, a word such as "journal", knows. An
  // empty reason withdraws it. Causes are independent.
  void SetReason(const std::string& cause, const std::string& reason);
  // Returns the last reason of `cause`, or "".
  std::string reason(const std::string& cause) const;
  bool serving() const;

  // Reports the present state and later changes to `server`. Call it with null before `server` is
  // destroyed.
  void ShowIn(grpc::HealthCheckServiceInterface* server);

 private:
  const std::string service_;

  mutable Mutex mu_;
  // Reasons by cause; no reason is empty.
  std::map<std::string, std::string> reasons_ ABSL_GUARDED_BY(mu_);
  grpc::HealthCheckServiceInterface* server_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_SERVICE_HEALTH_H_
