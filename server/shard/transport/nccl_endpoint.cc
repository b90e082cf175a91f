#include "server/shard/transport/nccl_endpoint.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/nccl/channel_bug.h"
#include "kernels/nccl/load_link.h"
#include "kernels/reduce/digest.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"
#include "server/auth/peer_identity.h"

namespace kaon::shard {

using kernels::ChannelBug;
using kernels::LinkSession;

namespace {

constexpr absl::Duration kMaxUnjoinedDelay = absl::Hours(1);
// Workers of one job at most (proto: world_size).
constexpr size_t kMaxPairs = 4096;

}  // namespace

struct NcclEndpoint::Session {
  Session(std::shared_ptr<kernels::DeviceLink> of, const LinkSession::Options& options)
      : link(std::move(of)), state(*link, options) {}
  ~Session() {
    if (!memory.empty()) link->Free(memory);
  }

  const std::shared_ptr<kernels::DeviceLink> link;
  uint64_t number = 0;
  Sender worker;
  // The shard sends.
  bool pulls = false;

  bool IsOf(const v1::OpenNcclSessionRequest& request) const {
    return worker.job == request.job() && worker.rank == request.rank() && pulls == request.pulls();
  }
  LinkSession state;
  kernels::Region memory;
  std::vector<Slot> slots;
  // Both ranks were seen in it.
  bool joined = false;
  bool noted_unjoined = false;
  // Time at which it was opened or last carried something.
  absl::Time busy_at;
  // Transfers that have begun.
  uint64_t transfers = 0;
  uint64_t bytes = 0;
  bool abort_asked = false;
};

struct NcclEndpoint::Work {
  // Keeps the memory of the slot.
  std::shared_ptr<Session> session;
  size_t slot = 0;
  Announced announced;
  Take take;
  Done done;
  // Why it was not done.
  absl::Status status;
};

std::unique_ptr<NcclEndpoint> NcclEndpoint::Start(std::shared_ptr<kernels::DeviceLink> link,
                                                  const std::string& network, int device,
                                                  const std::string& memory_tier) {
  if (link == nullptr && network.empty()) return nullptr;
  if (link == nullptr) {
    kernels::LinkOptions wanted;
    wanted.network = network;
    wanted.device = device;
    absl::StatusOr<std::shared_ptr<kernels::DeviceLink>> loaded = kernels::LoadLink(wanted);
    if (!loaded.ok()) {
      LOG(WARNING) << "tensors travel over gRPC: " << loaded.status();
      return nullptr;
    }
    link = *std::move(loaded);
  }
  Options options;
  options.in_place = link->memory_tier() == memory_tier;
  LOG(INFO) << "transfers gradients and weights by " << link->name()
            << ", which neither encrypts nor authenticates, "
            << (options.in_place ? "in place" : "through host memory");
  return std::make_unique<NcclEndpoint>(std::move(link), options);
}

NcclEndpoint::NcclEndpoint(std::shared_ptr<kernels::DeviceLink> link, const Options& options)
    : link_(std::move(link)), options_(options), aborts_(link_), thread_([this] { Run(); }) {}

NcclEndpoint::~NcclEndpoint() { Stop(); }

void NcclEndpoint::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    for (const auto& session : sessions_) session->state.Fail("the shard stops", SteadyNow());
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

size_t NcclEndpoint::num_sessions() const {
  MutexLock lock(mu_);
  return sessions_.size();
}

std::vector<v1::NcclPair> NcclEndpoint::Pairs(const std::string& job) const {
  MutexLock lock(pairs_mu_);
  std::vector<v1::NcclPair> pairs;
  for (auto at = pairs_.lower_bound({job, 0}); at != pairs_.end() && at->first.first == job; ++at) {
    pairs.push_back(at->second);
  }
  return pairs;
}

void NcclEndpoint::NoteOpened(const Session& session) {
  // Pairs tells of gradients.
  if (session.pulls) return;
  const std::string& job = session.worker.job;
  MutexLock lock(pairs_mu_);
  if (pairs_.size() >= kMaxPairs) {
    for (auto at = pairs_.begin(); at != pairs_.end();) {
      at = at->first.first == job ? std::next(at) : pairs_.erase(at);
    }
  }
  v1::NcclPair& pair = pairs_[{job, session.worker.rank}];
  pair.set_rank(session.worker.rank);
  pair.set_session(session.number);
  pair.set_state("connecting");
  pair.set_sessions(pair.sessions() + 1);
}

void NcclEndpoint::Note(const Session& session, const std::function<void(v1::NcclPair&)>& change) {
  if (session.pulls) return;
  MutexLock lock(pairs_mu_);
  const auto pair = pairs_.find({session.worker.job, session.worker.rank});
  if (pair != pairs_.end()) change(pair->second);
}

void NcclEndpoint::NoteState(const Session& session, const char* state) {
  Note(session, [&session, state](v1::NcclPair& pair) {
    if (pair.session() == session.number) pair.set_state(state);
  });
}

absl::Status NcclEndpoint::CheckRoomLocked(const v1::OpenNcclSessionRequest& request) const {
  if (stopped_) return absl::UnavailableError("the shard stops");
  const auto of_rank =
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&request](const auto& session) { return session->IsOf(request); });
  if (static_cast<uint32_t>(of_rank) >= kMaxNcclSessionsOfRank) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", request.rank(), " has ", of_rank, " NCCL sessions, at most ",
                     kMaxNcclSessionsOfRank, ": an earlier one is still being aborted"));
  }
  const auto unjoined = unjoined_.find({request.job(), request.rank()});
  if (unjoined != unjoined_.end() && SteadyNow() < unjoined->second.refused_until) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", request.rank(), " did not join its last ", unjoined->second.sessions,
                     " NCCL sessions: the next one is in ",
                     absl::FormatDuration(absl::Ceil(unjoined->second.refused_until - SteadyNow(),
                                                     absl::Seconds(1)))));
  }
  if (num_unjoined_ >= options_.max_unjoined) {
    return absl::ResourceExhaustedError(absl::StrCat(
        num_unjoined_, " NCCL sessions were not joined, at most ", options_.max_unjoined,
        ": each keeps a thread and a socket until this shard is restarted"));
  }
  if (sessions_.size() >= options_.max_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.max_sessions, " NCCL sessions are in use"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::OpenNcclSessionResponse> NcclEndpoint::Open(
    const proto::Identity& peer, const v1::OpenNcclSessionRequest& request) {
  KAON_RETURN_IF_ERROR(auth::AuthorizeWorker(peer, request.job(), request.rank()));
  {
    MutexLock lock(mu_);
    // The worker asks again, when the abort has returned.
    if (sessions_.size() >= options_.max_sessions) EndLongestIdleLocked();
    KAON_RETURN_IF_ERROR(CheckRoomLocked(request));
  }
  const auto session = std::make_shared<Session>(link_, options_.session);
  session->worker = {request.job(), request.rank()};
  session->pulls = request.pulls();
  KAON_ASSIGN_OR_RETURN(session->memory, link_->Allocate(options_.slots * options_.slot_bytes));
  for (uint32_t i = 0; i < options_.slots; ++i) {
    session->slots.push_back(
        {session->memory.Sub(i * options_.slot_bytes, options_.slot_bytes), false, {}, {}, {}});
  }
  MutexLock lock(mu_);
  KAON_RETURN_IF_ERROR(CheckRoomLocked(request));
  // Last: NCCL listens for both ranks from here on, and nothing but their joining ends that.
  KAON_ASSIGN_OR_RETURN(const kernels::UniqueId id, link_->NewId());
  for (const auto& earlier : sessions_) {
    if (!earlier->IsOf(request)) continue;
    if (!earlier->joined) NoteUnjoinedLocked(*earlier);
    earlier->state.Fail("the worker opened another session", SteadyNow());
  }
  if (const absl::Status started = session->state.Start(id, 0, SteadyNow()); !started.ok()) {
    ++num_unjoined_;
    // The earlier session ends.
    changed_.NotifyAll();
    return started;
  }
  session->number = next_session_++;
  session->busy_at = SteadyNow();
  sessions_.push_back(session);
  NoteOpened(*session);
  changed_.NotifyAll();
  LOG(INFO) << "NCCL session " << session->number << " for " << auth::PeerName(peer) << " as rank "
            << request.rank() << (request.pulls() ? ", for pulls" : "");
  v1::OpenNcclSessionResponse response;
  response.set_session(session->number);
  response.set_unique_id(id.data(), id.size());
  response.set_slots(options_.slots);
  response.set_slot_bytes(options_.slot_bytes);
  return response;
}

void NcclEndpoint::NoteUnjoinedLocked(Session& session) {
  if (std::exchange(session.noted_unjoined, true)) return;
  ++num_unjoined_;
  Unjoined& of_rank = unjoined_[{session.worker.job, session.worker.rank}];
  // A worker that was restarted while it joined has one, and the next is for it.
  if (++of_rank.sessions < 2) return;
  const double doubled = std::ldexp(1.0, static_cast<int>(std::min(of_rank.sessions - 2, 30u)));
  of_rank.refused_until =
      SteadyNow() + std::min(doubled * options_.unjoined_delay, kMaxUnjoinedDelay);
}

void NcclEndpoint::EndLongestIdleLocked() {
  Session* longest = nullptr;
  for (const auto& session : sessions_) {
    // One at a time.
    if (session->state.ended()) return;
    const bool busy = std::any_of(session->slots.begin(), session->slots.end(),
                                  [](const Slot& one) { return one.used; });
    if (busy || !session->joined || SteadyNow() - session->busy_at < options_.min_idle) continue;
    if (longest == nullptr || session->busy_at < longest->busy_at) longest = session.get();
  }
  if (longest == nullptr) return;
  longest->state.Fail("it was idle for longest, and another worker needs room", SteadyNow());
  changed_.NotifyAll();
}

std::shared_ptr<NcclEndpoint::Session> NcclEndpoint::FindLocked(uint64_t number) const {
  for (const auto& session : sessions_) {
    if (session->number == number) return session;
  }
  return nullptr;
}

absl::Status NcclEndpoint::Receive(const Sender& sender, const Announced& announced, Take take,
                                   Done done) {
  const v1::NcclTransfer& transfer = announced.transfer;
  MutexLock lock(mu_);
  KAON_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                        UsableLocked(transfer.session(), sender, /*pulls=*/false));
  if (transfer.sequence() != session->transfers + 1 && !Has(ChannelBug::kSequenceIgnored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL session ", transfer.session(), ": transfer ", transfer.sequence(),
                     " announced, expecting ", session->transfers + 1));
  }
  KAON_ASSIGN_OR_RETURN(const size_t tag, FreeSlotLocked(*session, announced.bytes));
  Slot& slot = session->slots[tag];
  const absl::Status posted =
      session->state.Receive(tag, slot.memory.Sub(0, announced.bytes), SteadyNow());
  // On an error, the session has ended.
  changed_.NotifyAll();
  if (!posted.ok()) return posted;
  session->busy_at = SteadyNow();
  slot.used = true;
  slot.announced = announced;
  slot.take = std::move(take);
  slot.done = std::move(done);
  ++session->transfers;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<NcclEndpoint::Session>> NcclEndpoint::UsableLocked(
    uint64_t number, const Sender& worker, bool pulls) const {
  std::shared_ptr<Session> session = FindLocked(number);
  if (session == nullptr) {
    return absl::UnavailableError(absl::StrCat("NCCL session ", number, " is over"));
  }
  if (session->state.ended()) return session->state.failure();
  const bool is_of_worker =
      session->worker.job == worker.job && session->worker.rank == worker.rank;
  if (!is_of_worker && !Has(ChannelBug::kSessionOfOtherRank)) {
    // An honest worker may name a session of the process before this one.
    return absl::UnavailableError(
        absl::StrCat("NCCL session ", number, " is not of rank ", worker.rank));
  }
  if (session->pulls == pulls) return session;
  return absl::UnavailableError(absl::StrCat("NCCL session ", number, " is for ",
                                             session->pulls ? "pulls" : "pushes", ", expecting ",
                                             pulls ? "pulls" : "pushes"));
}

