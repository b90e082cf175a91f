// Tells an operator the origin of each value of a registered job. Pure function; any thread.
#ifndef KAON_JOB_EFFECTIVE_VALUES_H_
#define KAON_JOB_EFFECTIVE_VALUES_H_

#include <string>
#include <vector>

#include "kaon/v1/coordinator.pb.h"

namespace kaon::job {

struct EffectiveValue {
  // Empty for fields of the job itself.
  std::string group;
  // Path of the field as parameters.proto names it: muon.newton_schulz.form.
  std::string field;
  std::string value;
  // "set", "preset keller", "default" or "group set at entry 12".
  std::string origin;
};

// Returns every value of the job except its parameters: first the job's own, then group by group,
// in the order of the schema. Each routing rule and each norm group is one value, in text form.
std::vector<EffectiveValue> EffectiveValues(const v1::JobDescription& job);

}  // namespace kaon::job

#endif  // KAON_JOB_EFFECTIVE_VALUES_H_
