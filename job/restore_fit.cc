#include "job/restore_fit.h"

#include <google/protobuf/util/message_differencer.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "job/settings.h"
#include "job/workers.h"

namespace kaon::job {

namespace {

absl::Status CheckSame(const char* what, const google::protobuf::Message& running,
                       const google::protobuf::Message& restored) {
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(running, restored)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the checkpoint's ", what,
      " differs from that of the job that runs: ", differences.substr(0, differences.find('\n'))));
}

// Groups may differ if their state is the same; CheckGroupChange checks that. Workers are no part
// of the state.
v1::JobDefinition WithoutSettings(v1::JobDefinition definition) {
  definition.clear_groups();
  SetWorkers(v1::JobDefinition(), definition);
  return definition;
}

}  // namespace

absl::Status CheckRestoreFits(const v1::RegisterBody& running, const v1::RegisterBody& restored) {
  absl::Status status = CheckSame("definition", WithoutSettings(running.definition()),
                                  WithoutSettings(restored.definition()));
  if (!status.ok()) return status;
  status = CheckSame("placement", running.placement(), restored.placement());
  if (!status.ok()) return status;
  v1::GroupChangeBody groups;
  *groups.mutable_groups() = restored.definition().groups();
  status = CheckGroupChange(running, groups);
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("the checkpoint's groups do not fit the job that runs: ", status.message()));
}

}  // namespace kaon::job
