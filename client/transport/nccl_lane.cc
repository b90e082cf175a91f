#include "client/transport/nccl_lane.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/nccl/channel_bug.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

namespace {

constexpr absl::Duration kMaxRetryAfter = absl::Hours(1);
// More slots than a shard offers by default only cost memory.
constexpr uint32_t kMaxSlots = 16;
// Sessions whose memory NCCL may still use, before no other one is opened.
constexpr size_t kMaxEnding = 2;

// Interval of asking for an event of a tensor. It adds little to the time of a gradient.
constexpr absl::Duration kEventTick = absl::Microseconds(200);

using kernels::ChannelBug;
using kernels::LinkSession;

absl::Status NotTheTurn() {
  return absl::UnavailableError("the NCCL session has ended, or another push uses it");
}

}  // namespace

NcclLaneUser::NcclLaneUser()
    : number_([] {
        static std::atomic<uint64_t> last = 0;
        return ++last;
      }()) {}

struct NcclLane::Session {
  Session(std::shared_ptr<kernels::DeviceLink> of, const LinkSession::Options& options)
      : link(std::move(of)), state(*link, options) {}
  ~Session() {
    if (!memory.empty()) link->Free(memory);
  }
  // Returns a free slot, or the number of slots.
  size_t FreeSlot() const {
    return static_cast<size_t>(std::find(used.begin(), used.end(), false) - used.begin());
  }
  kernels::Region Slot(size_t slot, uint64_t bytes) const {
    return memory.Sub(slot * proto::kMaxChunkBytes, bytes);
  }

  const std::shared_ptr<kernels::DeviceLink> link;
  // Counts the sessions that still have memory.
  std::shared_ptr<const int> in_memory;
  uint64_t number = 0;
  LinkSession state;
  kernels::Region memory;
  // One for each slot.
  std::vector<bool> used;
  // A slot is free again whose push was replaced before it sent.
  bool slot_given_back = false;
  // Of receives, one for each slot.
  std::vector<Arrival> arrivals;
  // Transfers that have begun.
  uint64_t begun = 0;
  // Transfers that are done.
  uint64_t done = 0;
};

NcclLane::NcclLane(Options options)
    : options_(std::move(options)),
      retry_after_(options_.retry_after),
      thread_([this] { Run(); }) {}

NcclLane::~NcclLane() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

NcclLane::Turn NcclLane::TakeTurn(const std::shared_ptr<NcclLaneUser>& user, absl::Status* why) {
  MutexLock lock(mu_);
  if (user_key_ != user.get()) {
    // A push that is given up may ask once more.
    if (user_key_ != nullptr && user->number() < user_number_) {
      passed_over_ = user;
      return Turn::kLater;
    }
    if (used_) FailLocked("another push began");
    ForgetUserLocked();
    user_ = user;
    user_key_ = user.get();
    user_number_ = user->number();
    // Nobody looks at an idle session: the shard may have ended it, or have been restarted.
    Told nobody;
    AdvanceLocked(&nobody);
    if (!nobody.soon.empty()) {
      call_soon_.swap(nobody.soon);
      call_at_ = SteadyNow();
    }
  }
  waits_ = true;
  // The rest of this push belongs to its next stream.
  if (!ended_.ok()) return Turn::kLater;
  if (session_ == nullptr) {
    if (user_is_refused_ || SteadyNow() < refused_until_) {
      waits_ = false;
      *why = refused_;
      return Turn::kNever;
    }
    wants_session_ = true;
    changed_.NotifyAll();
    return Turn::kLater;
  }
  if (session_->state.state() != LinkSession::State::kReady) return Turn::kLater;
  if (session_->FreeSlot() == session_->used.size()) return Turn::kLater;
  waits_ = false;
  return Turn::kNow;
}

void NcclLane::CallSoon(const std::shared_ptr<NcclLaneUser>& user) {
  MutexLock lock(mu_);
  call_soon_.push_back(user);
  call_at_ = std::min(call_at_, SteadyNow() + kEventTick);
  changed_.NotifyAll();
}

