#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/content_digest.h"
#include "server/checkpoint/manifest.h"
#include "server/coordinator/service/admin_service.h"
#include "server/disk/posix_directory.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/server/coordinator/server_fixture.h"

namespace kaon::coordinator {
namespace {

// Its coordinator has a directory with two checkpoints.
class AdminServiceCheckpointTest : public ServerFixture {
 protected:
  AdminServiceCheckpointTest() {
    checkpoint_dir_ = testing::TempDir() + "/checkpoints.XXXXXX";
    EXPECT_NE(mkdtemp(checkpoint_dir_.data()), nullptr);
    files_ = disk::PosixDirectory::At(checkpoint_dir_).value();
    checkpoint::CheckpointDirectory directory(*files_);
    Write(directory, "old", 8);
    newest_ = Write(directory, "new", 12);
  }

  // Writes a checkpoint whose manifest has the digests of its content.
  static v1::CheckpointManifest Write(checkpoint::CheckpointDirectory& directory,
                                      const std::string& id, uint64_t position) {
    const checkpoint::TinyShards shards;
    v1::CheckpointManifest manifest =
        checkpoint::BuildManifest(
            checkpoint::TinyFacts(id, position),
            {checkpoint::WritePart(directory, id, position, 0, shards).value(),
             checkpoint::WritePart(directory, id, position, 1, shards).value()})
            .value();
    const checkpoint::ContentDigests digests = checkpoint::DigestsOf(directory, manifest).value();
    manifest.set_weights_digest(digests.weights);
    manifest.set_state_digest(digests.state);
    EXPECT_EQ(directory.Commit(manifest), absl::OkStatus());
    return manifest;
  }

  absl::Status Verify(const std::string& id, v1::VerifyCheckpointResponse* response) {
    v1::VerifyCheckpointRequest request;
    request.set_id(id);
    return Call(&v1::Admin::Stub::VerifyCheckpoint, *admin_, request, response);
  }

