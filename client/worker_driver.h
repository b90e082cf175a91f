// Runs one worker's session: makes the calls that it requests and passes it their results. Shared
// by the worker and its open calls; everything runs on the client's event loop.
#ifndef KAON_CLIENT_WORKER_DRIVER_H_
#define KAON_CLIENT_WORKER_DRIVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/job_context.h"
#include "client/step_pusher.h"
#include "client/transport/coordinator_client.h"
#include "client/worker_session.h"

namespace kaon::client {

class WorkerDriver : public std::enable_shared_from_this<WorkerDriver> {
 public:
  using OnJoined = std::function<void(const absl::StatusOr<Joined>&)>;
  using OnRecord = std::function<void(const absl::StatusOr<v1::StepRecord>&)>;

  // `process_nonce` must be random and not 0. Each worker object has one and draws later ones from
  // it.
  WorkerDriver(std::shared_ptr<const JobContext> job, uint32_t rank, uint64_t process_nonce);

  // Starts a join; only one Join or Begin may run at a time. Calls `done` once, unless Abandon
  // comes first.
  void Join(OnJoined done);
  // Begins a step and pushes with `pusher` as the session requests. The caller closes `pusher`.
  void Begin(const StepShare& share, std::shared_ptr<StepPusher> pusher, OnRecord done);

  // Cancels the current Join or Begin.
  void Abandon();

  // Sets a callback for steps that end because their timeline is over. It runs on the loop before
  // such a step ends. Call this before any Begin.
  void OnRewound(std::function<void(const Joined&)> rewound) { on_rewound_ = std::move(rewound); }

  // Returns what the current Join or Begin waits for, and of which job and rank. Call it on the
  // loop.
  std::string WaitsFor() const;

  uint32_t rank() const { return rank_; }

 private:
  void Act();
  void Do(const CallJoin& action);
  void Do(const CallBegin& action);
  void Do(const CallAwait& action);
  void Do(const StartPush& action);
  void Do(const CancelCalls& action);
  void Do(const WakeAt& action);
  void Do(const JoinOver& action);
  void Do(const StepOver& action);
  // Runs `input` on the loop, then the actions that the session requests.
  void Post(std::function<void(WorkerDriver&)> input);

  // Shared with the whole job.
  const std::shared_ptr<const JobContext> job_;
  const uint32_t rank_;
  WorkerSession session_;

  // Callbacks of the current Join or Begin.
  OnJoined on_joined_;
  OnRecord on_record_;
  std::function<void(const Joined&)> on_rewound_;
  std::shared_ptr<StepPusher> pusher_;

  // Open coordinator calls and pushes by call number, for cancelling.
  std::map<uint64_t, std::shared_ptr<OutgoingCall>> calls_;
  std::map<uint64_t, uint32_t> pushes_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_WORKER_DRIVER_H_
