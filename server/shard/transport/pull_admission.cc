#include "server/shard/transport/pull_admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/tensor_stream.h"

namespace kaon::shard {

namespace {

constexpr uint64_t kLeastBytes = uint64_t{4} << 20;
constexpr uint64_t kMostBytes = uint64_t{64} << 20;
// Of a call in gRPC, and of the pin of one parameter, as measured.
constexpr uint64_t kCallBytes = uint64_t{16} << 10;
constexpr uint64_t kPinBytes = 72;

}  // namespace

PullAdmission::Limits PullAdmission::Share(uint64_t memory_bytes) {
  Limits limits;
  limits.request_bytes = std::clamp(memory_bytes / 32, kLeastBytes, kMostBytes);
  limits.messages = limits.request_bytes / proto::kMaxChunkBytes;
  return limits;
}

uint64_t PullAdmission::RequestBytes(uint64_t message_bytes, int num_parameters) {
  return kCallBytes + 2 * message_bytes + kPinBytes * static_cast<uint64_t>(num_parameters);
}

PullAdmission::PullAdmission(const Limits& limits) : limits_(limits), thread_([this] { Run(); }) {}

PullAdmission::~PullAdmission() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

absl::StatusOr<PullAdmission::PullId> PullAdmission::Open(const std::string& peer,
                                                          uint64_t request_bytes,
                                                          std::function<void()> on_unread) {
  MutexLock lock(mu_);
  const auto found = peers_.find(peer);
  const uint64_t held = found == peers_.end() ? 0 : found->second.request_bytes;
  const bool all_fit = request_bytes_ + request_bytes <= limits_.request_bytes;
  const bool peers_fit = held + request_bytes <= limits_.request_bytes / 2;
  if (!pulls_.empty() && (!all_fit || (held > 0 && !peers_fit))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "pulls under way hold ", request_bytes_, " bytes, ", held, " of them this peer's, and ",
        request_bytes, " more are asked for; all may hold ", limits_.request_bytes,
        ", and one peer half of it: end a pull, or raise the shard's --host-memory-bytes"));
  }
  const PullId id = next_pull_++;
  pulls_[id] = {peer, request_bytes, std::move(on_unread), nullptr, {}};
  request_bytes_ += request_bytes;
  Peer& one = peers_[peer];
  one.request_bytes += request_bytes;
  ++one.pulls;
  return id;
}

bool PullAdmission::HasRoomLocked(const Peer& peer) const {
  return sending_.size() < limits_.messages &&
         peer.messages < std::max<size_t>(1, limits_.messages / 2);
}

void PullAdmission::StartLocked(PullId id) {
  Pull& pull = pulls_.at(id);
  pull.sending_since = SteadyNow();
  sending_.insert(id);
  ++peers_.at(pull.peer).messages;
}

void PullAdmission::StopLocked(PullId id) {
  if (sending_.erase(id) == 0) return;
  --peers_.at(pulls_.at(id).peer).messages;
  if (!turns_.empty()) changed_.NotifyAll();
}

bool PullAdmission::BeginMessage(PullId id, std::function<void()> ready) {
  MutexLock lock(mu_);
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) return false;
  Peer& peer = peers_.at(found->second.peer);
  if (peer.waiting.empty() && HasRoomLocked(peer)) {
    StartLocked(id);
    return true;
  }
  found->second.ready = std::move(ready);
  if (peer.waiting.empty()) turns_.push_back(found->second.peer);
  peer.waiting.push_back(id);
  changed_.NotifyAll();
  return false;
}

void PullAdmission::EndMessage(PullId id) {
  MutexLock lock(mu_);
  StopLocked(id);
}

void PullAdmission::Close(PullId id) {
  MutexLock lock(mu_);
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) return;
  StopLocked(id);
  const std::string name = found->second.peer;
  Peer& peer = peers_.at(name);
  const auto waits = std::find(peer.waiting.begin(), peer.waiting.end(), id);
  if (waits != peer.waiting.end()) {
    peer.waiting.erase(waits);
    if (peer.waiting.empty()) turns_.erase(std::find(turns_.begin(), turns_.end(), name));
  }
  peer.request_bytes -= found->second.request_bytes;
  request_bytes_ -= found->second.request_bytes;
  if (--peer.pulls == 0) peers_.erase(name);
  pulls_.erase(found);
}

void PullAdmission::TakeReadyLocked(Calls* calls) {
  for (size_t tried = 0; tried < turns_.size() && sending_.size() < limits_.messages;) {
    const std::string name = turns_.front();
    turns_.pop_front();
    Peer& peer = peers_.at(name);
    if (!HasRoomLocked(peer)) {
      turns_.push_back(name);
      ++tried;
      continue;
    }
    const PullId id = peer.waiting.front();
    peer.waiting.pop_front();
    if (!peer.waiting.empty()) turns_.push_back(name);
    StartLocked(id);
    calls->push_back(std::exchange(pulls_.at(id).ready, nullptr));
    tried = 0;
  }
}

absl::Time PullAdmission::TakeUnreadLocked(absl::Time now, Calls* calls) {
  absl::Time next = absl::InfiniteFuture();
  if (turns_.empty()) return next;
  for (const PullId id : sending_) {
    Pull& pull = pulls_.at(id);
    if (!pull.on_unread) continue;
    const absl::Time due = pull.sending_since + limits_.most_unread;
    if (due > now) {
      next = std::min(next, due);
    } else {
      calls->push_back(std::exchange(pull.on_unread, nullptr));
    }
  }
  return next;
}

void PullAdmission::Run() {
  MutexLock lock(mu_);
  while (!stopped_) {
    Calls calls;
    TakeReadyLocked(&calls);
    const absl::Time now = SteadyNow();
    const absl::Time next = TakeUnreadLocked(now, &calls);
    if (calls.empty()) {
      changed_.WaitFor(mu_, next - now);
      continue;
    }
    mu_.Unlock();
    for (const auto& call : calls) call();
    // They may be the last owners of their pulls.
    calls.clear();
    mu_.Lock();
  }
}

size_t PullAdmission::num_pulls() const {
  MutexLock lock(mu_);
  return pulls_.size();
}

size_t PullAdmission::num_messages() const {
  MutexLock lock(mu_);
  return sending_.size();
}

}  // namespace kaon::shard
