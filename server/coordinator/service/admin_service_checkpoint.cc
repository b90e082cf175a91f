// The calls about checkpoints. The directory's thread answers calls that only read the directory.
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "server/checkpoint/listing.h"
#include "server/checkpoint/manifest_file.h"
#include "server/checkpoint/written_by.h"
#include "server/coordinator/checkpoint/find_checkpoint.h"
#include "server/coordinator/service/admin_service.h"
#include "server/coordinator/service/unary_call.h"

namespace kaon::coordinator {

namespace {

using Directory = absl::StatusOr<checkpoint::CheckpointDirectory*>;

absl::Status CheckSameBits(const v1::CheckpointManifest& manifest, const ClusterView& view) {
  const std::string what = absl::StrCat("checkpoint ", manifest.id());
  for (size_t i = 0; i < view.shards.size(); ++i) {
    const std::string who = absl::StrCat("shard ", i);
    if (!view.shards[i].ok()) {
      return absl::UnavailableError(
          absl::StrCat(who, " at ", view.addresses[i], ": ", view.shards[i].status().ToString()));
    }
    v1::CheckpointFile present;
    present.set_build(view.shards[i]->build());
    present.set_backend(view.shards[i]->backend());
    present.set_device_class(view.shards[i]->device_class());
    for (const v1::CheckpointFile& file : manifest.files()) {
      KAON_RETURN_IF_ERROR(checkpoint::CheckSameBits(what, file, who, present));
    }
  }
  return absl::OkStatus();
}

// Hands the checkpoint to the machine, unless the caller has given up. Reading waited for the disk,
// so it may have.
void Take(const FoundRestore& found, WaitingReactor& reactor,
          const UnaryAnswer<ReplyRestore, v1::RestoreCheckpointResponse>& answer) {
  reactor.Submit(
      [order = found.order](StepMachine& machine, CallId id) { machine.Restore(id, order); },
      [answer, found](CoordinatorAction action) {
        auto* reply = std::get_if<ReplyRestore>(&action);
        if (reply != nullptr && reply->response.ok()) {
          v1::RestoreCheckpointResponse& filled = *reply->response;
          *filled.mutable_checkpoint() = checkpoint::SummaryOf(*found.order.manifest);
          for (const checkpoint::SkippedCheckpoint& skipped : found.skipped) {
            *filled.add_skipped() = checkpoint::RowOf(skipped);
          }
        }
        answer(std::move(action));
      });
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::RestoreCheckpoint(
    grpc::CallbackServerContext* context, const v1::RestoreCheckpointRequest* request,
    v1::RestoreCheckpointResponse* response) {
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const std::string act =
      absl::StrCat("checkpoint restore ", request->id().empty() ? "newest" : request->id(),
                   " at step ", request->expected_step());
  const RestoreCall restore{reactor, {context, reactor, response, Act(*context, act)}, request};
  const absl::Status posted = loop_.Post([this, restore](StepMachine& machine, absl::Time) {
    const CoordinatorSnapshot snapshot = machine.Snapshot();
    const uint64_t timeline = snapshot.job ? snapshot.job->timeline() : 0;
    // No earlier try can be in an empty log. A coordinator that does not hold the shards refuses
    // the restore in any case.
    if (restore.request->request_id() == 0 || !snapshot.holder || snapshot.config_revision == 0) {
      return Restore(restore, 0);
    }
    FindRequest(restore.request->request_id(), snapshot.config_revision, 0,
                [this, restore, timeline](const absl::StatusOr<v1::StepRecord>& record) {
                  if (record.ok()) return AnswerRestored(restore, record->plan());
                  if (absl::IsNotFound(record.status())) return Restore(restore, timeline);
                  restore.answer.Finish(record.status(), "");
                });
  });
  if (!posted.ok()) restore.answer.Finish(posted, "");
  return reactor;
}

void AdminService::Restore(const RestoreCall& restore, uint64_t timeline) {
  checkpoints_.Run([this, restore, timeline](const Directory& directory) {
    if (!directory.ok()) return restore.answer.Finish(directory.status(), "");
    absl::StatusOr<FoundRestore> found = FindCheckpoint(**directory, *restore.request);
    if (!found.ok()) return restore.answer.Finish(found.status(), "");
    PassFailpoint(Failpoint::restore_verified);
    found->order.timeline = timeline;
    if (restore.request->allow_other_build()) return Take(*found, *restore.reactor, restore.answer);
    Gather([restore, found = *found](const ClusterView& view) {
      const absl::Status same = CheckSameBits(*found.order.manifest, view);
      if (!same.ok()) return restore.answer.Finish(same, "");
      Take(found, *restore.reactor, restore.answer);
    });
  });
}

void AdminService::AnswerRestored(const RestoreCall& restore, const v1::StepPlan& plan) {
  if (!plan.has_restore()) {
    return restore.answer.Finish(
        absl::InvalidArgumentError(absl::StrCat("request_id ", restore.request->request_id(),
                                                " is that of another kind of request")),
        "");
  }
  v1::RestoreCheckpointResponse response;
  response.set_timeline(plan.timeline());
  response.set_position(plan.position());
  response.mutable_checkpoint()->set_id(plan.restore().checkpoint());
  response.mutable_checkpoint()->set_job(plan.job());
  response.mutable_checkpoint()->set_step(plan.restore().step());
  checkpoints_.Run([answer = restore.answer, response](const Directory& directory) mutable {
    // The checkpoint may be removed by now. The fields taken from the log are still correct.
    const absl::StatusOr<v1::CheckpointManifest> manifest =
        directory.ok() ? (*directory)->Load(response.checkpoint().id()) : directory.status();
    if (manifest.ok()) *response.mutable_checkpoint() = checkpoint::SummaryOf(*manifest);
    answer(ReplyRestore{0, std::move(response), ""});
  });
}

grpc::ServerUnaryReactor* AdminService::CreateCheckpoint(grpc::CallbackServerContext* context,
                                                         const v1::CreateCheckpointRequest* request,
                                                         v1::CreateCheckpointResponse* response) {
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const UnaryAnswer<ReplyCreate, v1::CreateCheckpointResponse> answer(
      context, reactor, response, Act(*context, absl::StrCat("checkpoint create ", request->id())));
  const absl::Status named =
      request->id().empty() ? absl::OkStatus() : checkpoint::CheckId(request->id());
  return Ask(loop_, reactor->call(), named, &StepMachine::CreateCheckpoint, *request, answer);
}

grpc::ServerUnaryReactor* AdminService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                        const v1::ListCheckpointsRequest* request,
                                                        v1::ListCheckpointsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  queries_.Checkpoints(request->job(), Answering(context, reactor, "ListCheckpoints", response));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::VerifyCheckpoint(grpc::CallbackServerContext* context,
                                                         const v1::VerifyCheckpointRequest* request,
                                                         v1::VerifyCheckpointResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Finish finish = Finishing(context, reactor, "VerifyCheckpoint");
  checkpoints_.Run([finish, request, response](const Directory& directory) {
    if (!directory.ok()) return finish(directory.status());
    const absl::StatusOr<v1::CheckpointManifest> manifest = (*directory)->Verify(request->id());
    if (manifest.ok()) *response->mutable_checkpoint() = checkpoint::SummaryOf(*manifest);
    finish(manifest.status());
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DeleteCheckpoint(grpc::CallbackServerContext* context,
                                                         const v1::DeleteCheckpointRequest* request,
                                                         v1::DeleteCheckpointResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const CallEnded log = Act(*context, absl::StrCat("checkpoint delete ", request->id()));
  checkpoints_.Run([log, context, reactor, request, response](const Directory& directory) {
    // A caller that left was told that it failed.
    const absl::Status usable = context->IsCancelled()
                                    ? absl::CancelledError("the caller left before its turn")
                                    : directory.status();
    const absl::StatusOr<v1::CheckpointManifest> removed =
        usable.ok() ? (*directory)->Delete(request->id()) : usable;
    if (removed.ok()) *response->mutable_checkpoint() = checkpoint::SummaryOf(*removed);
    log(removed.status());
    reactor->Finish(proto::ToGrpc(removed.status()));
  });
  return reactor;
}

}  // namespace kaon::coordinator
