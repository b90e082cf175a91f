#include "job/resolve.h"

#include "job/effective_job.h"
#include "job/validation.h"
#include "proto/status_macros.h"

namespace kaon::job {

absl::StatusOr<v1::RegisterBody> Resolve(const v1::JobDefinition& requested) {
  v1::RegisterBody body;
  KAON_ASSIGN_OR_RETURN(*body.mutable_definition(), Effective(requested));
  KAON_ASSIGN_OR_RETURN(*body.mutable_placement(), ValidateJob(body.definition()));
  *body.mutable_requested() = requested;
  body.mutable_requested()->clear_parameters();
  return body;
}

absl::Status CheckJob(const v1::JobDefinition& requested) {
  KAON_ASSIGN_OR_RETURN(const v1::JobDefinition job, Effective(requested));
  return ValidateJob(job).status();
}

}  // namespace kaon::job
