// The status page of a coordinator: its routes for HttpServer. It only reads. Owned by
// CoordinatorMonitor; the connections' threads.
#ifndef KAON_SERVER_COORDINATOR_PAGE_STATUS_PAGE_H_
#define KAON_SERVER_COORDINATOR_PAGE_STATUS_PAGE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "server/coordinator/page/page_shell.h"
#include "server/coordinator/page/status_feed.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/monitor/metrics/http_server.h"

namespace kaon::coordinator {

class StatusPage {
 public:
  // `queries` outlives every answer that it owes.
  explicit StatusPage(const ClusterQueries& queries)
      : queries_(queries), feed_(StatusFeed::Make(queries)) {}

  // Returns the routes; they refer to this object. Each needs the token.
  std::vector<metrics::HttpRoute> Routes();
  // Calls StatusFeed::Tick.
  void Tick() { feed_->Tick(); }

 private:
  metrics::HttpResponse Overview(const metrics::HttpRequest& request);
  metrics::HttpResponse Events(const metrics::HttpRequest& request);
  metrics::HttpResponse StepsCsv(const metrics::HttpRequest& request);
  metrics::HttpResponse Parameters(const metrics::HttpRequest& request);
  metrics::HttpResponse ParametersCsv(const metrics::HttpRequest& request);
  // Waits until the feed has values of the last seconds, as far as the shards answer.
  void AwaitFresh();
  metrics::HttpResponse Parameter(const metrics::HttpRequest& request);
  metrics::HttpResponse ParameterCsv(const metrics::HttpRequest& request);
  // Starts a query and waits for its answer from the shards. RESOURCE_EXHAUSTED if too many others
  // wait.
  template <typename Response>
  absl::StatusOr<Response> Await(const std::function<void(ClusterQueries::Done<Response>)>& ask);
  absl::StatusOr<v1::ListParametersResponse> List(const v1::ListParametersRequest& request);
  // The history of the parameter whose id a request names, with the name of the parameter.
  struct NamedHistory {
    std::string name;
    v1::GetParameterHistoryResponse history;
  };
  absl::StatusOr<NamedHistory> HistoryOf(const metrics::HttpRequest& request);
  // Returns the range of steps that a request names.
  Range RangeOf(const metrics::HttpRequest& request) const;

  const ClusterQueries& queries_;
  const std::shared_ptr<StatusFeed> feed_;
  std::atomic<int> waiting_{0};
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_STATUS_PAGE_H_
