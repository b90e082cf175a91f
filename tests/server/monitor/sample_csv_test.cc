#include "server/monitor/sample_csv.h"

#include <gtest/gtest.h>

namespace kaon::monitor {
namespace {

TEST(SampleCsvTest, LeavesAFieldEmptyForAValueThatThereIsNot) {
  v1::ParameterHistory history;
  v1::ParameterSample& first = *history.add_samples();
  first.set_step(1);
  first.set_weight_norm(0.1F);
  v1::ParameterSample& second = *history.add_samples();
  second.set_step(11);
  second.set_weight_norm(2);
  second.set_grad_norm(3);
  second.set_update_norm(1e-9);
  second.set_update_to_weight_ratio(5e-10);
  second.set_orthogonality_error(0.25);
  second.set_stable_rank(17.5);
  EXPECT_EQ(SampleCsv(history),
            "step,weight_norm,grad_norm,update_norm,update_to_weight_ratio,orthogonality_error,"
            "stable_rank\n"
            "1,0.1,,,,,\n"
            "11,2,3,1e-09,5e-10,0.25,17.5\n");
}

}  // namespace
}  // namespace kaon::monitor
