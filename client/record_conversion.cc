#include "client/record_conversion.h"

namespace kaon::client {

kaon::StepRecord ToPublic(const v1::StepRecord& record) {
  const v1::StepDecision& decision = record.decision();
  kaon::StepRecord out;
  out.step = record.plan().step().step();
  out.applied = decision.outcome() == v1::OUTCOME_APPLY;
  out.reason = decision.reason();
  for (const v1::GroupNorm& norm : decision.norms()) {
    out.norms.push_back({norm.group(), norm.norm(), norm.exempt(), norm.clip_factor()});
  }
  for (const v1::NormGroupNorm& norm : decision.norm_groups()) {
    out.norm_groups.push_back(
        {norm.norm_group(), norm.norm(), norm.live_norm(), norm.clip_factor()});
  }
  out.grad_norm = decision.grad_norm();
  out.live_norm = decision.live_norm();
  if (decision.has_loss()) out.loss = decision.loss();
  out.next_loss_scale = decision.next_loss_scale();
  out.applied_updates = decision.applied_updates();
  return out;
}

}  // namespace kaon::client
