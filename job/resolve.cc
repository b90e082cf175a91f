#include "job/resolve.h"

#include <vector>

#include "job/effective.h"
#include "job/validation.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

absl::StatusOr<v1::RegisterBody> Complete(const v1::JobDefinition& requested) {
  v1::RegisterBody body;
  KAON_ASSIGN_OR_RETURN(*body.mutable_definition(), Effective(requested));
  *body.mutable_requested() = requested;
  body.mutable_requested()->clear_parameters();
  return body;
}

// In standard form, with which the job is valid or not as it is with the other: ChooseForms gives
// restarts that any iteration may have.
std::vector<int> TakeFastest(v1::JobDefinition& job) {
  std::vector<int> groups;
  for (int i = 0; i < job.groups_size(); ++i) {
    if (job.groups(i).muon().newton_schulz().form() != v1::NEWTON_SCHULZ_FORM_FASTEST) continue;
    job.mutable_groups(i)->mutable_muon()->mutable_newton_schulz()->set_form(
        v1::NEWTON_SCHULZ_FORM_STANDARD);
    groups.push_back(i);
  }
  return groups;
}

}  // namespace

absl::StatusOr<v1::RegisterBody> Resolve(const v1::JobDefinition& requested) {
  KAON_ASSIGN_OR_RETURN(v1::RegisterBody body, Complete(requested));
  KAON_ASSIGN_OR_RETURN(*body.mutable_placement(), ValidateJob(body.definition()));
  return body;
}

absl::StatusOr<v1::RegisterBody> Resolve(const v1::JobDefinition& requested,
                                         const FormTimes& times) {
  KAON_ASSIGN_OR_RETURN(v1::RegisterBody body, Complete(requested));
  const std::vector<int> fastest = TakeFastest(*body.mutable_definition());
  KAON_ASSIGN_OR_RETURN(*body.mutable_placement(), ValidateJob(body.definition()));
  KAON_RETURN_IF_ERROR(ChooseForms(times, fastest, body));
  return body;
}

absl::Status CheckJob(const v1::JobDefinition& requested) {
  KAON_ASSIGN_OR_RETURN(v1::RegisterBody body, Complete(requested));
  TakeFastest(*body.mutable_definition());
  return ValidateJob(body.definition()).status();
}

}  // namespace kaon::job
