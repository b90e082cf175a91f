// What people are told of an entry of the log. Pure; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_ENTRY_NAME_H_
#define KAON_SERVER_COORDINATOR_MACHINE_ENTRY_NAME_H_

#include <string>

#include "kaon/v1/agreement.pb.h"

namespace kaon::coordinator {

// "step 7", "change of group muon", "restore of checkpoint a".
std::string NameOfEntry(const v1::StepPlan& plan);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ENTRY_NAME_H_
