#include "server/coordinator/machine/join_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kaon::coordinator {

namespace {

// A rank may be taken so often at once, and once in each interval after that.
constexpr int kBurst = 4;
constexpr absl::Duration kInterval = absl::Seconds(1);
constexpr int kMaxLateSeconds = 16;

}  // namespace

absl::Status JoinLimit::Check(uint32_t rank) const {
  const auto found = free_at_.find(rank);
  if (found == free_at_.end()) return absl::OkStatus();
  const absl::Duration wait = found->second - now_ - (kBurst - 1) * kInterval;
  if (wait <= absl::ZeroDuration()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("rank ", rank, " was taken ", kBurst,
                                             " times in short order, join again in ",
                                             absl::FormatDuration(wait)));
}

void JoinLimit::Note(uint32_t rank) {
  absl::Time& free_at = free_at_.emplace(rank, now_).first->second;
  free_at = std::max(free_at, now_) + kInterval;
}

void JoinLimit::NoteLate(uint32_t rank) {
  Late& late = late_[rank];
  const int seconds = late.losses == 0 ? 0 : std::min(1 << (late.losses - 1), kMaxLateSeconds);
  // Later losses keep it away for as long, and the shift must not overflow.
  if (seconds < kMaxLateSeconds) ++late.losses;
  late.free_at = now_ + absl::Seconds(seconds);
}

absl::Status JoinLimit::CheckLate(uint32_t rank) const {
  const auto found = late_.find(rank);
  if (found == late_.end() || found->second.free_at <= now_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("rank ", rank,
                                             " was lost again because it was late, try again in ",
                                             absl::FormatDuration(found->second.free_at - now_)));
}

}  // namespace kaon::coordinator
