#include "server/listener/guard_thread.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "kernels/steady_clock.h"
#include "proto/descriptor.h"

namespace kaon::listener {

namespace {

// Far from the mark, memory cannot reach it within kCalm.
constexpr absl::Duration kCalm = absl::Milliseconds(20);
constexpr absl::Duration kAlert = absl::Milliseconds(5);
constexpr absl::Duration kBetweenObservations = absl::Milliseconds(500);
// Near the mark, unless it takes more than a part of the time to ask about all connections.
constexpr absl::Duration kAlertObservations = absl::Milliseconds(25);
constexpr int kObservationPart = 10;
// Other threads wait for the allocator meanwhile.
constexpr absl::Duration kBetweenTrims = absl::Milliseconds(200);
constexpr absl::Duration kMaxBetweenTrims = absl::Seconds(30);
constexpr absl::Duration kBurst = absl::Seconds(1);
// Memory near the mark may be free already: an attack that stays below it leads to no cut.
constexpr absl::Duration kBetweenNearTrims = absl::Seconds(2);

}  // namespace

uint64_t ResidentBytes() {
  const proto::Descriptor file(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128] = "";
  if (!file.valid() || read(file.get(), text, sizeof(text) - 1) <= 0) return 0;
  unsigned long long size = 0;
  unsigned long long resident = 0;
  if (std::sscanf(text, "%llu %llu", &size, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

GuardThread::GuardThread(Options options)
    : options_(std::move(options)),
      guard_(options_.most_bytes),
      between_trims_(kBetweenTrims),
      near_trim_(kBetweenNearTrims),
      thread_(kCalm, [this] { return Look(SteadyNow()); }) {}

absl::Duration GuardThread::Look(absl::Time now) {
  uint64_t resident = options_.resident_bytes();
  const bool alert = resident > options_.most_bytes / 2;
  bool over = guard_.IsOver(resident, now);
  const absl::Duration between = std::max(alert ? kAlertObservations : kBetweenObservations,
                                          observation_took_ * kObservationPart);
  if (over || now >= last_observation_ + between) {
    guard_.Observe(options_.connections(), now);
    last_observation_ = now;
    observation_took_ = SteadyNow() - now;
  }
  if (over && !guard_.grows() && now >= next_trim_) {
    // Memory that is free already is no reason to end a connection. There is no time to find out
    // while memory grows fast.
    options_.trim();
    next_trim_ = SteadyNow() + between_trims_;
    between_trims_ = std::min(between_trims_ * 2, kMaxBetweenTrims);
    resident = options_.resident_bytes();
    over = guard_.IsOver(resident, now);
  }
  if (!over) between_trims_ = kBetweenTrims;
  if (over) {
    if (const std::optional<MemoryGuard::Cut> cut = guard_.Decide(resident, now)) {
      const size_t ended = options_.cut(cut->connections);
      LOG_EVERY_T(WARNING, 1) << (resident >> 20) << " MiB resident, at most "
                              << (options_.most_bytes >> 20) << " allowed: " << ended
                              << " connections of " << cut->owner << " ended, which sent "
                              << (cut->untaken_bytes >> 10) << " KiB that no call has taken";
      last_trim_ = now + kBurst;
    }
  } else if (now >= last_trim_) {
    options_.trim();
    last_trim_ = absl::InfiniteFuture();
    // Honest work may stay near the mark.
    near_trim_ = std::min(near_trim_ * 2, kMaxBetweenTrims);
  } else if (resident > options_.most_bytes / 16 * 15) {
    last_trim_ = std::min(last_trim_, now + near_trim_);
  } else {
    near_trim_ = kBetweenNearTrims;
  }
  if (const bool closed = guard_.IsClosed(resident, now); closed != closed_) {
    closed_ = closed;
    options_.close(closed);
  }
  return alert ? kAlert : kCalm;
}

}  // namespace kaon::listener
