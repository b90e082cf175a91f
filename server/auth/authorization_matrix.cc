#include "server/auth/authorization_matrix.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kaon::auth {

namespace {

using proto::Role;

constexpr Role kWorkers[] = {Role::kWorker};
constexpr Role kReaders[] = {Role::kWorker, Role::kReader};
constexpr Role kRegistrars[] = {Role::kWorker, Role::kAdmin};
constexpr Role kJobViewers[] = {Role::kWorker, Role::kReader, Role::kAdmin};
constexpr Role kCoordinators[] = {Role::kCoordinator};
constexpr Role kInspectors[] = {Role::kCoordinator, Role::kAdmin, Role::kReader};
constexpr Role kStatsCallers[] = {Role::kCoordinator, Role::kAdmin};
constexpr Role kAdmins[] = {Role::kAdmin};
constexpr Role kViewers[] = {Role::kReader, Role::kAdmin};
constexpr Role kCheckpointers[] = {Role::kCheckpointer, Role::kAdmin};
constexpr Role kStatusViewers[] = {Role::kReader, Role::kCheckpointer, Role::kAdmin};

constexpr MethodRule kMatrix[] = {
    {"/kaon.v1.ShardData/Push", kWorkers},
    {"/kaon.v1.ShardData/Pull", kReaders},
    // A reader may ask: the handler refuses it a session, and it is not reported as an intruder.
    {"/kaon.v1.ShardLocal/OpenSession", kReaders},
    {"/kaon.v1.ShardNccl/OpenSession", kWorkers},
    {"/kaon.v1.ShardNccl/Pull", kWorkers},

    {"/kaon.v1.ShardControl/Control", kCoordinators},
    {"/kaon.v1.ShardControl/ReadHistory", kInspectors},
    {"/kaon.v1.ShardControl/DescribeShard", kInspectors},
    // Reading tensors delays the step's work on them, so a reader may not ask.
    {"/kaon.v1.ShardControl/GetParameterStats", kStatsCallers},
    {"/kaon.v1.ShardControl/GetParameterDiagnostics", kInspectors},
    {"/kaon.v1.ShardControl/ReadSlice", kStatsCallers},
    {"/kaon.v1.ShardControl/ReadParameterHistory", kInspectors},

    {"/kaon.v1.Coordinator/RegisterJob", kRegistrars},
    {"/kaon.v1.Coordinator/GetJob", kJobViewers},
    {"/kaon.v1.Coordinator/JoinWorker", kWorkers},
    {"/kaon.v1.Coordinator/BeginStep", kWorkers},
    {"/kaon.v1.Coordinator/AwaitStep", kWorkers},

    {"/kaon.v1.Admin/GetStatus", kStatusViewers},
    {"/kaon.v1.Admin/DescribeJob", kViewers},
    {"/kaon.v1.Admin/ListParameters", kViewers},
    {"/kaon.v1.Admin/StepHistory", kViewers},
    {"/kaon.v1.Admin/SetGroup", kAdmins},
    {"/kaon.v1.Admin/GetParameterStats", kAdmins},
    {"/kaon.v1.Admin/GetParameterDiagnostics", kViewers},
    {"/kaon.v1.Admin/ReadSlice", kAdmins},
    {"/kaon.v1.Admin/GetParameterHistory", kViewers},
    {"/kaon.v1.Admin/CreateCheckpoint", kCheckpointers},
    {"/kaon.v1.Admin/ListCheckpoints", kStatusViewers},
    // Reads every byte on the thread that finishes checkpoints, so a reader may not ask.
    {"/kaon.v1.Admin/VerifyCheckpoint", kCheckpointers},
    {"/kaon.v1.Admin/RestoreCheckpoint", kAdmins},
    {"/kaon.v1.Admin/DeleteCheckpoint", kAdmins},
    {"/kaon.v1.Admin/DeleteJob", kAdmins},
    {"/kaon.v1.Admin/ListJobs", kViewers},
    {"/kaon.v1.Admin/DrainShard", kAdmins},

    {"/kaon.v1.ServerProcess/GetProcess", kViewers},
    {"/kaon.v1.ServerProcess/GetConfig", kAdmins},
    {"/kaon.v1.ServerProcess/SetLogLevel", kAdmins},

    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kAdmins},
    {"/grpc.health.v1.Health/Check", proto::kRoles},
    {"/grpc.health.v1.Health/Watch", proto::kRoles},
};

}  // namespace

absl::Span<const MethodRule> AuthorizationMatrix() { return kMatrix; }

absl::Status AuthorizeMethod(proto::Role role, absl::string_view method) {
  for (const MethodRule& rule : kMatrix) {
    if (rule.method != method) continue;
    if (std::find(rule.roles.begin(), rule.roles.end(), role) != rule.roles.end()) {
      return absl::OkStatus();
    }
    break;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("role ", proto::NameOf(role), " may not call ", method));
}

}  // namespace kaon::auth
