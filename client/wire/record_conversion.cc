#include "client/wire/record_conversion.h"

#include <optional>

namespace kaon::client {

namespace {

// Returns `norm` if it was computed.
std::optional<double> Taken(bool is_taken, double norm) {
  return is_taken ? std::optional<double>(norm) : std::nullopt;
}

}  // namespace

kaon::StepRecord ToPublic(const v1::StepRecord& record) {
  const v1::StepDecision& decision = record.decision();
  kaon::StepRecord out;
  out.step = record.plan().step().step();
  out.applied = decision.outcome() == v1::OUTCOME_APPLY;
  out.reason = decision.reason();
  for (const v1::Member& member : record.plan().step().members()) {
    out.ranks.push_back(member.rank());
  }
  for (const v1::GroupNorm& norm : decision.norms()) {
    out.norms.push_back(
        {norm.group(), Taken(norm.has_norm(), norm.norm()), norm.exempt(), norm.clip_factor()});
  }
  for (const v1::NormGroupNorm& norm : decision.norm_groups()) {
    out.norm_groups.push_back({norm.norm_group(), Taken(norm.has_norm(), norm.norm()),
                               Taken(norm.has_live_norm(), norm.live_norm()), norm.clip_factor()});
  }
  out.grad_norm = Taken(decision.has_grad_norm(), decision.grad_norm());
  out.live_norm = Taken(decision.has_live_norm(), decision.live_norm());
  if (decision.has_loss()) out.loss = decision.loss();
  out.next_loss_scale = decision.next_loss_scale();
  out.applied_updates = decision.applied_updates();
  out.state_digest = decision.state_digest();
  return out;
}

}  // namespace kaon::client