absl::StatusOr<v1::NcclTransfer> NcclLane::Send(const NcclLaneUser* user,
                                                const std::vector<ChunkToSend>& chunks) {
  std::shared_ptr<Session> session;
  size_t slot = 0;
  {
    MutexLock lock(mu_);
    if (user_key_ != user || session_ == nullptr) return NotTheTurn();
    session = session_;
    slot = session->FreeSlot();
    CHECK_LT(slot, session->used.size()) << "a turn was given without a free slot";
    session->used[slot] = true;
  }
  // Copied, so that the caller's memory never waits for an abort.
  uint64_t bytes = 0;
  for (const ChunkToSend& chunk : chunks) {
    if (chunk.ready_event != nullptr && !Has(ChannelBug::kEventIgnored)) {
      session->link->WaitFor(chunk.ready_event);
    }
    kernels::ConstRegion from(kernels::Space::kDevice, chunk.payload.data(), chunk.payload.size());
    session->link->Copy(from, session->Slot(slot, bytes + from.size()).Sub(bytes, from.size()));
    bytes += from.size();
  }
  const kernels::Region memory = session->Slot(slot, bytes);
  v1::NcclTransfer transfer;
  transfer.set_digest(session->link->Digest(chunks.front().key.first, memory));
  MutexLock lock(mu_);
  // A send of a replaced push would have no header, and all later ones would have the wrong number.
  if (user_key_ != user || session_ != session) {
    session->used[slot] = false;
    session->slot_given_back = true;
    changed_.NotifyAll();
    return NotTheTurn();
  }
  const absl::Status sent = session->state.Send(slot, memory, SteadyNow());
  // The thread tells the user of a session that has ended.
  changed_.NotifyAll();
  if (!sent.ok()) return sent;
  if (Has(ChannelBug::kSlotReusedWhileSent)) session->used[slot] = false;
  used_ = true;
  transfer.set_session(session->number);
  transfer.set_sequence(++session->begun);
  return transfer;
}

absl::StatusOr<NcclLane::Joined> NcclLane::Join(const NcclLaneUser* user) {
  MutexLock lock(mu_);
  if (user_key_ != user || session_ == nullptr) return NotTheTurn();
  joined_ = true;
  return Joined{session_->number, session_->used.size()};
}

absl::Status NcclLane::Receive(const NcclLaneUser* user, const v1::NcclTransfer& announced,
                               uint64_t bytes, Arrived arrived) {
  MutexLock lock(mu_);
  if (user_key_ != user || session_ == nullptr) return NotTheTurn();
  const size_t slot = session_->FreeSlot();
  const bool is_next =
      announced.session() == session_->number && announced.sequence() == session_->begun + 1;
  if ((!is_next && !Has(ChannelBug::kPulledSequenceIgnored)) || slot == session_->used.size() ||
      bytes < 1 || bytes > proto::kMaxChunkBytes) {
    return absl::InternalError(absl::StrCat(
        "transfer ", announced.sequence(), " of NCCL session ", announced.session(), ", ", bytes,
        " bytes, expecting ", session_->begun + 1, " of session ", session_->number, ", 1 .. ",
        proto::kMaxChunkBytes, " bytes, and a free slot"));
  }
  const kernels::Region memory = session_->Slot(slot, bytes);
  const absl::Status posted = session_->state.Receive(slot, memory, SteadyNow());
  // The thread tells the user of a session that has ended.
  changed_.NotifyAll();
  if (!posted.ok()) return posted;
  session_->used[slot] = true;
  session_->arrivals[slot] = {nullptr, slot, memory, std::move(arrived)};
  ++session_->begun;
  used_ = true;
  return absl::OkStatus();
}

bool NcclLane::has_session() const {
  MutexLock lock(mu_);
  return session_ != nullptr && session_->state.state() == LinkSession::State::kReady;
}

