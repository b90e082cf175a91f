#include "server/auth/authorization_matrix.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/server_process.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kaon/v1/shard_data.pb.h"
#include "kaon/v1/shard_local.pb.h"
#include "kaon/v1/shard_nccl.pb.h"

namespace kaon::auth {
namespace {

using proto::Role;

// Every method of kaon.v1, from the descriptors the servers are built of, and the standard services
// of health and reflection.
std::set<std::string> MethodsThatExist() {
  std::set<std::string> methods = {
      "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  for (const google::protobuf::FileDescriptor* file :
       {v1::GetStatusRequest::descriptor()->file(), v1::RegisterJobRequest::descriptor()->file(),
        v1::CoordinatorToShard::descriptor()->file(), v1::PushRequest::descriptor()->file(),
        v1::OpenSessionRequest::descriptor()->file(), v1::GetProcessRequest::descriptor()->file(),
        v1::OpenNcclSessionRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor& service = *file->service(s);
      for (int m = 0; m < service.method_count(); ++m) {
        methods.insert("/" + service.full_name() + "/" + service.method(m)->name());
      }
    }
  }
  return methods;
}

// w r k a c s: worker, reader, checkpointer, admin, coordinator, shard, the order of proto::kRoles.
// Written down a second time on purpose.
const std::map<std::string, std::string>& ExpectedCells() {
  static const std::map<std::string, std::string> cells = {
      {"/kaon.v1.ShardData/Push", "w-----"},
      {"/kaon.v1.ShardData/Pull", "wr----"},
      {"/kaon.v1.ShardLocal/OpenSession", "wr----"},
      {"/kaon.v1.ShardNccl/OpenSession", "w-----"},
      {"/kaon.v1.ShardNccl/Pull", "w-----"},
      {"/kaon.v1.ShardControl/Control", "----c-"},
      {"/kaon.v1.ShardControl/ReadHistory", "-r-ac-"},
      {"/kaon.v1.ShardControl/DescribeShard", "-r-ac-"},
      {"/kaon.v1.ShardControl/GetParameterStats", "---ac-"},
      {"/kaon.v1.ShardControl/GetParameterDiagnostics", "-r-ac-"},
      {"/kaon.v1.ShardControl/ReadSlice", "---ac-"},
      {"/kaon.v1.ShardControl/ReadParameterHistory", "-r-ac-"},
      {"/kaon.v1.Coordinator/RegisterJob", "w--a--"},
      {"/kaon.v1.Coordinator/GetJob", "wr-a--"},
      {"/kaon.v1.Coordinator/JoinWorker", "w-----"},
      {"/kaon.v1.Coordinator/BeginStep", "w-----"},
      {"/kaon.v1.Coordinator/AwaitStep", "w-----"},
      {"/kaon.v1.Admin/GetStatus", "-rka--"},
      {"/kaon.v1.Admin/DescribeJob", "-r-a--"},
      {"/kaon.v1.Admin/ListParameters", "-r-a--"},
      {"/kaon.v1.Admin/StepHistory", "-r-a--"},
      {"/kaon.v1.Admin/SetGroup", "---a--"},
      {"/kaon.v1.Admin/GetParameterStats", "---a--"},
      {"/kaon.v1.Admin/GetParameterDiagnostics", "-r-a--"},
      {"/kaon.v1.Admin/ReadSlice", "---a--"},
      {"/kaon.v1.Admin/GetParameterHistory", "-r-a--"},
      {"/kaon.v1.Admin/CreateCheckpoint", "--ka--"},
      {"/kaon.v1.Admin/ListCheckpoints", "-rka--"},
      {"/kaon.v1.Admin/VerifyCheckpoint", "--ka--"},
      {"/kaon.v1.Admin/RestoreCheckpoint", "---a--"},
      {"/kaon.v1.Admin/DeleteCheckpoint", "---a--"},
      {"/kaon.v1.Admin/DeleteJob", "---a--"},
      {"/kaon.v1.Admin/ListJobs", "-r-a--"},
      {"/kaon.v1.Admin/DrainShard", "---a--"},
      {"/kaon.v1.ServerProcess/GetProcess", "-r-a--"},
      {"/kaon.v1.ServerProcess/GetConfig", "---a--"},
      {"/kaon.v1.ServerProcess/SetLogLevel", "---a--"},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "---a--"},
      {"/grpc.health.v1.Health/Check", "wrkacs"},
      {"/grpc.health.v1.Health/Watch", "wrkacs"},
  };
  return cells;
}

TEST(AuthorizationMatrixTest, HasExactlyOneRowForEveryMethodThatExists) {
  std::multiset<std::string> rows;
  for (const MethodRule& rule : AuthorizationMatrix()) rows.insert(std::string(rule.method));
  const std::set<std::string> methods = MethodsThatExist();
  EXPECT_EQ(rows, std::multiset<std::string>(methods.begin(), methods.end()));
}

TEST(AuthorizationMatrixTest, EveryCellIsAsDecided) {
  for (const std::string& method : MethodsThatExist()) {
    ASSERT_EQ(ExpectedCells().count(method), 1) << method;
    const std::string& cells = ExpectedCells().at(method);
    ASSERT_EQ(cells.size(), std::size(proto::kRoles)) << method;
    for (size_t i = 0; i < cells.size(); ++i) {
      const absl::Status status = AuthorizeMethod(proto::kRoles[i], method);
      EXPECT_EQ(status.code(),
                cells[i] == '-' ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kOk)
          << method << " by " << proto::NameOf(proto::kRoles[i]);
    }
  }
}

TEST(AuthorizationMatrixTest, RefusesMethodWithoutRowToEveryRole) {
  for (Role role : proto::kRoles) {
    EXPECT_EQ(AuthorizeMethod(role, "/grpc.reflection.v1alpha.ServerReflection/X").code(),
              absl::StatusCode::kPermissionDenied);
  }
}

TEST(AuthorizationMatrixTest, RefusalNamesRoleAndMethod) {
  EXPECT_EQ(AuthorizeMethod(Role::kWorker, "/kaon.v1.Admin/GetStatus").message(),
            "role worker may not call /kaon.v1.Admin/GetStatus");
}

}  // namespace
}  // namespace kaon::auth
