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
// Connections whose reading is remembered.
constexpr size_t kMostReaders = 1024;

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

absl::StatusOr<PullAdmission::PullId> PullAdmission::Open(const Source& source,
                                                          uint64_t request_bytes,
                                                          std::function<void()> on_unread) {
  MutexLock lock(mu_);
  const auto found = peers_.find(source.peer);
  const uint64_t held = found == peers_.end() ? 0 : found->second.request_bytes;
  const bool all_fit = request_bytes_ + request_bytes <= limits_.request_bytes;
  const bool peers_fit = held + request_bytes <= limits_.request_bytes / 2;
  if (!pulls_.empty() && (!all_fit || (held > 0 && !peers_fit))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "pulls under way hold ", request_bytes_, " bytes, ", held, " of them this peer's, and ",
        request_bytes, " more are asked for; all may hold ", limits_.request_bytes,
        ", and the further pulls of one peer half of it: end a pull, or raise the shard's "
        "--host-memory-bytes"));
  }
  const PullId id = next_pull_++;
  pulls_[id] = {source, request_bytes, std::move(on_unread), kUnknown, nullptr, {}};
  request_bytes_ += request_bytes;
  Peer& one = peers_[source.peer];
  one.request_bytes += request_bytes;
  ++one.pulls;
  return id;
}

bool PullAdmission::HasRoomLocked(const Peer& peer, Standing standing) const {
  const size_t most = std::max<size_t>(1, limits_.messages / 2);
  const size_t of_unknown = peer.messages[kUnknown];
  return sending_.size() < limits_.messages && peer.messages[kReader] + of_unknown < most &&
         (standing == kReader || of_unknown < std::max<size_t>(1, most / 2));
}

void PullAdmission::StartLocked(PullId id) {
  Pull& pull = pulls_.at(id);
  pull.sending_since = SteadyNow();
  sending_.insert(id);
  ++peers_.at(pull.source.peer).messages[pull.standing];
}

void PullAdmission::StopLocked(PullId id) {
  if (sending_.erase(id) == 0) return;
  const Pull& pull = pulls_.at(id);
  --peers_.at(pull.source.peer).messages[pull.standing];
  if (!turns_.empty()) changed_.NotifyAll();
}

void PullAdmission::NoteReaderLocked(const std::string& connection, bool reads) {
  if (!reads) {
    readers_.erase(connection);
    return;
  }
  readers_[connection] = next_reader_++;
  if (readers_.size() <= kMostReaders) return;
  readers_.erase(
      std::min_element(readers_.begin(), readers_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; }));
}

bool PullAdmission::BeginMessage(PullId id, std::function<void()> ready) {
  MutexLock lock(mu_);
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) return false;
  Pull& pull = found->second;
  Peer& peer = peers_.at(pull.source.peer);
  pull.standing = readers_.contains(pull.source.connection) ? kReader : kUnknown;
  std::deque<PullId>& waiting = peer.waiting[pull.standing];
  if (waiting.empty() && HasRoomLocked(peer, pull.standing)) {
    StartLocked(id);
    return true;
  }
  pull.ready = std::move(ready);
  if (!peer.waits()) turns_.push_back(pull.source.peer);
  waiting.push_back(id);
  changed_.NotifyAll();
  return false;
}

void PullAdmission::EndMessage(PullId id) {
  MutexLock lock(mu_);
  if (!sending_.contains(id)) return;
  const Pull& pull = pulls_.at(id);
  const bool in_time = SteadyNow() <= pull.sending_since + limits_.most_unread;
  NoteReaderLocked(pull.source.connection, in_time);
  StopLocked(id);
}

void PullAdmission::Close(PullId id) {
  MutexLock lock(mu_);
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) return;
  StopLocked(id);
  const std::string name = found->second.source.peer;
  Peer& peer = peers_.at(name);
  std::deque<PullId>& waiting = peer.waiting[found->second.standing];
  const auto waits = std::find(waiting.begin(), waiting.end(), id);
  if (waits != waiting.end()) {
    waiting.erase(waits);
    if (!peer.waits()) turns_.erase(std::find(turns_.begin(), turns_.end(), name));
  }
  peer.request_bytes -= found->second.request_bytes;
  request_bytes_ -= found->second.request_bytes;
  if (--peer.pulls == 0) peers_.erase(name);
  pulls_.erase(found);
}

std::optional<PullAdmission::PullId> PullAdmission::NextLocked(Peer& peer) {
  for (const Standing standing : {kReader, kUnknown}) {
    std::deque<PullId>& waiting = peer.waiting[standing];
    if (waiting.empty() || !HasRoomLocked(peer, standing)) continue;
    const PullId id = waiting.front();
    waiting.pop_front();
    return id;
  }
  return std::nullopt;
}

void PullAdmission::TakeReadyLocked(Calls* calls) {
  for (size_t tried = 0; tried < turns_.size() && sending_.size() < limits_.messages;) {
    const std::string name = turns_.front();
    turns_.pop_front();
    Peer& peer = peers_.at(name);
    const std::optional<PullId> id = NextLocked(peer);
    if (peer.waits()) turns_.push_back(name);
    if (!id.has_value()) {
      ++tried;
      continue;
    }
    StartLocked(*id);
    calls->push_back(std::exchange(pulls_.at(*id).ready, nullptr));
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
      NoteReaderLocked(pull.source.connection, false);
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
