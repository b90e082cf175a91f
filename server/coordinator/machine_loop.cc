#include "server/coordinator/machine_loop.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/steady_clock.h"
#include "proto/failpoint.h"

namespace kaon::coordinator {

namespace {

constexpr absl::string_view kShuttingDown = "coordinator is shutting down";

// Requests and shard messages that may wait for the thread. Far above the number that 4096 workers
// have open at once.
constexpr size_t kMaxEvents = 1 << 16;
// Bytes that waiting events may hold. A shard's state arrives with its registration, and again at
// each heartbeat. A larger event waits alone.
constexpr size_t kMaxEventBytes = size_t{256} << 20;

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// Runs after the send, so at a failpoint a decision may have reached only the first shard.
void PassSent(v1::CoordinatorToShard::BodyCase body, bool restore) {
  if (body == v1::CoordinatorToShard::kPromise) {
    PassFailpoint(Failpoint::coordinator_promise_sent);
  } else if (body == v1::CoordinatorToShard::kPlan) {
    PassFailpoint(Failpoint::coordinator_plan_sent);
  } else if (body == v1::CoordinatorToShard::kDecision) {
    PassFailpoint(Failpoint::coordinator_decision_sent);
  } else if (body == v1::CoordinatorToShard::kCheckpoint) {
    PassFailpoint(Failpoint::checkpoint_order_sent);
  }
  if (!restore) return;
  if (body == v1::CoordinatorToShard::kPlan) PassFailpoint(Failpoint::restore_plan_sent);
  if (body == v1::CoordinatorToShard::kDecision) PassFailpoint(Failpoint::restore_decision_sent);
}

void PassAnnounced(const v1::StepEvent& event) {
  if (event.has_planned()) PassFailpoint(Failpoint::coordinator_plan_announced);
  if (event.has_decided()) PassFailpoint(Failpoint::coordinator_decision_announced);
}

template <typename Reply>
void PassReplied(const Reply&) {
  if (std::is_same_v<Reply, ReplyJoin>) PassFailpoint(Failpoint::coordinator_joined);
  if (std::is_same_v<Reply, ReplyBegin>) PassFailpoint(Failpoint::coordinator_begun);
  if (std::is_same_v<Reply, ReplyRestore>) PassFailpoint(Failpoint::restore_answered);
}

}  // namespace

MachineLoop::MachineLoop(ShardSender sender, RecordReader reader, CheckpointFinisher finisher,
                         Observer observer, AwaitedReader awaited_reader)
    : sender_(std::move(sender)),
      reader_(std::move(reader)),
      finisher_(std::move(finisher)),
      observer_(std::move(observer)),
      awaited_reader_(std::move(awaited_reader)) {}

MachineLoop::~MachineLoop() { Stop(); }

void MachineLoop::Start(StepMachineOptions options) {
  machine_ = std::make_unique<StepMachine>(std::move(options));
  thread_ = std::thread([this] { Run(); });
}

void MachineLoop::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  for (auto& [call, sink] : std::exchange(sinks_, {})) {
    sink(AwaitFailed{call, absl::UnavailableError(kShuttingDown), ""});
  }
}

absl::Status MachineLoop::Enqueue(Waiting waiting, size_t limit) {
  MutexLock lock(mu_);
  if (stopping_) return absl::UnavailableError(kShuttingDown);
  if (waiting_bytes_ > 0 && waiting.bytes > 0 && waiting_bytes_ + waiting.bytes > kMaxEventBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "coordinator has ", waiting_bytes_, " bytes of events waiting, at most ", kMaxEventBytes));
  }
  if (events_.size() >= limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("coordinator has ", events_.size(), " events waiting, at most ", limit));
  }
  waiting_bytes_ += waiting.bytes;
  events_.push_back(std::move(waiting));
  wake_.NotifyAll();
  return absl::OkStatus();
}

absl::Status MachineLoop::Post(Event event, size_t bytes) {
  return Enqueue({std::move(event), bytes}, kMaxEvents);
}

void MachineLoop::PostAlways(Event event) {
  // A stopped loop needs no more events.
  Enqueue({std::move(event), 0}, std::numeric_limits<size_t>::max()).IgnoreError();
}

void MachineLoop::Submit(CallId call, Request request, Sink sink) {
  const absl::Status posted = Post([this, call, request, sink](StepMachine& machine, absl::Time) {
    sinks_[call] = sink;
    request(machine, call);
  });
  if (!posted.ok()) sink(AwaitFailed{call, posted, ""});
}

void MachineLoop::End(CallId call, const absl::Status& why) {
  PostAlways([this, call, why](StepMachine& machine, absl::Time) {
    machine.CancelCall(call);
    ToSink(call, true, AwaitFailed{call, why, ""});
  });
}

void MachineLoop::Cancel(CallId call) {
  End(call, absl::CancelledError("cancelled by the caller"));
}

void MachineLoop::Run() {
  while (true) {
    std::deque<Waiting> events;
    {
      MutexLock lock(mu_);
      while (events_.empty() && !stopping_) {
        const absl::Duration wait = wake_at_ - SteadyNow();
        if (wait <= absl::ZeroDuration()) break;
        wake_.WaitFor(mu_, wait);
      }
      events.swap(events_);
      // Run the queued events first: each request among them has a caller that waits for an answer.
      if (stopping_ && events.empty()) return;
    }
    for (Waiting& waiting : events) {
      waiting.event(*machine_, SteadyNow());
      // Release what the event holds now.
      waiting.event = nullptr;
      Dispatch();
      MutexLock lock(mu_);
      waiting_bytes_ -= waiting.bytes;
    }
    if (const absl::Time now = SteadyNow(); now >= wake_at_) {
      machine_->Tick(now);
      Dispatch();
    }
  }
}

void MachineLoop::ToSink(CallId call, bool last, CoordinatorAction action) {
  const auto it = sinks_.find(call);
  if (it == sinks_.end()) return;
  const Sink sink = it->second;
  if (last) sinks_.erase(it);
  sink(std::move(action));
}

void MachineLoop::Dispatch() {
  for (CoordinatorAction& action : machine_->TakeActions()) {
    std::visit(Overloaded{
                   [this](SendToShard& send) {
                     const auto body = send.content().body_case();
                     const bool restore = send.content().plan().has_restore() ||
                                          send.content().decision().plan().has_restore();
                     sender_(std::move(send));
                     PassSent(body, restore);
                   },
                   [this](ReadRecord& read) {
                     if (reader_) reader_(read.shard, read.position);
                   },
                   [this](ReadAwaited& read) {
                     if (awaited_reader_) awaited_reader_(read);
                   },
                   [this](FinishCheckpoint& finish) {
                     if (finisher_) finisher_(std::move(finish));
                   },
                   [this](WakeAt& wake) { wake_at_ = wake.time; },
                   [this](AwaitEvent& event) {
                     PassAnnounced(event.event->message);
                     const bool last = event.last;
                     ToSink(event.call, last, std::move(event));
                   },
                   [this](auto& reply) {
                     PassReplied(reply);
                     ToSink(reply.call, true, std::move(reply));
                   },
               },
               action);
  }
  if (observer_) observer_(*machine_);
}

}  // namespace kaon::coordinator
