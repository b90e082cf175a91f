#include "server/listener/memory_guard.h"

#include <algorithm>
#include <utility>

namespace kaon::listener {

namespace {

// HTTP/2 and TLS add a 500th to messages of 1 MiB.
constexpr double kOverhead = 1.0 / 256;
// They add less than this to a small message that headers of a call come with.
constexpr double kMessageOverhead = 192;
// Pings and their answers, each second.
constexpr double kOverheadPerSecond = 128;
// gRPC has about this for each stream.
constexpr double kOpenCall = 16 << 10;
// An owner may have so many calls open without suspicion.
constexpr double kFreeCalls = 64;
// An owner with less explains no memory that matters.
constexpr double kLeastUntaken = 64 << 10;
// One untaken byte takes at most this many of memory, or a few times as many in rare cases.
constexpr double kMostPerByte = 200;
// Part of the largest amount of its owner with which a connection is cut as well.
constexpr double kGoodPart = 0.25;
// Memory may grow as fast as it did for kWindow, for kLead before a cut has its effect.
constexpr absl::Duration kWindow = absl::Milliseconds(50);
constexpr absl::Duration kLead = absl::Milliseconds(100);
// Time for memory to fall after a cut, doubled by each cut that does not help.
constexpr absl::Duration kPatience = absl::Milliseconds(500);
constexpr absl::Duration kMaxPatience = absl::Minutes(1);
// Part of that time while memory grows.
constexpr int kHaste = 16;
// A cut begins to free memory within kFreeing.
constexpr absl::Duration kFreeing = absl::Milliseconds(250);
// Much shorter than the watchdog's patience with a port that does not answer.
constexpr absl::Duration kMostClosed = absl::Seconds(2);

// Returns to - from. The kernel's count may fall a little.
double Growth(uint64_t from, uint64_t to) {
  return static_cast<double>(to) - static_cast<double>(from);
}

}  // namespace

double MemoryGuard::Record::untaken() const {
  return excess + static_cast<double>(use.open_calls) * kOpenCall;
}

void MemoryGuard::Observe(const std::vector<ConnectionUse>& connections, absl::Time now) {
  std::map<uint64_t, Record> seen;
  for (const ConnectionUse& use : connections) {
    const auto found = connections_.find(use.id);
    const Record old = found != connections_.end() ? found->second : Record{{}, 0, now};
    const double received = Growth(old.use.received_bytes, use.received_bytes);
    const double taken = Growth(old.use.taken_bytes, use.taken_bytes);
    const double messages = Growth(old.use.taken_messages, use.taken_messages);
    const double overhead = taken * kOverhead + messages * kMessageOverhead +
                            absl::ToDoubleSeconds(now - old.seen) * kOverheadPerSecond;
    // An allowance that is not used is gone: it must not hide what comes later.
    Record record = {use, std::max(old.excess + received - taken - overhead, 0.0), now};
    arrived_bytes_ += std::max(record.untaken() - old.untaken(), 0.0);
    seen.emplace(use.id, std::move(record));
  }
  connections_ = std::move(seen);
}

bool MemoryGuard::IsOver(uint64_t resident_bytes, absl::Time now) {
  if (now - since_.time >= kWindow) {
    before_ = std::exchange(since_, {now, resident_bytes, arrived_bytes_});
  }
  lead_bytes_ = 0;
  if (before_.time > absl::InfinitePast() && resident_bytes > before_.resident_bytes) {
    const double growth = Growth(before_.resident_bytes, resident_bytes);
    // Work that a peer asked for takes memory as well, but without bytes that wait.
    if (growth <= (arrived_bytes_ - before_.arrived_bytes) * kMostPerByte) {
      const double lead = growth * absl::FDivDuration(kLead, now - before_.time);
      lead_bytes_ = static_cast<uint64_t>(std::min(lead, static_cast<double>(most_bytes_) / 3));
    }
  }
  least_bytes_ = std::min(least_bytes_, resident_bytes);
  // Memory has fallen: the cuts have helped.
  if (resident_bytes < most_bytes_ / 16 * 15) patience_ = absl::ZeroDuration();
  return resident_bytes + lead_bytes_ > most_bytes_;
}

std::optional<MemoryGuard::Cut> MemoryGuard::Decide(uint64_t resident_bytes, absl::Time now) {
  const bool regrows = resident_bytes >= least_bytes_ + most_bytes_ / 64;
  if (now < last_cut_ + (regrows ? patience_ / kHaste : patience_)) return std::nullopt;
  struct Owner {
    // Many workers may share a certificate, and each has a connection with a call or two.
    int connections = 0;
    double untaken = 0;
    double excess = 0;
    double most = 0;
  };
  std::map<std::string, Owner> owners;
  for (const auto& [id, record] : connections_) {
    Owner& owner = owners[record.use.owner];
    owner.untaken += record.untaken();
    owner.connections += 1;
    owner.excess += record.excess;
    owner.most = std::max(owner.most, record.untaken());
  }
  const auto weight = [](const Owner& owner) {
    const double free = std::max(kFreeCalls, 2.0 * owner.connections) * kOpenCall;
    return std::max(owner.untaken - free, owner.excess);
  };
  const auto worst = std::max_element(
      owners.begin(), owners.end(),
      [&](const auto& a, const auto& b) { return weight(a.second) < weight(b.second); });
  const double over = Growth(most_bytes_, resident_bytes + lead_bytes_);
  if (worst == owners.end() ||
      weight(worst->second) < std::max(kLeastUntaken, over / kMostPerByte)) {
    return std::nullopt;
  }
  Cut cut;
  cut.owner = worst->first;
  for (const auto& [id, record] : connections_) {
    if (record.use.owner != cut.owner || record.untaken() < worst->second.most * kGoodPart) {
      continue;
    }
    cut.connections.push_back(id);
    cut.untaken_bytes += static_cast<uint64_t>(record.untaken());
  }
  for (const uint64_t id : cut.connections) connections_.erase(id);
  patience_ = std::clamp(patience_ * 2, kPatience, kMaxPatience);
  last_cut_ = now;
  cut_bytes_ = least_bytes_ = resident_bytes;
  if (now >= closed_from_ + 2 * kMostClosed) closed_from_ = now;
  return cut;
}

bool MemoryGuard::IsClosed(uint64_t resident_bytes, absl::Time now) const {
  const bool frees = least_bytes_ + most_bytes_ / 64 <= cut_bytes_;
  return resident_bytes + most_bytes_ / 16 > most_bytes_ && now < closed_from_ + kMostClosed &&
         (frees || now < last_cut_ + kFreeing);
}

}  // namespace kaon::listener