absl::StatusOr<size_t> NcclEndpoint::FreeSlotLocked(const Session& session, uint64_t bytes) const {
  if (bytes < 1 || bytes > options_.slot_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL transfer of ", bytes, " bytes, expecting 1 .. ", options_.slot_bytes));
  }
  const auto slot = std::find_if(session.slots.begin(), session.slots.end(),
                                 [](const Slot& one) { return !one.used; });
  if (slot != session.slots.end()) return static_cast<size_t>(slot - session.slots.begin());
  return absl::ResourceExhaustedError(
      absl::StrCat("NCCL session ", session.number, ": all ", options_.slots, " slots are in use"));
}

absl::Status NcclEndpoint::CheckPulls(uint64_t session, const Sender& worker) const {
  MutexLock lock(mu_);
  return UsableLocked(session, worker, /*pulls=*/true).status();
}

absl::StatusOr<v1::NcclTransfer> NcclEndpoint::Send(const Sender& to, uint64_t session,
                                                    uint32_t parameter_id, uint64_t bytes,
                                                    Write write, Done done) {
  std::shared_ptr<Session> used;
  size_t tag = 0;
  {
    MutexLock lock(mu_);
    KAON_ASSIGN_OR_RETURN(used, UsableLocked(session, to, /*pulls=*/true));
    KAON_ASSIGN_OR_RETURN(tag, FreeSlotLocked(*used, bytes));
    used->slots[tag].used = true;
  }
  Slot& slot = used->slots[tag];
  const kernels::Region memory = slot.memory.Sub(0, bytes);
  v1::NcclTransfer transfer;
  transfer.set_session(session);
  std::vector<std::byte> payload(options_.in_place ? 0 : bytes);
  absl::Status status = write(options_.in_place ? memory : absl::MakeSpan(payload));
  if (status.ok() && options_.in_place) {
    transfer.set_digest(link_->Digest(parameter_id, memory));
  } else if (status.ok()) {
    link_->CopyIn(payload, memory);
    // The digest is that of the bytes before the copy, so it also covers the way into the device.
    transfer.set_digest(
        kernels::TensorDigester(parameter_id, kernels::kTransferSlot).OfBytes(payload, 0));
  }
  MutexLock lock(mu_);
  if (status.ok()) status = used->state.Send(tag, memory, SteadyNow());
  changed_.NotifyAll();
  if (!status.ok()) {
    slot.used = false;
    return status;
  }
  used->busy_at = SteadyNow();
  slot.announced.bytes = bytes;
  slot.done = std::move(done);
  transfer.set_sequence(++used->transfers);
  return transfer;
}

