#include "client/transport/shm_lane.h"

#include <utility>

namespace kaon::client {

ShmLane::ShmLane(Open open, Refused refused)
    : open_(std::move(open)), refused_(std::move(refused)), thread_([this] { Run(); }) {}

ShmLane::~ShmLane() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool ShmLane::Start(const std::shared_ptr<ShmCall>& call, bool may_open) {
  MutexLock lock(mu_);
  if (busy_ || (!has_session_ && !may_open)) return false;
  busy_ = true;
  next_ = call;
  changed_.NotifyAll();
  return true;
}

bool ShmLane::has_session() const {
  MutexLock lock(mu_);
  return has_session_;
}

void ShmLane::Run() {
  while (true) {
    std::shared_ptr<ShmCall> call;
    {
      MutexLock lock(mu_);
      while (next_ == nullptr && !stopping_) changed_.Wait(mu_);
      if (next_ == nullptr) return;
      call = std::move(next_);
    }
    const absl::Status refused = CarryOut(*call);
    {
      // Set before the caller learns of the end, because it may start the next call at once.
      MutexLock lock(mu_);
      busy_ = false;
      has_session_ = link_ != nullptr;
    }
    if (!refused.ok()) refused_(*call, refused);
    call->End();
  }
}

absl::Status ShmLane::CarryOut(ShmCall& call) {
  // The shard ends sessions that nobody uses, and all sessions when it stops.
  if (link_ != nullptr && !link_->Await(absl::ZeroDuration()).ok()) link_.reset();
  if (link_ == nullptr) {
    absl::StatusOr<std::unique_ptr<proto::ShmLink>> opened = open_();
    if (!opened.ok()) return opened.status();
    link_ = *std::move(opened);
    number_ = 0;
  }
  if (!call.Run(*link_, ++number_).ok()) link_.reset();
  return absl::OkStatus();
}

}  // namespace kaon::client
