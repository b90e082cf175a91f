#include "tests/simulation/nodes/coordinator_node.h"

#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "tests/simulation/worker_loss.h"

namespace kaon::simulation {

namespace {

constexpr absl::Duration kReconnect = absl::Milliseconds(50);
// Probabilities per message. A stream that breaks during a decision leaves the decision with some
// shards only.
constexpr double kBreaks = 0.002;
constexpr double kBreaksUnderDecision = 0.02;
// Probability that a late copy of an obsolete message arrives.
constexpr double kObsoleteRepeated = 0.3;
// Time until the coordinator looks at its directory, the supervisor's delay, and the fewest
// checkpoints that are kept.
constexpr absl::Duration kFinish = absl::Milliseconds(30);
constexpr absl::Duration kRespawn = absl::Milliseconds(300);
constexpr uint64_t kKeptCheckpoints = 2;
// Time in which a reopened round gets its votes.
constexpr absl::Duration kRound = absl::Milliseconds(40);

}  // namespace

CoordinatorNode::CoordinatorNode(World& world, int index, std::vector<ShardNode*> shards)
    : world_(world), index_(index), shards_(std::move(shards)), links_(shards_.size()) {}

void CoordinatorNode::Start() {
  ++life_;
  coordinator::StepMachineOptions options;
  options.address = address();
  for (size_t i = 0; i < shards_.size(); ++i) {
    options.shard_addresses.push_back(absl::StrCat("s", i));
  }
  options.incarnation_high = world_.Random();
  options.incarnation_low = world_.Random();
  options.seed = world_.Random();
  if (world_.options().checkpoints) {
    options.takes_checkpoints = true;
    options.checkpoint_every_steps = world_.options().checkpoint_every_steps;
    files_ = std::make_unique<checkpoint::CheckpointDirectory>(world_.checkpoints());
    finisher_ = std::make_unique<coordinator::CheckpointFinisher>(*files_);
  }
  machine_ = std::make_unique<coordinator::StepMachine>(std::move(options));
  held_ = false;
  stopped_in_.reset();
  held_out_.clear();
  world_.Trace(absl::StrCat(address(), " starts"));
  for (size_t i = 0; i < shards_.size(); ++i) Connect(i);
  Run([this] {
    machine_->Tick(clock_.now());
    Drain();
  });
}

void CoordinatorNode::Kill() {
  world_.Trace(absl::StrCat(address(), " dies"));
  machine_.reset();
  ++life_;
  frozen_until_ = absl::InfinitePast();
  for (size_t i = 0; i < shards_.size(); ++i) Break(i);
  for (auto& [call, on_answer] : std::exchange(calls_, {})) {
    on_answer(coordinator::AwaitFailed{call, absl::UnavailableError("connection lost"), ""});
  }
}

void CoordinatorNode::Freeze(absl::Duration duration) {
  world_.Trace(absl::StrCat(address(), " freezes"));
  frozen_until_ = world_.now() + duration;
}

void CoordinatorNode::CutOff(absl::Duration duration) {
  world_.Trace(absl::StrCat(address(), " is cut off"));
  cut_off_until_ = world_.now() + duration;
}

void CoordinatorNode::Run(std::function<void()> event) {
  world_.queue().At(std::max(world_.now(), frozen_until_),
                    [this, event = std::move(event), life = life_] {
                      if (life != life_ || machine_ == nullptr) return;
                      // Frozen again meanwhile.
                      if (world_.now() < frozen_until_) return Run(event);
                      event();
                    });
}

coordinator::CallId CoordinatorNode::Call(const MakeCall& make, OnAnswer on_answer) {
  if (machine_ == nullptr) {
    on_answer(coordinator::AwaitFailed{0, absl::UnavailableError("connection refused"), ""});
    return 0;
  }
  const coordinator::CallId call = next_call_++;
  calls_[call] = std::move(on_answer);
  Run([this, make, call] {
    make(*machine_, call);
    Drain();
  });
  return call;
}

void CoordinatorNode::HangUp(coordinator::CallId call) {
  if (calls_.erase(call) == 0) return;
  Run([this, call] {
    machine_->CancelCall(call);
    Drain();
  });
}

void CoordinatorNode::Connect(int shard) {
  world_.queue().After(world_.Latency(), [this, shard, life = life_] {
    if (life != life_ || machine_ == nullptr) return;
    const shard::StreamId stream = shards_[shard]->OpenStream(
        [this, shard, life](shard::StreamId id, ShardNode::Message message) {
          if (life == life_) Receive(shard, id, std::move(message));
        },
        [this, shard, life](shard::StreamId id) {
          if (life == life_) Run([this, shard, id] { OnClosed(shard, id); });
        });
    if (stream == 0) {
      // Connection refused.
      return world_.queue().After(kReconnect, [this, shard, life] {
        if (life == life_) Connect(shard);
      });
    }
    links_[shard] = {true, stream, nullptr, std::nullopt};
    Run([this, shard] {
      machine_->OnShardConnected(shard);
      Drain();
    });
  });
}

void CoordinatorNode::OnClosed(int shard, shard::StreamId stream) {
  if (!links_[shard].open || links_[shard].stream != stream) return;
  links_[shard].open = false;
  machine_->OnShardDisconnected(shard);
  Drain();
  Connect(shard);
}

void CoordinatorNode::Break(int shard) {
  if (!links_[shard].open) return;
  links_[shard].open = false;
  shards_[shard]->CloseStream(links_[shard].stream);
}

void CoordinatorNode::Receive(int shard, shard::StreamId stream, ShardNode::Message message) {
  if (world_.now() < cut_off_until_) return;
  Run([this, shard, stream, message = std::move(message)] {
    if (!links_[shard].open || links_[shard].stream != stream) return;
    if (message->has_state()) links_[shard].last_state = message;
    world_.invariants().OnCoordinatorReceives(index_, shard, *message);
    machine_->OnShardMessage(shard, *message, clock_.now());
    Drain();
  });
}

bool CoordinatorNode::stopped_by_loss() const {
  return machine_->IsHolder() && IsLoss(machine_->stopped());
}

void CoordinatorNode::NoteStop() {
  if (stopped_in_.has_value() || !IsLoss(machine_->stopped())) return;
  ++world_.result().loss_stops;
  world_.Trace(absl::StrCat(address(), " stops: ", machine_->stopped().ToString()));
  const coordinator::CoordinatorSnapshot snapshot = machine_->Snapshot();
  stopped_in_ = {snapshot.job->timeline(), snapshot.job->applied_step() + 1};
  if (!world_.options().fail || !absl::IsFailedPrecondition(machine_->stopped())) {
    world_.invariants().Violated(
        absl::StrCat(address(), " stopped the job: ", machine_->stopped().ToString()));
  }
}

void CoordinatorNode::CheckStopped(const v1::StepPlan& plan) {
  if (!stopped_in_.has_value()) return;
  if (plan.timeline() > stopped_in_->first) {
    ++world_.result().loss_restores;
    stopped_in_.reset();
  } else if (plan.has_step() && plan.step().step() > stopped_in_->second) {
    // Another holder has trained on.
    stopped_in_.reset();
  } else if (plan.has_step()) {
    world_.invariants().Violated(absl::StrCat(address(), " planned step ", plan.step().step(),
                                              " of timeline ", plan.timeline(),
                                              ", in which it had stopped the job"));
  }
}

void CoordinatorNode::NoteHeldOut() {
  if (!world_.holder().has_value()) return;
  const auto lost = machine_->lost_workers().find(*world_.holder());
  // The reason of a worker that is not heard is empty.
  const std::string why = lost == machine_->lost_workers().end() ? "" : lost->second;
  if (std::exchange(held_out_, why) == why || why.empty()) return;
  ++world_.result().held_out;
  world_.Trace(absl::StrCat(address(), " gives up w", *world_.holder(), ": ", why));
  if (!absl::StrContains(why, "(step_seconds)")) {
    world_.invariants().Violated(
        absl::StrCat(address(), " gave up the worker that holds steps: ", why));
  }
}

void CoordinatorNode::SendToShard(int shard, const v1::CoordinatorToShard& message) {
  world_.invariants().OnCoordinatorSends(index_, message);
  if (message.has_plan()) CheckStopped(message.plan());
  if (message.has_plan()) {
    world_.Trace(absl::StrCat(address(), " -> s", shard, " plan of position ",
                              message.plan().position(), " round ", message.plan().round()));
  }
  if (!links_[shard].open || world_.now() < cut_off_until_) return;
  // A stream that breaks loses the messages in flight in both directions and is opened again.
  if (world_.faulty() && world_.Chance(message.has_decision() ? kBreaksUnderDecision : kBreaks)) {
    Break(shard);
    machine_->OnShardDisconnected(shard);
    return Connect(shard);
  }
  const int copies = world_.Lost() ? 0 : (world_.Doubled() ? 2 : 1);
  for (int i = 0; i < copies; ++i) {
    world_.queue().After(world_.Latency(), [this, shard, message, stream = links_[shard].stream] {
      shards_[shard]->Deliver(stream, message);
    });
  }
  if (world_.faulty()) RepeatObsolete(shard, message);
}

// Sends the copy at the right moment. A random copy among fresh messages would have to be very late
// to harm a machine that believes it.
void CoordinatorNode::RepeatObsolete(int shard, const v1::CoordinatorToShard& message) {
  Link& link = links_[shard];
  if (message.has_promise() && link.last_state != nullptr && world_.Chance(kObsoleteRepeated)) {
    ++world_.result().obsolete_copies;
    world_.queue().After(world_.Latency(), [this, shard, stream = link.stream,
                                            state = link.last_state, life = life_] {
      if (life == life_) Receive(shard, stream, state);
    });
  }
  if (!message.has_plan()) return;
  const bool obsolete = link.last_plan.has_value() &&
                        link.last_plan->plan().position() == message.plan().position() &&
                        proto::CompareRound(link.last_plan->plan(), message.plan()) < 0;
  if (obsolete && world_.Chance(kObsoleteRepeated)) {
    ++world_.result().obsolete_copies;
    world_.queue().After(world_.Between(absl::ZeroDuration(), kRound),
                         [this, shard, stream = link.stream, plan = *link.last_plan] {
                           shards_[shard]->Deliver(stream, plan);
                         });
  }
  if (!obsolete || world_.Chance(0.5)) link.last_plan = message;
}

void CoordinatorNode::Answer(coordinator::CallId call, const coordinator::CoordinatorAction& action,
                             bool last) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  const OnAnswer on_answer = found->second;
  if (last) calls_.erase(found);
  on_answer(action);
}

