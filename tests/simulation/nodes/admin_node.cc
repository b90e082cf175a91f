#include "tests/simulation/nodes/admin_node.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::simulation {

namespace {

constexpr size_t kChanges = 5;
constexpr int kDeletions = 3;
constexpr absl::Duration kCallTimeout = absl::Milliseconds(500);

struct Setting {
  const char* field;
  const char* value;
};
// Each setting changes a result of the kernels or of decide().
constexpr Setting kOfMuon[] = {{"weight_decay", "0.1"},    {"muon.momentum", "0.8"},
                               {"muon.nesterov", "false"}, {"muon.nesterov", "true"},
                               {"muon.ns_steps", "3"},     {"muon.scale", "original"},
                               {"clip_policy", "clip"},    {"clip_policy", "exempt"}};
constexpr Setting kOfAdamw[] = {{"weight_decay", "0.01"}, {"adamw.beta1", "0.8"},
                                {"adamw.beta2", "0.99"},  {"adamw.eps", "0.001"},
                                {"clip_policy", "clip"},  {"clip_policy", "exempt"}};

void Add(const std::string& field, const std::string& value, v1::SetGroupRequest& request) {
  v1::GroupSetting& setting = *request.add_settings();
  setting.set_field(field);
  setting.set_value(value);
}

}  // namespace

AdminNode::AdminNode(World& world, std::vector<CoordinatorNode*> coordinators,
                     std::vector<ShardNode*> shards)
    : world_(world),
      calls_(world, std::move(coordinators), kCallTimeout),
      shards_(std::move(shards)) {}

void AdminNode::Start() { ReadRevision(); }

bool AdminNode::finished() const { return num_done_ >= kChanges && !paused_; }

void AdminNode::Later(absl::Duration delay, std::function<void()> event) {
  world_.queue().After(delay, std::move(event));
}

void AdminNode::ReadRevision() {
  v1::GetJobRequest request;
  request.set_job("tiny");
  calls_.Call([request](coordinator::StepMachine& machine,
                        coordinator::CallId call) { machine.GetJob(call, request); },
              [this](const coordinator::CoordinatorAction& action) {
                const auto job = ResponseOf<coordinator::ReplyGetJob>(action);
                if (!job.ok()) return Later(absl::Milliseconds(50), [this] { ReadRevision(); });
                const bool deletes = world_.options().deletions && world_.faulty() &&
                                     num_deletions_ < kDeletions && world_.Chance(0.4);
                if (deletes) return Delete(job->timeline());
                Draw(job->config_revision(), job->definition().paused());
                Send();
              });
}

void AdminNode::DrawOfGroup() {
  const bool muon = world_.Chance(0.5);
  change_.request.set_group(muon ? "muon" : "adamw");
  Add("lr", muon ? absl::StrCat("0.02", drawn_) : absl::StrCat("0.001", drawn_), change_.request);
  const Setting& more = muon ? kOfMuon[world_.Below(std::size(kOfMuon))]
                             : kOfAdamw[world_.Below(std::size(kOfAdamw))];
  Add(more.field, more.value, change_.request);
  if (world_.options().nvme && world_.Chance(0.5)) {
    Add("tier", world_.Chance(0.5) ? "host" : "nvme", change_.request);
  }
}

void AdminNode::Draw(uint64_t revision, bool paused) {
  ++drawn_;
  paused_ = paused;
  change_ = Change();
  change_.request.set_expected_revision(revision);
  // A value has at most 64 bytes.
  if (paused || (drawn_ < 40 && world_.Chance(0.4))) {
    // The present number, written differently each time; it displaces an open step.
    Add("world_size", absl::StrCat(std::string(drawn_, '0'), world_.options().num_workers),
        change_.request);
    // The next change ends a pause.
    if (paused) {
      Add("paused", "false", change_.request);
    } else if (world_.options().interval_steps == 0 && world_.Chance(0.3)) {
      // In mode `interval` a rollback may take back the end of the pause.
      Add("paused", "true", change_.request);
    }
  } else {
    DrawOfGroup();
  }
  Operation operation;
  operation.kind = Operation::Kind::kChange;
  operation.called = world_.now();
  operation.name = change_.request.settings(0).value();
  change_.operation = world_.history().Call(std::move(operation));
}

