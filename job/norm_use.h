// Who counts in which norm of a job, who is clipped by it, and which norms its decisions read at
// all (numerics.md [C2], [C3], [C7], [C8], [T5]). Pure functions; any thread. Used by decide() and
// by whoever takes sums for it.
#ifndef KAON_JOB_NORM_USE_H_
#define KAON_JOB_NORM_USE_H_

#include <string>
#include <vector>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

struct NormGroupUse {
  std::string name;
  // 0 = off; the job's where it has none of its own.
  double max_grad_norm = 0;
  // Its norm over everything, or over what can be clipped, is read by a decision.
  bool reads_norm = false;
  bool reads_live_norm = false;
};

struct ParameterNormUse {
  // Index of its group, -1 for a frozen parameter: in no norm ([T8]).
  int group = -1;
  // Index into NormUse.norm_groups.
  int norm_group = 0;
  bool exempt = false;
  bool counted = false;
  // Its sum of squares is read by a decision, or reported.
  bool takes_sum = false;
};

struct NormUse {
  // `main` first, then as declared.
  std::vector<NormGroupUse> norm_groups;
  // By parameter id.
  std::vector<ParameterNormUse> parameters;
  // By group.
  std::vector<bool> exempt;
  // Norms that no decision reads are in the record all the same.
  bool reports_all = true;
  // A step's decision reads some norm: [T5] is about when it does not.
  bool reads_any = false;
};

// `main` first, then as declared.
std::vector<std::string> NormGroupNames(const v1::JobDefinition& job);

// `job` has every option written out.
NormUse NormUseOf(const v1::RegisterBody& job);

}  // namespace kaon::job

#endif  // KAON_JOB_NORM_USE_H_