void CoordinatorNode::Drain() {
  // Carrying out an action may break a stream, which the machine answers with more.
  for (auto actions = machine_->TakeActions(); !actions.empty();
       actions = machine_->TakeActions()) {
    for (const coordinator::CoordinatorAction& action : actions) CarryOut(action);
  }
  // Runs after the process has sent what it still had to send.
  NoteStop();
  NoteHeldOut();
  if (machine_->IsHolder() && !held_) {
    held_ = true;
    ++world_.result().takeovers;
    world_.Trace(absl::StrCat(address(), " holds the shards"));
  } else if (!machine_->IsHolder()) {
    held_ = false;
  }
}

// Makes a unary call, which is separate from the streams.
void CoordinatorNode::Read(const coordinator::ReadRecord& read) {
  if (world_.now() < cut_off_until_ || world_.Lost()) return;
  ++world_.result().record_reads;
  world_.queue().After(world_.Latency(), [this, read, life = life_] {
    const absl::StatusOr<v1::StepRecord> record = shards_[read.shard]->ReadHistory(read.position);
    world_.queue().After(world_.Latency(), [this, read, record, life] {
      if (life != life_) return;
      Run([this, read, record] {
        machine_->OnRecordRead(read.position, record);
        Drain();
      });
    });
  });
}

