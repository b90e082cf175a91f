// Whether one service of this process takes calls, as grpc.health.v1 answers it (reliability.md
// P18): SERVING, or NOT_SERVING for as long as there is a cause not to; both are logged once
// whenever it changes. Owned by the server whose service it is; any thread.
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
  // `service` as on the wire: package.Service.
  explicit ServiceHealth(std::string service) : service_(std::move(service)) {}

  // Why it takes no calls as far as `cause` knows, a word such as "journal"; empty: it may take
  // them. Causes do not know of each other.
  void SetReason(const std::string& cause, const std::string& reason);
  // What was set last for `cause`.
  std::string reason(const std::string& cause) const;
  bool serving() const;

  // `server` answers what is so from now on, and later changes; null before it goes.
  void ShowIn(grpc::HealthCheckServiceInterface* server);

 private:
  const std::string service_;

  mutable Mutex mu_;
  // By cause; never empty ones.
  std::map<std::string, std::string> reasons_ ABSL_GUARDED_BY(mu_);
  grpc::HealthCheckServiceInterface* server_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_SERVICE_HEALTH_H_
