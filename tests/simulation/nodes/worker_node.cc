#include "tests/simulation/nodes/worker_node.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/simulation/model.h"
#include "tests/simulation/worker_loss.h"

namespace kaon::simulation {

namespace {

constexpr absl::Duration kCallTimeout = absl::Milliseconds(500);
// Share of the replaced processes that still push.
constexpr double kOutlived = 0.3;
// Interval at which a worker that has done its steps checks whether there are more.
constexpr absl::Duration kLook = absl::Milliseconds(300);
// Time in which the first push of a step is in progress.
constexpr absl::Duration kPush = absl::Milliseconds(8);

template <typename T>
struct Outcome {
  absl::StatusOr<T> response;
  std::string holder;
};

// The answer to a call: its response, or the failure it ended with.
template <typename Response, typename Reply>
Outcome<Response> OutcomeOf(const coordinator::CoordinatorAction& action) {
  if (const auto* reply = std::get_if<Reply>(&action)) {
    return {reply->response, reply->holder_address};
  }
  const auto& failed = std::get<coordinator::AwaitFailed>(action);
  return {failed.status, failed.holder_address};
}

}  // namespace

WorkerNode::WorkerNode(World& world, uint32_t rank, v1::JobDefinition job,
                       std::vector<CoordinatorNode*> coordinators, std::vector<ShardNode*> shards)
    : world_(world),
      rank_(rank),
      job_(std::move(job)),
      coordinators_(std::move(coordinators)),
      shards_(std::move(shards)) {}

void WorkerNode::Start() {
  if (gone_) return;
  ++life_;
  nonce_ = world_.Random() | 1;
  attached_timeline_ = 0;
  pushes_of_step_ = 0;
  wake_ = absl::InfiniteFuture();
  client::WorkerSessionOptions options;
  options.rank = rank_;
  options.process_nonce = nonce_;
  for (const CoordinatorNode* node : coordinators_) options.coordinators.push_back(node->address());
  options.num_shards = static_cast<uint32_t>(shards_.size());
  options.jitter_seed = world_.Random();
  session_ = std::make_unique<client::WorkerSession>(std::move(options));
  world_.Trace(absl::StrCat("w", rank_, " starts"));
  if (rank_ == 0) {
    Register();
  } else {
    JoinAfter(world_.Latency());
  }
}

void WorkerNode::Kill() {
  world_.Trace(absl::StrCat("w", rank_, " dies"));
  ++life_;
  stepping_ = false;
  at_next_push_ = nullptr;
  const bool outlived = world_.faulty() && world_.Chance(kOutlived);
  for (auto& [call, push] : std::exchange(pushes_, {})) outlived ? push->Outlive() : push->Break();
  session_.reset();
  HangUp();
}

void WorkerNode::GiveUp() {
  if (!stepping_) return;
  if (world_.holder() != rank_) ++world_.result().given_up;
  world_.Trace(absl::StrCat("w", rank_, " gives up step ", open_step_));
  given_up_ = begun_;
  session_->Abandon();
  Drain();
  HangUp();
  BeginNext();
}

void WorkerNode::KillForGood() {
  Kill();
  gone_ = true;
}

void WorkerNode::HangUp() {
  if (awaited_ == nullptr) return;
  world_.queue().After(world_.Latency(),
                       [node = awaited_, call = await_call_] { node->HangUp(call); });
  awaited_ = nullptr;
}

void WorkerNode::Later(absl::Duration delay, std::function<void()> event) {
  world_.queue().After(delay, [this, event = std::move(event), life = life_] {
    if (life == life_) event();
  });
}

CoordinatorNode* WorkerNode::Find(const std::string& address) const {
  for (CoordinatorNode* node : coordinators_) {
    if (node->address() == address) return node;
  }
  return nullptr;
}

void WorkerNode::Unary(const std::string& address, const CoordinatorNode::MakeCall& make,
                       OnAnswer on_answer) {
  auto done = std::make_shared<bool>(false);
  const auto finish = [this, done, on_answer = std::move(on_answer),
                       life = life_](const coordinator::CoordinatorAction& action) {
    if (*done || life != life_) return;
    *done = true;
    on_answer(action);
    Drain();
  };
  Later(kCallTimeout, [finish] {
    finish(coordinator::AwaitFailed{0, absl::UnavailableError("deadline"), ""});
  });
  const int copies = world_.Lost() ? 0 : (world_.Doubled() ? 2 : 1);
  for (int i = 0; i < copies; ++i) {
    Later(world_.Latency(), [this, address, make, finish] {
      Find(address)->Call(make, [this, finish](const coordinator::CoordinatorAction& action) {
        if (world_.Lost()) return;
        world_.queue().After(world_.Latency(), [finish, action] { finish(action); });
      });
    });
  }
}

void WorkerNode::Register() {
  v1::RegisterJobRequest request;
  *request.mutable_definition() = job_;
  const std::string address = coordinators_[world_.Below(coordinators_.size())]->address();
  Unary(
      address,
      [request](coordinator::StepMachine& machine, coordinator::CallId call) {
        machine.Register(call, request);
      },
      [this](const coordinator::CoordinatorAction& action) {
        const auto outcome = OutcomeOf<v1::JobDescription, coordinator::ReplyRegister>(action);
        if (outcome.response.ok()) return JoinAfter(absl::ZeroDuration());
        Later(absl::Milliseconds(50), [this] { Register(); });
      });
}

void WorkerNode::JoinAfter(absl::Duration delay) {
  Later(delay, [this] {
    session_->Join(clock_.now());
    Drain();
  });
}

void WorkerNode::NoteLoss(const absl::Status& status) {
  if (!IsLoss(status)) return;
  ++world_.result().told_of_loss;
  if (absl::IsFailedPrecondition(status) && world_.options().fail) return;
  world_.invariants().Violated(absl::StrCat("worker ", rank_, " was told ", status.ToString()));
}

// A trainer ends when the job stops. It attaches anew, maybe to the job that came after a deletion.
bool WorkerNode::EndsWith(const absl::Status& status) const {
  return world_.options().deletions && IsLoss(status);
}

void WorkerNode::OnJoinOver(const client::JoinOver& over) {
  NoteLoss(over.joined.status());
  if (!over.joined.ok()) {
    if (EndsWith(over.joined.status())) return Supervise();
    if (absl::IsAborted(over.joined.status())) return Supervise();
    // The job was deleted, or another of its name took its place.
    const bool deleted = world_.options().deletions && absl::IsNotFound(over.joined.status());
    if (deleted && (rank_ == 0 || attached_timeline_ > 0)) return Supervise();
    // The job is not registered yet, or no coordinator holds the shards.
    return JoinAfter(absl::Milliseconds(100));
  }
  if (!over.joined->weights_loaded && rank_ != 0) return JoinAfter(absl::Milliseconds(100));
  if (attached_timeline_ == 0) attached_timeline_ = over.joined->timeline;
  OnRewound(*over.joined);
  BeginNext();
}

void WorkerNode::OnRewound(const client::Joined& joined) {
  // A coordinator that does not know yet that it was replaced.
  if (joined.timeline < timeline_) return;
  open_step_ = joined.weights_loaded ? joined.applied_step + 1 : 0;
  finished_step_ = joined.timeline > timeline_ ? joined.applied_step
                                               : std::max(finished_step_, joined.applied_step);
  timeline_ = joined.timeline;
}

void WorkerNode::BeginNext() {
  if (open_step_ > world_.last_step()) {
    // More steps may follow, or its last ones may still be rolled back.
    const bool taken_back = world_.options().interval_steps > 0 || world_.options().checkpoints ||
                            world_.options().deletions;
    if (taken_back || !world_.last_step_is_known()) JoinAfter(kLook);
    return;
  }
  pushes_of_step_ = 0;
  Operation operation;
  operation.kind = Operation::Kind::kStep;
  operation.called = world_.now();
  operation.timeline = timeline_;
  operation.step = open_step_;
  operation.rank = rank_;
  operation.process_nonce = nonce_;
  operation_ = world_.history().Call(std::move(operation));
  client::StepShare share = Share(rank_, open_step_);
  share.timeline = timeline_;
  stepping_ = true;
  session_->Begin(share, clock_.now());
  Drain();
}

void WorkerNode::Supervise() {
  Later(absl::ZeroDuration(), [this] {
    Kill();
    world_.queue().After(absl::Milliseconds(100), [this, life = life_] {
      if (life == life_) Start();
    });
  });
}

void WorkerNode::OnStepOver(const client::StepOver& over) {
  stepping_ = false;
  NoteLoss(over.record.status());
  if (!over.record.ok()) {
    world_.Trace(
        absl::StrCat("w", rank_, " step ", open_step_, ": ", over.record.status().ToString()));
    if (over.rewound.has_value()) {
      ++world_.result().rewinds;
      OnRewound(*over.rewound);
      return Later(absl::Milliseconds(1), [this] { BeginNext(); });
    }
    if (EndsWith(over.record.status())) return Supervise();
    // The step was decided while this process started, so it asks for the job's position.
    if (over.record.status().code() == absl::StatusCode::kFailedPrecondition) {
      return JoinAfter(absl::Milliseconds(20));
    }
    // A join of this rank's dead process arrived after this one's own. Or a shard holds no job for
    // longer than a worker retries. It died before the registration was on its disk as decided, and
    // the holder is cut off.
    if (absl::IsAborted(over.record.status()) || absl::IsNotFound(over.record.status())) {
      return Supervise();
    }
    return world_.invariants().Violated(absl::StrCat("worker ", rank_, ", step ", open_step_, ": ",
                                                     over.record.status().ToString()));
  }
  world_.invariants().OnRecord(*over.record);
  world_.history().operation(operation_).record = over.record->SerializeAsString();
  world_.history().Return(operation_, Operation::Outcome::kDone, world_.now());
  const uint64_t step = over.record->plan().step().step();
  world_.Trace(absl::StrCat("w", rank_, " step ", step, " is over"));
  if (step != open_step_) {
    world_.invariants().Violated(
        absl::StrCat("worker ", rank_, " began step ", open_step_, " and was told of ", step));
  }
  finished_step_ = step;
  open_step_ = step + 1;
  Pull(step);
  // Computing the next gradient needs some time.
  Later(world_.Between(absl::Milliseconds(1), absl::Milliseconds(30)), [this] { BeginNext(); });
}

void WorkerNode::Drain() {
  if (session_ == nullptr) return;
  for (auto actions = session_->TakeActions(); !actions.empty();
       actions = session_->TakeActions()) {
    for (const client::SessionAction& action : actions) CarryOut(action);
  }
}

void WorkerNode::CarryOut(const client::SessionAction& action) {
  if (const auto* join = std::get_if<client::CallJoin>(&action)) return Join(*join);
  if (const auto* begin = std::get_if<client::CallBegin>(&action)) return Begin(*begin);
  if (const auto* await = std::get_if<client::CallAwait>(&action)) return Await(*await);
  if (const auto* push = std::get_if<client::StartPush>(&action)) return Push(*push);
  if (const auto* over = std::get_if<client::JoinOver>(&action)) return OnJoinOver(*over);
  if (const auto* over = std::get_if<client::StepOver>(&action)) return OnStepOver(*over);
  if (const auto* cancel = std::get_if<client::CancelCalls>(&action)) {
    for (const uint64_t call : cancel->calls) {
      const auto found = pushes_.find(call);
      if (found == pushes_.end()) continue;
      found->second->Break();
      pushes_.erase(found);
    }
    return;
  }
  const absl::Time at = std::get<client::WakeAt>(action).at;
  Later(clock_.InQueue(at) - world_.now(), [this] {
    session_->Tick(clock_.now());
    Drain();
  });
}

void WorkerNode::Join(const client::CallJoin& call) {
  v1::JoinWorkerRequest request;
  request.set_job(job_.name());
  request.set_rank(rank_);
  nonce_ = call.process_nonce;
  request.set_process_nonce(nonce_);
  if (call.previous_attempt.has_value()) {
    *request.mutable_previous_attempt() = *call.previous_attempt;
  }
  request.set_timeline(attached_timeline_);
  Unary(
      call.coordinator,
      [request](coordinator::StepMachine& machine, coordinator::CallId id) {
        machine.Join(id, request);
      },
      [this, number = call.call](const coordinator::CoordinatorAction& action) {
        const auto outcome = OutcomeOf<v1::JoinWorkerResponse, coordinator::ReplyJoin>(action);
        if (!outcome.response.ok()) {
          return session_->OnJoin(number, outcome.response.status(), outcome.holder, clock_.now());
        }
        const v1::JoinWorkerResponse& joined = *outcome.response;
        session_->OnJoin(
            number,
            client::Joined{joined.attempt(), joined.process_nonce(), joined.applied_step(),
                           joined.weights_loaded(), joined.loss_scale(), joined.timeline()},
            outcome.holder, clock_.now());
      });
}

void WorkerNode::Begin(const client::CallBegin& call) {
  v1::BeginStepRequest request;
  request.set_job(job_.name());
  request.set_rank(rank_);
  *request.mutable_attempt() = call.attempt;
  request.set_process_nonce(call.process_nonce);
  begun_ = {timeline_, call.share.step, call.process_nonce};
  // Some shards may have a part of the abandoned gradient.
  if (begun_ == given_up_) {
    world_.invariants().Violated(absl::StrCat("worker ", rank_, " begins step ", call.share.step,
                                              " again under the nonce it gave it up with"));
  }
  world_.history().operation(operation_).process_nonce = call.process_nonce;
  request.set_step(call.share.step);
  request.set_token_weight(call.share.token_weight);
  request.set_micro_batches(call.share.micro_batches);
  request.set_learning_rate_multiplier(call.share.learning_rate_multiplier);
  Unary(
      call.coordinator,
      [request](coordinator::StepMachine& machine, coordinator::CallId id) {
        machine.Begin(id, request);
      },
      [this, number = call.call](const coordinator::CoordinatorAction& action) {
        const auto outcome = OutcomeOf<v1::BeginStepResponse, coordinator::ReplyBegin>(action);
        if (!outcome.response.ok()) {
          return session_->OnBegin(number, outcome.response.status(), outcome.holder, clock_.now());
        }
        std::optional<v1::StepRecord> record;
        if (outcome.response->has_record()) record = outcome.response->record();
        session_->OnBegin(number, record, outcome.holder, clock_.now());
      });
}

void WorkerNode::Await(const client::CallAwait& call) {
  v1::AwaitStepRequest request;
  request.set_job(job_.name());
  request.set_rank(rank_);
  *request.mutable_attempt() = call.attempt;
  request.set_step(call.step);
  // A stream delivers in order until it breaks.
  struct Stream {
    bool broken = false;
    absl::Time last = absl::InfinitePast();
  };
  auto stream = std::make_shared<Stream>();
  const auto deliver = [this, stream, number = call.call,
                        life = life_](const coordinator::CoordinatorAction& action) {
    if (stream->broken || life != life_) return;
    stream->last = std::max(stream->last, world_.now() + world_.Latency());
    const auto* failed = std::get_if<coordinator::AwaitFailed>(&action);
    absl::Status status = failed != nullptr ? failed->status : absl::OkStatus();
    std::string holder = failed != nullptr ? failed->holder_address : "";
    if (world_.Lost()) status = absl::UnavailableError("stream broke");
    stream->broken = !status.ok();
    if (stream->broken && failed == nullptr) HangUp();
    world_.queue().At(stream->last, [this, action, status, holder, number, life] {
      if (life != life_) return;
      if (!status.ok()) {
        session_->OnAwaitEnded(number, status, holder, clock_.now());
      } else if (const v1::StepEvent& event =
                     std::get<coordinator::AwaitEvent>(action).event->message;
                 event.has_planned()) {
        session_->OnEvent(number,
                          client::Planned{event.planned().ballot(), event.planned().round()},
                          clock_.now());
      } else {
        session_->OnEvent(number, event.decided(), clock_.now());
      }
      Drain();
    });
  };
  Later(world_.Latency(), [this, address = call.coordinator, request, deliver] {
    awaited_ = Find(address);
    await_call_ = awaited_->Call([request](coordinator::StepMachine& machine,
                                           coordinator::CallId id) { machine.Await(id, request); },
                                 deliver);
  });
}

void WorkerNode::Push(const client::StartPush& call) {
  if (call.round > 1) ++world_.result().reopened_rounds;
  if (at_next_push_ != nullptr) {
    Later(world_.Between(absl::ZeroDuration(), kPush), std::exchange(at_next_push_, nullptr));
  }
  // A stream that is open and silent. Nobody else has the initial weights.
  if (world_.holder() == rank_ && call.step > 0) return;
  const bool changed =
      world_.options().bug == SeededBug::kChangedGradient && ++pushes_of_step_ > shards_.size();
  PushContext context;
  context.job = &job_;
  context.rank = rank_;
  context.attempt = call.attempt;
  context.timeline = timeline_;
  context.step = call.step;
  context.ballot = call.ballot;
  context.round = call.round;
  context.gradient_nonce = changed ? nonce_ + 2 : nonce_;
  context.share = Share(rank_, call.step);
  pushes_[call.call] =
      PushStream::Start(world_, *shards_[call.shard], context,
                        [this, call, life = life_](const absl::Status& status) {
                          if (life != life_ || pushes_.erase(call.call) == 0) return;
                          session_->OnPushEnded(call.call, call.shard, status, clock_.now());
                          Drain();
                        });
}

void WorkerNode::Pull(uint64_t step) {
  for (ShardNode* shard : shards_) {
    for (const v1::ParameterPlacement& home : world_.invariants().placement().parameters()) {
      if (home.shard() != static_cast<uint32_t>(shard->index())) continue;
      Operation operation;
      operation.kind = Operation::Kind::kPull;
      operation.called = world_.now();
      operation.timeline = timeline_;
      operation.step = step;
      operation.parameter_id = home.parameter_id();
      const History::Id id = world_.history().Call(operation);
      world_.queue().After(world_.Latency(), [this, shard, operation, id] {
        shard->Pull(operation.timeline, operation.parameter_id, operation.step,
                    [this, id](std::vector<float> weights) {
                      world_.history().operation(id).weights = std::move(weights);
                      world_.history().Return(id, Operation::Outcome::kDone, world_.now());
                    });
      });
    }
  }
}

}  // namespace kaon::simulation