// A unary call as well.
void CoordinatorNode::Ask(int shard) {
  if (world_.now() < cut_off_until_ || world_.Lost()) return;
  world_.queue().After(world_.Latency(), [this, shard, life = life_] {
    if (!shards_[shard]->alive()) return;
    const absl::StatusOr<v1::DescribeShardResponse> answer = shards_[shard]->core().Describe("");
    if (!answer.ok()) return;
    world_.queue().After(world_.Latency(), [this, shard, answer, life] {
      if (life != life_) return;
      Run([this, shard, answer] {
        machine_->OnAwaited(shard, *answer);
        Drain();
      });
    });
  });
}

void CoordinatorNode::Finish(const coordinator::FinishCheckpoint& finish) {
  SimulatedDirectory& disk = world_.checkpoints();
  const uint64_t failed = disk.counters().failed;
  const bool dies = world_.faulty() && world_.Chance(0.15);
  if (dies) disk.FailAfter(world_.Below(15));
  finisher_->Finish(
      finish, kKeptCheckpoints,
      [this, attempt = finish.attempt](const absl::StatusOr<v1::CheckpointSummary>& summary) {
        Run([this, attempt, summary] {
          machine_->OnCheckpointFinished(attempt, summary);
          Drain();
        });
      });
  disk.SetHealthy();
  if (!dies || disk.counters().failed == failed) return;
  ++world_.result().torn_checkpoints;
  ++world_.result().coordinator_kills;
  Kill();
  world_.queue().After(kRespawn, [this] {
    if (!alive()) Start();
  });
}

void CoordinatorNode::CarryOut(const coordinator::CoordinatorAction& action) {
  if (const auto* send = std::get_if<coordinator::SendToShard>(&action)) {
    SendToShard(send->shard, send->Whole());
  } else if (const auto* wake = std::get_if<coordinator::WakeAt>(&action)) {
    world_.queue().At(clock_.InQueue(wake->time), [this, number = ++wake_, life = life_] {
      if (life != life_ || number != wake_) return;
      Run([this] {
        machine_->Tick(clock_.now());
        Drain();
      });
    });
  } else if (const auto* read = std::get_if<coordinator::ReadRecord>(&action)) {
    Read(*read);
  } else if (const auto* ask = std::get_if<coordinator::ReadAwaited>(&action)) {
    Ask(ask->shard);
  } else if (const auto* finish = std::get_if<coordinator::FinishCheckpoint>(&action)) {
    world_.queue().After(world_.Between(absl::ZeroDuration(), kFinish),
                         [this, finish = *finish, life = life_] {
                           if (life == life_) Run([this, finish] { Finish(finish); });
                         });
  } else if (const auto* event = std::get_if<coordinator::AwaitEvent>(&action)) {
    const v1::StepEvent& said = event->event->message;
    if (said.has_decided()) world_.invariants().OnRecord(said.decided());
    Answer(event->call, action, event->last);
  } else if (const auto* failed = std::get_if<coordinator::AwaitFailed>(&action)) {
    Answer(failed->call, action, true);
  } else {
    const coordinator::CallId call = std::visit(
        [](const auto& reply) -> coordinator::CallId {
          if constexpr (requires { reply.response; }) return reply.call;
          return 0;
        },
        action);
    Answer(call, action, true);
  }
}

}  // namespace kaon::simulation
