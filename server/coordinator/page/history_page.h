// The page of one parameter of the status page: how its norms and ranks went over the steps. Pure
// functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_HISTORY_PAGE_H_
#define KAON_SERVER_COORDINATOR_PAGE_HISTORY_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "kaon/v1/admin.pb.h"

namespace kaon::coordinator {

// Returns charts of the samples of the parameter of that name.
std::string HistoryHtml(absl::string_view name, const v1::GetParameterHistoryResponse& history);
// Returns the problem instead of charts.
std::string HistoryProblemHtml(absl::string_view problem);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_HISTORY_PAGE_H_
