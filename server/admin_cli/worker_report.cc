#include "server/admin_cli/worker_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {

using Json = nlohmann::ordered_json;

std::string AttemptText(const v1::Attempt& attempt) {
  return absl::StrCat(attempt.ballot().counter(), ".", attempt.number());
}

Json BallotJson(const v1::Ballot& ballot) {
  return {{"counter", ballot.counter()},
          {"incarnation",
           absl::StrFormat("%016x%016x", ballot.incarnation_high(), ballot.incarnation_low())}};
}

Json WorkersJson(const v1::GetStatusResponse& status) {
  Json json = Json::array();
  for (const v1::WorkerStatus& worker : status.workers()) {
    json.push_back({{"rank", worker.rank()},
                    {"attempt", AttemptText(worker.attempt())},
                    {"begun_step", worker.begun_step()},
                    {"grad_norm", worker.has_grad_norm() ? Json(worker.grad_norm()) : Json()},
                    {"grad_norm_outliers", worker.grad_norm_outliers()}});
  }
  return json;
}

std::string WorkersText(const v1::GetStatusResponse& status) {
  constexpr Align kRight = Align::kRight;
  Table workers({{"WORKER", kRight},
                 {"ATTEMPT"},
                 {"BEGUN STEP", kRight},
                 {"GRAD NORM", kRight},
                 {"OUTLIERS", kRight}});
  for (const v1::WorkerStatus& worker : status.workers()) {
    workers.AddRow({absl::StrCat(worker.rank()), AttemptText(worker.attempt()),
                    worker.begun_step() == 0 ? "-" : absl::StrCat(worker.begun_step()),
                    worker.has_grad_norm() ? absl::StrCat(worker.grad_norm()) : "-",
                    absl::StrCat(worker.grad_norm_outliers())});
  }
  return workers.ToString();
}

}  // namespace kaon::admin_cli
