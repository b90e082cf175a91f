// Where each value of a registered job comes from: what an operator reads beside the value. Pure
// function; any thread.
#ifndef KAON_JOB_ORIGINS_H_
#define KAON_JOB_ORIGINS_H_

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

// Every value of the job but its parameters, the job's own first, then group by group, in the order
// of the schema. Routing rules and norm groups are one value each, in text form.
std::vector<EffectiveValue> EffectiveValues(const v1::JobDescription& job);

}  // namespace kaon::job

#endif  // KAON_JOB_ORIGINS_H_
