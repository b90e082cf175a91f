// Tells which parameters count in a gradient norm, which norm clips a parameter, and which norms
// decisions read (numerics.md [C2], [C3], [C7], [C8], [T5]). Pure functions; any thread. Decide()
// and the shards that take the sums use it.
#ifndef KAON_JOB_NORM_USE_H_
#define KAON_JOB_NORM_USE_H_

#include <string>
#include <vector>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

struct NormGroupUse {
  std::string name;
  // 0: off. The job's limit if the norm group has none of its own.
  double max_grad_norm = 0;
  // A decision reads the norm over all parameters, or the live norm over parameters that can be
  // clipped.
  bool reads_norm = false;
  bool reads_live_norm = false;
};

struct ParameterNormUse {
  // Index of the parameter's group. -1 for a frozen parameter, which is in no norm ([T8]).
  int group = -1;
  // Index into NormUse.norm_groups.
  int norm_group = 0;
  bool exempt = false;
  bool counted = false;
  // A decision reads or reports the parameter's sum of squares.
  bool takes_sum = false;
};

struct NormUse {
  // `main` comes first; the others follow in declared order.
  std::vector<NormGroupUse> norm_groups;
  // Indexed by parameter id.
  std::vector<ParameterNormUse> parameters;
  // Indexed by group.
  std::vector<bool> exempt;
  // The record also contains norms that no decision reads.
  bool reports_all = true;
  // The decision of a step reads some norm. If not, a step needs no sums for norms ([T5]).
  bool reads_any = false;
};

// Returns `main`, then the others in declared order.
std::vector<std::string> NormGroupNames(const v1::JobDefinition& job);

// `job` must have every option written out.
NormUse NormUseOf(const v1::RegisterBody& job);

}  // namespace kaon::job

#endif  // KAON_JOB_NORM_USE_H_
