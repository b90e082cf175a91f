#include "server/coordinator/machine/election.h"

#include <algorithm>
#include <limits>

#include "proto/ballot.h"

namespace kaon::coordinator {

namespace {

constexpr int kMaxDoublings = 6;
// An election counts as over after this many takeover times without a change.
constexpr int kSettledTakeovers = 4;
constexpr int64_t kNeverMs = std::numeric_limits<int64_t>::max();

}  // namespace

Election::Election(const ElectionOptions& options)
    : options_(options), random_(options.seed), unpromised_since_(options.num_shards) {
  DrawPatience();
}

void Election::Observe(int shard, const v1::ShardToCoordinator& message, absl::Time now) {
  highest_counter_ = std::max(highest_counter_, message.promised().counter());
  absl::string_view address;
  if (message.has_probed()) {
    NoteHolder(message, now);
    address = message.probed().holder_address();
    const bool never = message.probed().holder_silent_ms() >= kNeverMs;
    if (!never) {
      unpromised_since_[shard].reset();
    } else if (!unpromised_since_[shard]) {
      unpromised_since_[shard] = now;
    }
  } else if (message.has_refused()) {
    address = message.refused().holder_address();
  }
  if (!address.empty() && proto::Compare(message.promised(), holder_ballot_) >= 0) {
    holder_ballot_ = message.promised();
    holder_address_ = std::string(address);
  }
}

bool Election::HolderIsSilent(int shard, const v1::ProbeReply& reply, absl::Time now) {
  if (!unpromised_since_[shard]) {
    return absl::Milliseconds(reply.holder_silent_ms()) >= patience_;
  }
  // A shard without a promise counts as one whose holder fell silent one takeover time before the
  // shard was first heard. So a first start waits only the random part, which keeps two
  // coordinators from standing at the same moment.
  return options_.takeover + (now - *unpromised_since_[shard]) >= patience_;
}

v1::Ballot Election::TakeBallot() {
  v1::Ballot ballot;
  ballot.set_counter(++highest_counter_);
  ballot.set_incarnation_high(options_.incarnation_high);
  ballot.set_incarnation_low(options_.incarnation_low);
  return ballot;
}

void Election::Refused() {
  refusals_ = std::min(refusals_ + 1, kMaxDoublings);
  settled_since_ = absl::InfiniteFuture();
  unpromised_since_.assign(options_.num_shards, std::nullopt);
  DrawPatience();
}

void Election::NoteHolder(const v1::ShardToCoordinator& message, absl::Time now) {
  const bool is_heard =
      message.probed().holder_silent_ms() < absl::ToInt64Milliseconds(options_.takeover);
  if (!is_heard || proto::Compare(message.promised(), settled_ballot_) != 0) {
    settled_ballot_ = message.promised();
    settled_since_ = absl::InfiniteFuture();
  }
  if (!is_heard) return;
  settled_since_ = std::min(settled_since_, now);
  if (refusals_ == 0 || now - settled_since_ < kSettledTakeovers * options_.takeover) return;
  refusals_ = 0;
  DrawPatience();
}

void Election::Won() {
  refusals_ = 0;
  DrawPatience();
}

// Rule 7: "A refused or idle coordinator stands for election after a random time in which SOME
// shard has not heard its promised holder". The delay doubles at each refusal. "Two may be alive
// for ever and the job still progresses."
void Election::DrawPatience() {
  const double fraction = std::uniform_real_distribution<double>(0, 1)(random_);
  patience_ = options_.takeover * (1 + fraction) * (1 << refusals_);
}

}  // namespace kaon::coordinator