void NcclEndpoint::Fail(uint64_t session, const std::string& why) {
  MutexLock lock(mu_);
  const std::shared_ptr<Session> found = FindLocked(session);
  if (found == nullptr) return;
  found->state.Fail(why, SteadyNow());
  changed_.NotifyAll();
}

void NcclEndpoint::Run() {
  while (true) {
    std::vector<Work> work;
    {
      MutexLock lock(mu_);
      const bool under_way = AdvanceLocked(&work);
      if (stopped_ && work.empty() && !under_way) return;
      if (work.empty()) {
        under_way ? static_cast<void>(changed_.WaitFor(mu_, options_.tick)) : changed_.Wait(mu_);
      }
    }
    for (Work& one : work) Do(one);
  }
}

bool NcclEndpoint::AdvanceLocked(std::vector<Work>* work) {
  bool under_way = false;
  for (const std::shared_ptr<Session>& session : sessions_) {
    for (const uint64_t tag : session->state.Advance(SteadyNow())) {
      Slot& slot = session->slots[tag];
      work->push_back({session,
                       tag,
                       slot.announced,
                       std::exchange(slot.take, nullptr),
                       std::exchange(slot.done, nullptr),
                       {}});
    }
    const LinkSession::State state = session->state.state();
    // Only a session that was ready is revoked.
    const bool joined =
        state == LinkSession::State::kReady || state == LinkSession::State::kRevoking;
    if (joined && !std::exchange(session->joined, true)) {
      unjoined_.erase({session->worker.job, session->worker.rank});
      NoteState(*session, "ready");
    }
    if (session->state.ended() && !session->joined) NoteUnjoinedLocked(*session);
    if (session->state.ended()) {
      NoteState(*session, "ended");
      EndTransfersLocked(*session, work);
    }
    if (state == LinkSession::State::kAborting && !std::exchange(session->abort_asked, true)) {
      LOG(INFO) << "NCCL session " << session->number << " of rank " << session->worker.rank
                << " ended after " << session->transfers << " transfers, " << session->bytes
                << " bytes: " << session->state.failure().message();
      // Shares the session: its slots are in use until the abort has returned.
      if (Has(ChannelBug::kFreedBeforeTheAbort)) {
        link_->Free(std::exchange(session->memory, kernels::Region()));
      }
      aborts_.Add(session->state.comm(), [this, session] {
        MutexLock lock(mu_);
        session->state.OnAborted();
        Note(*session, [](v1::NcclPair& pair) { pair.set_aborts(pair.aborts() + 1); });
        sessions_.remove(session);
      });
    }
    under_way = under_way || state == LinkSession::State::kConnecting ||
                state == LinkSession::State::kRevoking || session->state.num_under_way() > 0;
  }
  return under_way;
}

