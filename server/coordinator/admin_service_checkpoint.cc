// The calls about checkpoints: what only reads the directory is answered from its thread.
#include <string>
#include <utility>

#include "proto/grpc_status.h"
#include "server/checkpoint/listing.h"
#include "server/coordinator/admin_service.h"

namespace kaon::coordinator {

namespace {

using Directory = absl::StatusOr<checkpoint::CheckpointDirectory*>;

void Finish(grpc::ServerUnaryReactor* reactor, const absl::Status& status) {
  reactor->Finish(proto::ToGrpc(status));
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                        const v1::ListCheckpointsRequest* request,
                                                        v1::ListCheckpointsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  checkpoints_.Run([reactor, request, response](const Directory& directory) {
    if (!directory.ok()) return Finish(reactor, directory.status());
    absl::StatusOr<v1::ListCheckpointsResponse> listed =
        checkpoint::ListCheckpoints(**directory, request->job());
    if (listed.ok()) *response = *std::move(listed);
    Finish(reactor, listed.status());
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::VerifyCheckpoint(grpc::CallbackServerContext* context,
                                                         const v1::VerifyCheckpointRequest* request,
                                                         v1::VerifyCheckpointResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  checkpoints_.Run([reactor, request, response](const Directory& directory) {
    if (!directory.ok()) return Finish(reactor, directory.status());
    const absl::StatusOr<v1::CheckpointManifest> manifest = (*directory)->Verify(request->id());
    if (manifest.ok()) *response->mutable_checkpoint() = checkpoint::SummaryOf(*manifest);
    Finish(reactor, manifest.status());
  });
  return reactor;
}

}  // namespace kaon::coordinator
