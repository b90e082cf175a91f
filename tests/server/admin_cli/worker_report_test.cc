#include "server/admin_cli/worker_report.h"

#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

v1::GetStatusResponse TwoWorkers() {
  v1::GetStatusResponse status;
  for (const uint32_t rank : {0, 1}) {
    v1::WorkerStatus& worker = *status.add_workers();
    worker.set_rank(rank);
    worker.mutable_attempt()->mutable_ballot()->set_counter(3);
    worker.mutable_attempt()->set_number(rank + 6);
  }
  status.mutable_workers(1)->set_begun_step(4);
  status.mutable_workers(1)->set_grad_norm(2.5);
  status.mutable_workers(1)->set_grad_norm_outliers(2);
  return status;
}

TEST(WorkerReportTest, TextHasADashForWhatIsNotKnown) {
  EXPECT_EQ(WorkersText(TwoWorkers()),
            "WORKER  ATTEMPT  BEGUN STEP  GRAD NORM  OUTLIERS\n"
            "     0  3.6               -          -         0\n"
            "     1  3.7               4        2.5         2\n");
}

TEST(WorkerReportTest, JsonHasNullForWhatIsNotKnown) {
  EXPECT_EQ(WorkersJson(TwoWorkers()).dump(),
            R"([{"rank":0,"attempt":"3.6","begun_step":0,"grad_norm":null,"grad_norm_outliers":0},)"
            R"({"rank":1,"attempt":"3.7","begun_step":4,"grad_norm":2.5,"grad_norm_outliers":2}])");
}

}  // namespace
}  // namespace kaon::admin_cli
