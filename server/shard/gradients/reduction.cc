#include "server/shard/gradients/reduction.h"

#include "job/norm_use.h"

namespace kaon::shard {

std::vector<Reduction> ReductionsOf(const v1::RegisterBody& job) {
  const job::NormUse use = job::NormUseOf(job);
  std::vector<Reduction> reductions;
  for (const job::ParameterNormUse& parameter : use.parameters) {
    Reduction& reduction = reductions.emplace_back();
    reduction.takes_sum = parameter.takes_sum;
    reduction.zero_if_missing =
        parameter.group >= 0 &&
        job.definition().groups(parameter.group).missing_gradient() == v1::MISSING_GRADIENT_ZERO;
    reduction.is_clipped =
        !parameter.exempt && use.norm_groups[parameter.norm_group].max_grad_norm > 0;
  }
  return reductions;
}

}  // namespace kaon::shard