void NcclLane::HandOver(std::vector<Arrival>& arrivals) {
  for (const Arrival& arrival : arrivals) {
    const std::function<void()> freed = arrival.arrived(arrival.memory);
    {
      MutexLock lock(mu_);
      arrival.session->used[arrival.slot] = false;
    }
    if (freed != nullptr) freed();
  }
}

void NcclLane::Release(const NcclLaneUser* user, const absl::Status& result) {
  MutexLock lock(mu_);
  if (user_key_ != user) return;
  // Small sends are done before their receives: only the shard's answer tells how it went.
  const bool used = used_ || !ended_.ok();
  if (used && result.ok()) retry_after_ = options_.retry_after;
  if (used && (absl::IsUnavailable(result) || absl::IsDataLoss(result))) RefuseLocked(result);
  // The shard may have ended the session of a pull that carried nothing. An idle end may not learn
  // of that.
  const bool in_doubt = used_ || (joined_ && !absl::IsCancelled(result));
  if (in_doubt && !result.ok() && !Has(ChannelBug::kSessionKeptAfterFailure))
    FailLocked("a push or pull ended early");
  ForgetUserLocked();
  changed_.NotifyAll();
}

void NcclLane::ForgetUserLocked() {
  user_key_ = nullptr;
  user_.reset();
  used_ = false;
  joined_ = false;
  waits_ = false;
  user_is_refused_ = false;
  tell_at_ = absl::InfiniteFuture();
  ended_ = absl::OkStatus();
}

void NcclLane::FailLocked(const std::string& why) {
  used_ = false;
  if (session_ == nullptr) return;
  session_->state.Fail(why, SteadyNow());
  VLOG(1) << options_.name << ": NCCL session " << session_->number << " ends: " << why;
  ending_.push_back(std::move(session_));
  session_ = nullptr;
  changed_.NotifyAll();
}

void NcclLane::RefuseLocked(const absl::Status& why) {
  refused_ = why;
  user_is_refused_ = true;
  refused_until_ = SteadyNow() + retry_after_;
  retry_after_ = std::max(retry_after_, std::min(2 * retry_after_, kMaxRetryAfter));
  LOG(INFO) << options_.name << ": tensors travel over the network: " << why;
}

absl::StatusOr<std::shared_ptr<NcclLane::Session>> NcclLane::NewSession() {
  KAON_ASSIGN_OR_RETURN(const v1::OpenNcclSessionResponse opened, options_.open());
  kernels::UniqueId id;
  if (opened.unique_id().size() != id.size() || opened.slots() < 1 ||
      opened.slot_bytes() < proto::kMaxChunkBytes) {
    return absl::InternalError(
        absl::StrCat("the shard offers NCCL with an id of ", opened.unique_id().size(),
                     " bytes and ", opened.slots(), " slots of ", opened.slot_bytes(),
                     ", expecting ", id.size(), " and 1 of ", proto::kMaxChunkBytes));
  }
  std::memcpy(id.data(), opened.unique_id().data(), id.size());
  auto session = std::make_shared<Session>(options_.link, options_.session);
  session->in_memory = in_memory_;
  session->number = opened.session();
  session->used.resize(std::min(opened.slots(), kMaxSlots));
  session->arrivals.resize(session->used.size());
  KAON_ASSIGN_OR_RETURN(session->memory,
                        options_.link->Allocate(session->used.size() * proto::kMaxChunkBytes));
  KAON_RETURN_IF_ERROR(session->state.Start(id, 1, SteadyNow()));
  return session;
}

void NcclLane::Open() {
  absl::StatusOr<std::shared_ptr<Session>> session = NewSession();
  MutexLock lock(mu_);
  wants_session_ = false;
  if (!session.ok()) return RefuseLocked(session.status());
  session_ = *std::move(session);
}

bool NcclLane::AwaitsOpenLocked() const {
  return wants_session_ && session_ == nullptr && !stopping_;
}

