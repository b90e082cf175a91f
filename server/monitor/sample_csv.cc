#include "server/monitor/sample_csv.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kaon::monitor {

std::string SampleCsv(const v1::ParameterHistory& history) {
  std::string csv =
      "step,weight_norm,grad_norm,update_norm,update_to_weight_ratio,orthogonality_error,"
      "stable_rank\n";
  const auto field = [](bool has, double value) {
    return has ? absl::StrFormat(",%.7g", value) : std::string(",");
  };
  for (const v1::ParameterSample& sample : history.samples()) {
    absl::StrAppend(&csv, sample.step(), field(true, sample.weight_norm()),
                    field(sample.has_grad_norm(), sample.grad_norm()),
                    field(sample.has_update_norm(), sample.update_norm()));
    absl::StrAppend(&csv,
                    field(sample.has_update_to_weight_ratio(), sample.update_to_weight_ratio()),
                    field(sample.has_orthogonality_error(), sample.orthogonality_error()),
                    field(sample.has_stable_rank(), sample.stable_rank()), "\n");
  }
  return csv;
}

}  // namespace kaon::monitor
