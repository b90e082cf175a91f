#include "kernels/nccl/link_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/nccl/channel_bug.h"

namespace kaon::kernels {

absl::Status LinkSession::Start(const UniqueId& id, int rank, absl::Time now) {
  since_ = now;
  const absl::StatusOr<CommId> comm = link_.Init(id, rank);
  if (!comm.ok()) {
    failure_ = absl::UnavailableError(comm.status().message());
    state_ = State::kClosed;
    return failure_;
  }
  comm_ = *comm;
  return absl::OkStatus();
}

absl::Status LinkSession::Send(uint64_t tag, ConstRegion from, absl::Time now) {
  const Region memory(from.space(), const_cast<std::byte*>(from.data()), from.size());
  return Add({tag, true, memory, std::nullopt}, now);
}

absl::Status LinkSession::Receive(uint64_t tag, Region to, absl::Time now) {
  return Add({tag, false, to, std::nullopt}, now);
}

absl::Status LinkSession::Add(Transfer transfer, absl::Time now) {
  if (ended()) return failure_;
  if (state_ == State::kReady && transfers_.empty()) since_ = now;
  transfers_.push_back(transfer);
  if (state_ == State::kReady) StartQueued(now);
  return failure_;
}

void LinkSession::StartQueued(absl::Time now) {
  for (Transfer& transfer : transfers_) {
    if (transfer.id.has_value()) continue;
    const absl::StatusOr<TransferId> id =
        transfer.sends ? link_.Send(comm_, transfer.memory) : link_.Receive(comm_, transfer.memory);
    if (!id.ok()) return Fail(std::string(id.status().message()), now);
    transfer.id = *id;
  }
}

bool LinkSession::IsFrontDone() {
  if (Has(ChannelBug::kDoneOutOfOrder)) {
    for (Transfer& transfer : transfers_) {
      if (!link_.IsDone(comm_, *transfer.id)) continue;
      std::swap(transfer, transfers_.front());
      return true;
    }
    return false;
  }
  const bool done = link_.IsDone(comm_, *transfers_.front().id);
  return done || Has(ChannelBug::kDoneBeforeItsEvent);
}

std::vector<uint64_t> LinkSession::Advance(absl::Time now) {
  std::vector<uint64_t> done;
  if (state_ >= State::kAborting) return done;
  const CommState comm = link_.Poll(comm_);
  if (state_ == State::kRevoking) {
    const bool over = comm.kind != CommState::Kind::kInProgress;
    if (over || now - since_ >= options_.revoke_timeout) state_ = State::kAborting;
    return done;
  }
  if (state_ == State::kConnecting && comm.kind == CommState::Kind::kReady) {
    state_ = State::kReady;
    since_ = now;
    StartQueued(now);
  }
  // A transfer that is done counts, even if the communicator has failed since.
  while (state_ == State::kReady && !transfers_.empty() && IsFrontDone()) {
    done.push_back(transfers_.front().tag);
    transfers_.pop_front();
    since_ = now;
  }
  if (ended()) return done;
  if (comm.kind == CommState::Kind::kFailed) {
    Fail(comm.message, now);
  } else if (state_ == State::kConnecting && now - since_ >= options_.connect_timeout) {
    Fail(absl::StrCat("the other end did not join within ",
                      absl::FormatDuration(options_.connect_timeout)),
         now);
  } else if (!transfers_.empty() && now - since_ >= options_.transfer_timeout &&
             !Has(ChannelBug::kNoDeadline)) {
    Fail(absl::StrCat("no transfer was done within ",
                      absl::FormatDuration(options_.transfer_timeout), ", ", transfers_.size(),
                      " are under way"),
         now);
  }
  return done;
}

void LinkSession::Fail(const std::string& why, absl::Time now) {
  if (ended()) return;
  failure_ = absl::UnavailableError(absl::StrCat("NCCL: ", why));
  since_ = now;
  transfers_.clear();
  // A communicator that only one rank has joined has nothing to revoke.
  if (state_ == State::kConnecting || Has(ChannelBug::kNotRevoked)) {
    state_ = State::kAborting;
    return;
  }
  state_ = State::kRevoking;
  link_.Revoke(comm_);
}

void LinkSession::OnAborted() { state_ = State::kClosed; }

}  // namespace kaon::kernels