void NcclLane::Run() {
  while (true) {
    bool open = false;
    bool stop = false;
    Told told;
    {
      MutexLock lock(mu_);
      const bool under_way = AdvanceLocked(&told);
      stop = stopping_;
      open = AwaitsOpenLocked();
      if (open && static_cast<size_t>(in_memory_.use_count()) > kMaxEnding) {
        open = false;
        wants_session_ = false;
        RefuseLocked(absl::ResourceExhaustedError("earlier NCCL sessions are being aborted"));
        told.user = user_.lock();
      }
      if (!open && !stop && told.nothing()) WaitLocked(under_way);
    }
    if (stop) return;
    if (open) {
      Open();
      // A refused user asks again at once, a connecting one when the session is ready.
      MutexLock lock(mu_);
      if (session_ == nullptr) told.user = user_.lock();
    }
    HandOver(told.arrivals);
    for (const auto& one : told.soon) {
      if (const auto user = one.lock()) user->OnTurn();
    }
    if (told.user == nullptr) continue;
    told.ended.ok() ? told.user->OnTurn() : told.user->OnSessionEnded(told.ended);
  }
}

void NcclLane::WaitLocked(bool under_way) {
  const absl::Duration left = std::min(tell_at_, call_at_) - SteadyNow();
  changed_.WaitFor(mu_, under_way ? std::min(options_.tick, left) : left);
}

bool NcclLane::AdvanceLocked(Told* told) {
  if (SteadyNow() >= tell_at_) {
    tell_at_ = absl::InfiniteFuture();
    told->user = user_.lock();
    told->ended = ended_;
  }
  if (SteadyNow() >= call_at_) {
    call_at_ = absl::InfiniteFuture();
    told->soon.swap(call_soon_);
  }
  if (session_ != nullptr) {
    const bool was_ready = session_->state.state() == LinkSession::State::kReady;
    const std::vector<uint64_t> done = session_->state.Advance(SteadyNow());
    for (const uint64_t slot : done) {
      Arrival& arrival = session_->arrivals[slot];
      session_->used[slot] = arrival.arrived != nullptr;
      if (arrival.arrived == nullptr) continue;
      told->arrivals.push_back(std::exchange(arrival, Arrival()));
      told->arrivals.back().session = session_;
    }
    session_->done += done.size();
    const bool is_ready = session_->state.state() == LinkSession::State::kReady;
    if (session_->state.ended()) {
      const absl::Status why = session_->state.failure();
      LOG(WARNING) << options_.name << ": NCCL session " << session_->number << " ended after "
                   << session_->done << " transfers: " << why.message();
      // A session that carried nothing would fail again. Of one that carried some of a push,
      // Release tells.
      if (session_->done == 0 && !used_) RefuseLocked(why);
      if (used_) {
        ended_ = why;
        tell_at_ = SteadyNow() + options_.grace;
      } else {
        told->user = user_.lock();
      }
      FailLocked("");
    } else if (std::exchange(session_->slot_given_back, false) || !done.empty() || !was_ready) {
      if (waits_ && is_ready) told->user = user_.lock();
    }
  }
  if (user_key_ == nullptr && told->user == nullptr) {
    told->user = std::exchange(passed_over_, {}).lock();
  }
  bool under_way =
      session_ != nullptr && (session_->state.state() == LinkSession::State::kConnecting ||
                              session_->state.num_under_way() > 0);
  for (auto ending = ending_.begin(); ending != ending_.end();) {
    LinkSession& state = (*ending)->state;
    state.Advance(SteadyNow());
    if (state.state() == LinkSession::State::kRevoking && !stopping_) {
      under_way = true;
      ++ending;
      continue;
    }
    if (state.state() != LinkSession::State::kClosed) {
      options_.aborts->Add(state.comm(), [session = *ending] {});
    }
    ending = ending_.erase(ending);
  }
  if (stopping_ && session_ != nullptr) {
    options_.aborts->Add(session_->state.comm(), [session = session_] {});
    session_ = nullptr;
  }
  return under_way;
}

}  // namespace kaon::client