  std::unique_ptr<disk::PosixDirectory> files_;
  v1::CheckpointManifest newest_;
};

TEST_F(AdminServiceCheckpointTest, ListsWhatTheDirectoryHolds) {
  v1::ListCheckpointsResponse listed;
  ASSERT_TRUE(
      Call(&v1::Admin::Stub::ListCheckpoints, *admin_, v1::ListCheckpointsRequest(), &listed).ok());
  ASSERT_EQ(listed.checkpoints_size(), 2);
  EXPECT_EQ(listed.checkpoints(0).checkpoint().id(), "new");
  EXPECT_EQ(listed.checkpoints(1).checkpoint().id(), "old");
  // It was written just now, by the clock of this machine.
  EXPECT_GT(listed.checkpoints(0).checkpoint().created_unix_millis(), 1600000000000);
}

TEST_F(AdminServiceCheckpointTest, DeletesAnOldOneAndNotTheNewest) {
  v1::DeleteCheckpointRequest request;
  v1::DeleteCheckpointResponse response;
  request.set_id("new");
  EXPECT_EQ(Call(&v1::Admin::Stub::DeleteCheckpoint, *admin_, request, &response).code(),
            absl::StatusCode::kFailedPrecondition);
  request.set_id("old");
  ASSERT_TRUE(Call(&v1::Admin::Stub::DeleteCheckpoint, *admin_, request, &response).ok());
  EXPECT_EQ(response.checkpoint().position(), 8u);
  v1::VerifyCheckpointResponse verified;
  EXPECT_EQ(Verify("old", &verified).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Verify("new", &verified).ok());
}

TEST_F(AdminServiceCheckpointTest, VerifiesAGoodOneAndNamesTheBadFileOfAnother) {
  v1::VerifyCheckpointResponse response;
  ASSERT_TRUE(Verify("new", &response).ok());
  EXPECT_EQ(response.checkpoint().step(), 10u);
  EXPECT_EQ(response.checkpoint().weights_digest(), newest_.weights_digest());
  const std::unique_ptr<disk::File> file = files_->Open(newest_.files(1).name()).value();
  const uint64_t last = newest_.files(1).size() - 1;
  char byte = 0;
  ASSERT_TRUE(file->Read(last, 1, &byte).ok());
  byte = static_cast<char>(byte ^ 1);
  ASSERT_TRUE(file->Write(last, {absl::string_view(&byte, 1)}).ok());
  const absl::Status status = Verify("new", &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(newest_.files(1).name()), absl::string_view::npos) << status;
}

TEST_F(AdminServiceCheckpointTest, NamesAnIdThatIsNotThereOrNone) {
  v1::VerifyCheckpointResponse response;
  EXPECT_EQ(Verify("absent", &response).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Verify("../etc", &response).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AdminServiceCheckpointTest, ARestoreWhoseAnswerWasLostIsAnsweredByTheNextCoordinator) {
  v1::RestoreCheckpointRequest request;
  request.set_request_id(7);
  v1::RestoreCheckpointResponse first;
  const auto restore = [&](v1::RestoreCheckpointResponse* response) {
    return Call(&v1::Admin::Stub::RestoreCheckpoint, *admin_, request, response);
  };
  ASSERT_TRUE(restore(&first).ok());
  EXPECT_EQ(first.checkpoint().id(), "new");
  // It never reached the caller.
  ReplaceCoordinator();
  v1::RestoreCheckpointResponse again;
  const absl::Status status = restore(&again);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(shards_[0]->state().applied_position(), first.position());
  // Another one is another matter: the job that runs is not the one it speaks of.
  request.set_request_id(8);
  EXPECT_EQ(restore(&again).code(), absl::StatusCode::kFailedPrecondition);
  request.set_job("tiny");
  ASSERT_TRUE(restore(&again).ok());
  EXPECT_EQ(again.timeline(), first.timeline() + 1);
  EXPECT_EQ(shards_[0]->state().applied_position(), first.position() + 1);
}

// A restore replaces the state of the shards.
TEST_F(AdminServiceCheckpointTest, AStateThatIsNoCheckpointIsSaidByStatusUntilARestore) {
  v1::RestoreCheckpointRequest from_newest;
  v1::RestoreCheckpointResponse restored;
  const auto restore = [&] {
    return Call(&v1::Admin::Stub::RestoreCheckpoint, *admin_, from_newest, &restored);
  };
  ASSERT_EQ(restore(), absl::OkStatus());
  shards_[1]->FailCheckpoints(absl::DataLossError("its weights are not finite"));
  v1::CreateCheckpointRequest request;
  request.set_id("made");
  v1::CreateCheckpointResponse response;
  const absl::Status status = Call(&v1::Admin::Stub::CreateCheckpoint, *admin_, request, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const std::string problem = "checkpoint made is given up: shard 1: its weights";
  EXPECT_NE(Status().phase().find(problem), std::string::npos) << Status().phase();
  from_newest.set_job("tiny");
  ASSERT_EQ(restore(), absl::OkStatus());
  EXPECT_EQ(Status().phase().find(problem), std::string::npos) << Status().phase();
}

// P7: the files are as they were written, but their content is not the frozen state.
TEST_F(AdminServiceCheckpointTest, TakesNothingWhoseDigestsAreNotThoseOfItsFiles) {
  checkpoint::CheckpointDirectory directory(*files_);
  ASSERT_TRUE(checkpoint::WriteCheckpoint(directory, "other", 14).ok());
  v1::RestoreCheckpointRequest request;
  request.set_id("other");
  v1::RestoreCheckpointResponse response;
  const absl::Status status =
      Call(&v1::Admin::Stub::RestoreCheckpoint, *admin_, request, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("checkpoint other was frozen with weights digest"),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(Status().job(), "");
}

// Protocol.md section 3: "resuming across a change needs an explicit flag".
TEST_F(AdminServiceCheckpointTest, TakesWhatAnotherBuildWroteOnlyWhereThatIsAllowed) {
  shards_[1]->set_build("other");
  v1::RestoreCheckpointRequest request;
  v1::RestoreCheckpointResponse response;
  const absl::Status status =
      Call(&v1::Admin::Stub::RestoreCheckpoint, *admin_, request, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("checkpoint new was written by build 'test', backend 'cpu', "
                                  "device class 'x86-64', shard 1 has build 'other'"),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(Status().job(), "");
  request.set_allow_other_build(true);
  EXPECT_EQ(Call(&v1::Admin::Stub::RestoreCheckpoint, *admin_, request, &response),
            absl::OkStatus());
  EXPECT_EQ(response.checkpoint().id(), "new");
}

TEST_F(AdminServiceCheckpointTest, TakesWhatItsOwnBuildWrote) {
  v1::RestoreCheckpointRequest request;
  request.set_id("old");
  v1::RestoreCheckpointResponse response;
  EXPECT_EQ(Call(&v1::Admin::Stub::RestoreCheckpoint, *admin_, request, &response),
            absl::OkStatus());
  EXPECT_EQ(response.timeline(), 2u);
}

// The shards never report that they have written anything.
TEST_F(AdminServiceCheckpointTest, CountsOneThatIsGivenUp) {
  Train();
  const auto create = [this] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    v1::CreateCheckpointResponse response;
    return admin_->CreateCheckpoint(&context, v1::CreateCheckpointRequest(), &response)
        .error_code();
  };
  // The caller goes and the checkpoint stays, in the way of the next one.
  grpc::StatusCode code = create();
  while (code == grpc::StatusCode::DEADLINE_EXCEEDED) code = create();
  EXPECT_EQ(code, grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Counted().count("checkpoint_failed"), 0u);
  shards_[1]->Stop();
  WaitFor([this](const v1::GetStatusResponse&) { return Counted()["checkpoint_failed"] > 0; });
  EXPECT_EQ(Counted()["checkpoint_failed"], 1u);
  EXPECT_EQ(Counted().count("checkpoint_created"), 0u);
}

using AdminServiceWithoutCheckpointsTest = ServerFixture;

TEST_F(AdminServiceWithoutCheckpointsTest, SaysThatThereIsNoDirectory) {
  v1::ListCheckpointsResponse listed;
  const absl::Status status =
      Call(&v1::Admin::Stub::ListCheckpoints, *admin_, v1::ListCheckpointsRequest(), &listed);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("--checkpoint-dir"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace kaon::coordinator