void NcclEndpoint::EndTransfersLocked(Session& session, std::vector<Work>* work) {
  for (Slot& slot : session.slots) {
    if (slot.done == nullptr) continue;
    slot.take = nullptr;
    // Stays used: NCCL may still use the slot.
    work->push_back(
        {nullptr, 0, {}, nullptr, std::exchange(slot.done, nullptr), session.state.failure()});
  }
}

void NcclEndpoint::FreeSlot(const Work& work) {
  MutexLock lock(mu_);
  work.session->slots[work.slot].used = false;
  work.session->busy_at = SteadyNow();
  work.session->bytes += work.announced.bytes;
}

void NcclEndpoint::Do(Work& work) {
  if (work.session != nullptr) {
    if (Has(ChannelBug::kSlotFreeBeforeItIsTaken)) FreeSlot(work);
    if (work.take != nullptr) work.status = TakePayload(work);
    FreeSlot(work);
  }
  work.done(work.status);
}

absl::Status NcclEndpoint::TakePayload(const Work& work) {
  const uint64_t bytes = work.announced.bytes;
  const uint32_t parameter_id = work.announced.parameter_id;
  kernels::ConstRegion payload = work.session->slots[work.slot].memory.Sub(0, bytes);
  std::vector<std::byte> copy;
  uint64_t digest = 0;
  if (options_.in_place) {
    digest = link_->Digest(parameter_id, payload);
  } else {
    copy.resize(bytes);
    link_->CopyOut(payload, absl::MakeSpan(copy));
    payload = absl::MakeConstSpan(copy);
    // Digest the last copy, so that it also covers the way out of the device.
    digest = kernels::TensorDigester(parameter_id, kernels::kTransferSlot).OfBytes(copy, 0);
  }
  const uint64_t announced = work.announced.transfer.digest();
  if (digest == announced || Has(ChannelBug::kDigestIgnored)) {
    Note(*work.session, [bytes](v1::NcclPair& pair) {
      pair.set_transfers(pair.transfers() + 1);
      pair.set_bytes(pair.bytes() + bytes);
    });
    return work.take(payload);
  }
  // UNAVAILABLE, since the worker still has the bytes: DATA_LOSS would stop it.
  const absl::Status lost = absl::UnavailableError(absl::StrCat(
      "NCCL session ", work.session->number, ": transfer ", work.announced.transfer.sequence(),
      " arrived with digest ", absl::Hex(digest, absl::kZeroPad16), ", announced with ",
      absl::Hex(announced, absl::kZeroPad16)));
  LOG(WARNING) << lost;
  return lost;
}

}  // namespace kaon::shard
