// Runs one worker's session: makes the calls it asks for and feeds it their results. Shared by the
// worker and the calls under way; everything happens on the client's event loop.
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

  // `process_nonce` is random and not 0; one per worker object, which draws others from it.
  WorkerDriver(std::shared_ptr<const JobContext> job, uint32_t rank, uint64_t process_nonce);

  // One at a time; `done` is called once, unless Abandon comes before.
  void Join(OnJoined done);
  // Pushes with `pusher` as the session says. The caller closes it.
  void Begin(const StepShare& share, std::shared_ptr<StepPusher> pusher, OnRecord done);

  // Cancels the Join or Begin that is under way.
  void Abandon();

  // `rewound` is called on the loop whenever a step ends because its timeline is over, before the
  // step does. Before any Begin.
  void OnRewound(std::function<void(const Joined&)> rewound) { on_rewound_ = std::move(rewound); }

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
  // Runs `input` on the loop, then what the session makes of it.
  void Post(std::function<void(WorkerDriver&)> input);

  // Shared with the whole job.
  const std::shared_ptr<const JobContext> job_;
  const uint32_t rank_;
  WorkerSession session_;

  // Of the Join or Begin that is under way.
  OnJoined on_joined_;
  OnRecord on_record_;
  std::function<void(const Joined&)> on_rewound_;
  std::shared_ptr<StepPusher> pusher_;

  // Coordinator calls and pushes to be cancelled by number.
  std::map<uint64_t, std::shared_ptr<OutgoingCall>> calls_;
  std::map<uint64_t, uint32_t> pushes_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_WORKER_DRIVER_H_