void AdminNode::Send() {
  calls_.Call(
      [request = change_.request](coordinator::StepMachine& machine, coordinator::CallId call) {
        machine.SetGroup(call, request);
      },
      [this](const coordinator::CoordinatorAction& action) { OnAnswer(action); });
}

void AdminNode::OnAnswer(const coordinator::CoordinatorAction& action) {
  const auto response = ResponseOf<coordinator::ReplySetGroup>(action);
  if (response.ok()) return OnDone(response->config_revision());
  const absl::Status& status = response.status();
  if (absl::IsAborted(status)) {
    if (!change_.uncertain) {
      world_.history().Return(change_.operation, Operation::Outcome::kRefused, world_.now());
    }
    return Later(absl::Milliseconds(50), [this] { ReadRevision(); });
  }
  // A coordinator that was frozen since before the registration answers NOT_FOUND.
  if (!absl::IsUnavailable(status) && !absl::IsFailedPrecondition(status) &&
      !absl::IsNotFound(status)) {
    world_.invariants().Violated(absl::StrCat("a change of groups got ", status.ToString()));
    return;
  }
  change_.uncertain = true;
  Later(absl::Milliseconds(50), [this] { Send(); });
}

void AdminNode::OnDone(uint64_t revision) {
  const std::string& value = change_.request.settings(0).value();
  world_.Trace(absl::StrCat("admin: change ", value, " is revision ", revision));
  ++num_done_;
  for (const v1::GroupSetting& setting : change_.request.settings()) {
    if (setting.field() == "paused") paused_ = setting.value() == "true";
  }
  world_.history().operation(change_.operation).position = revision;
  world_.history().Return(change_.operation, Operation::Outcome::kDone, world_.now());
  CheckApplied("change", revision);
  if (finished()) return;
  Later(world_.Between(absl::Milliseconds(1), absl::Milliseconds(1500)),
        [this] { ReadRevision(); });
}

// "Answers once every shard has applied the entry."
void AdminNode::CheckApplied(const char* what, uint64_t position) {
  for (const ShardNode* shard : shards_) {
    const uint64_t applied = world_.invariants().highest_applied(shard->index());
    if (applied < position) {
      world_.invariants().Violated(absl::StrCat(what, " at position ", position,
                                                " was answered while shard ", shard->index(),
                                                " has only ever applied ", applied));
    }
  }
}

void AdminNode::Delete(uint64_t timeline) {
  ++num_deletions_;
  deletion_.set_job("tiny");
  deletion_.set_timeline(timeline);
  deletion_.set_request_id(world_.Random() | 1);
  Operation operation;
  operation.kind = Operation::Kind::kDeletion;
  operation.called = world_.now();
  operation.name = absl::StrCat(deletion_.request_id());
  deletion_operation_ = world_.history().Call(std::move(operation));
  SendDeletion();
}

void AdminNode::SendDeletion() {
  calls_.Call([request = deletion_](coordinator::StepMachine& machine,
                                    coordinator::CallId call) { machine.DeleteJob(call, request); },
              [this](const coordinator::CoordinatorAction& action) {
                OnDeleted(ResponseOf<coordinator::ReplyDelete>(action));
              });
}

void AdminNode::OnDeleted(const absl::StatusOr<v1::DeleteJobResponse>& deleted) {
  if (absl::IsUnavailable(deleted.status())) {
    return Later(absl::Milliseconds(50), [this] { SendDeletion(); });
  }
  if (deleted.ok()) {
    world_.Trace(absl::StrCat("admin: job deleted at position ", deleted->position()));
    world_.history().operation(deletion_operation_).position = deleted->position();
    world_.history().Return(deletion_operation_, Operation::Outcome::kDone, world_.now());
    CheckApplied("deletion", deleted->position());
  } else if (!absl::IsNotFound(deleted.status()) && !absl::IsAborted(deleted.status()) &&
             !absl::IsFailedPrecondition(deleted.status())) {
    return world_.invariants().Violated(
        absl::StrCat("a deletion got ", deleted.status().ToString()));
  }
  // Else another try may have deleted the job, or another coordinator holds the shards.
  Later(world_.Between(absl::Milliseconds(1), absl::Milliseconds(500)), [this] { ReadRevision(); });
}

}  // namespace kaon::simulation
