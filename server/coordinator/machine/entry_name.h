// Words for an entry of the log, for people. Pure; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_ENTRY_NAME_H_
#define KAON_SERVER_COORDINATOR_MACHINE_ENTRY_NAME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::coordinator {

// Returns "step 7", "change of group muon", "restore of checkpoint a".
std::string NameOfEntry(const v1::StepPlan& plan);

// Returns ABORTED, which names the restore or rollback `plan` that ended `timeline`, and where the
// job goes on. Returns NOT_FOUND if `plan` deleted the job.
absl::Status TimelineIsOver(uint64_t timeline, const v1::StepPlan& plan);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ENTRY_NAME_H_
