#include "tests/simulation/nodes/checkpoint_node.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/coordinator/checkpoint/find_checkpoint.h"
#include "tests/simulation/checkpoint_content.h"

namespace kaon::simulation {

namespace {

constexpr int kOrders = 24;
constexpr int kRestores = 2;
// A part may take so long while its disk is full.
constexpr absl::Duration kCallTimeout = absl::Seconds(4);
constexpr absl::Duration kBetween = absl::Milliseconds(500);

}  // namespace

CheckpointNode::CheckpointNode(World& world, std::vector<CoordinatorNode*> coordinators,
                               std::vector<ShardNode*> shards)
    : world_(world),
      calls_(world, std::move(coordinators), kCallTimeout),
      shards_(std::move(shards)) {}

void CheckpointNode::Start() {
  if (!world_.options().checkpoints) return;
  finished_ = false;
  NextLater();
}

void CheckpointNode::NextLater() {
  world_.queue().After(world_.Between(absl::Milliseconds(1), kBetween), [this] { Next(); });
}

void CheckpointNode::Next() {
  finished_ = num_orders_ == kOrders || !world_.faulty();
  if (finished_) return;
  ++num_orders_;
  if (!asked_.empty() && num_restores_ < kRestores && world_.Chance(0.4)) {
    // The checkpoint may never have come to exist.
    return Restore(asked_[world_.Below(asked_.size())]);
  }
  Create();
}

void CheckpointNode::Create() {
  // Sometimes requests the same one again, as an admin whose answer was lost.
  const bool again = !asked_.empty() && world_.Chance(0.3);
  const std::string id = again ? asked_.back() : absl::StrCat("kept-", num_orders_);
  if (!again) asked_.push_back(id);
  v1::CreateCheckpointRequest request;
  request.set_id(id);
  calls_.Call([request](coordinator::StepMachine& machine,
                        coordinator::CallId call) { machine.CreateCheckpoint(call, request); },
              [this, id](const coordinator::CoordinatorAction& action) {
                OnCreated(id, ResponseOf<coordinator::ReplyCreate>(action));
                NextLater();
              });
}

void CheckpointNode::OnCreated(const std::string& id,
                               const absl::StatusOr<v1::CreateCheckpointResponse>& created) {
  if (!created.ok()) return CheckPasses("checkpoint", created.status());
  ++world_.result().checkpoints;
  world_.Trace(absl::StrCat("admin: checkpoint ", id, " of position ",
                            created->checkpoint().position(), " is there"));
  reported_.push_back(id);
  // "A checkpoint that was reported exists", even after a power cut.
  const absl::Status noted = Note(*world_.checkpoints().DurableCopy(), id);
  if (noted.ok() || MayBeRemoved(noted)) return;
  world_.invariants().Violated(
      absl::StrCat("checkpoint ", id, " was reported and is not there: ", noted.ToString()));
}

bool CheckpointNode::MayBeRemoved(const absl::Status& status) const {
  return world_.options().checkpoint_every_steps > 0 && absl::IsNotFound(status);
}

absl::Status CheckpointNode::Note(SimulatedDirectory& files, const std::string& id) {
  checkpoint::CheckpointDirectory directory(files);
  KAON_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, directory.Verify(id));
  Operation operation;
  operation.kind = Operation::Kind::kCheckpoint;
  operation.called = world_.now();
  operation.name = id;
  operation.target = {manifest.timeline(), manifest.position()};
  KAON_ASSIGN_OR_RETURN(operation.digest, ContentDigest(directory, manifest));
  const History::Id noted = world_.history().Call(std::move(operation));
  world_.history().Return(noted, Operation::Outcome::kDone, world_.now());
  return absl::OkStatus();
}

void CheckpointNode::Restore(const std::string& id) {
  checkpoint::CheckpointDirectory directory(world_.checkpoints());
  v1::RestoreCheckpointRequest request;
  request.set_job("tiny");
  request.set_id(id);
  const auto found = coordinator::FindCheckpoint(directory, request);
  if (!found.ok()) {
    const bool reported = std::count(reported_.begin(), reported_.end(), id) > 0;
    if (reported && !MayBeRemoved(found.status())) {
      world_.invariants().Violated(absl::StrCat(
          "checkpoint ", id, " was reported and cannot be read: ", found.status().ToString()));
    }
    return NextLater();
  }
  ++num_restores_;
  Operation operation;
  operation.kind = Operation::Kind::kRestore;
  operation.called = world_.now();
  operation.name = id;
  operation.target = {found->order.manifest->timeline(), found->order.manifest->position()};
  const History::Id called = world_.history().Call(std::move(operation));
  calls_.Call([order = found->order](coordinator::StepMachine& machine,
                                     coordinator::CallId call) { machine.Restore(call, order); },
              [this, called](const coordinator::CoordinatorAction& action) {
                OnRestored(called, ResponseOf<coordinator::ReplyRestore>(action));
                NextLater();
              });
}

void CheckpointNode::OnRestored(History::Id operation,
                                const absl::StatusOr<v1::RestoreCheckpointResponse>& restored) {
  // The restore may still take effect.
  if (!restored.ok()) return CheckPasses("restore", restored.status());
  world_.Trace(absl::StrCat("admin: restored in timeline ", restored->timeline()));
  world_.history().operation(operation).timeline = restored->timeline();
  world_.history().operation(operation).position = restored->position();
  world_.history().Return(operation, Operation::Outcome::kDone, world_.now());
  for (const ShardNode* shard : shards_) {
    const uint64_t applied = world_.invariants().highest_applied(shard->index());
    if (applied < restored->position()) {
      world_.invariants().Violated(absl::StrCat("restore at position ", restored->position(),
                                                " was answered while shard ", shard->index(),
                                                " has only ever applied ", applied));
    }
  }
}

void CheckpointNode::CheckPasses(const char* what, const absl::Status& status) {
  world_.Trace(absl::StrCat("admin: ", what, ": ", status.ToString()));
  switch (status.code()) {
    // A coordinator that was frozen since before the registration answers NOT_FOUND; a failing disk
    // is DATA_LOSS.
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kCancelled:
      return;
    default:
      return world_.invariants().Violated(absl::StrCat("a ", what, " got ", status.ToString()));
  }
}

void CheckpointNode::CheckAll() {
  if (!world_.options().checkpoints) return;
  checkpoint::CheckpointDirectory directory(world_.checkpoints());
  const auto ids = directory.List();
  if (!ids.ok()) return world_.invariants().Violated(ids.status().ToString());
  for (const std::string& id : *ids) {
    const absl::Status noted = Note(world_.checkpoints(), id);
    if (noted.ok()) continue;
    world_.invariants().Violated(
        absl::StrCat("checkpoint ", id, " has a manifest and is not whole: ", noted.ToString()));
  }
}

}  // namespace kaon::simulation
