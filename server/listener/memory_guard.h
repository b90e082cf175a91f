// Decides which connections a server ends to keep its memory. gRPC 1.51 enforces its limits late,
// or not at all: one certificate could take all memory by streams, headers, resets or messages that
// never end. Each of these attacks sends bytes that no handler takes, or keeps many calls open.
// Pure; used by one thread at a time. Owned by GuardThread.
#ifndef KAON_SERVER_LISTENER_MEMORY_GUARD_H_
#define KAON_SERVER_LISTENER_MEMORY_GUARD_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace kaon::listener {

// Counts of one connection so far.
struct ConnectionUse {
  uint64_t id = 0;
  // Those of one owner are judged together.
  std::string owner;
  // Bytes that the process has read, with the overhead of HTTP/2 and TLS.
  uint64_t received_bytes = 0;
  // Bytes of the messages that handlers have taken, and their number. The message of a call that
  // has one message counts when the call ends.
  uint64_t taken_bytes = 0;
  uint64_t taken_messages = 0;
  // Calls that handlers have begun and not ended; not a sum.
  uint64_t open_calls = 0;
};

class MemoryGuard {
 public:
  struct Cut {
    std::string owner;
    std::vector<uint64_t> connections;
    // Bytes that nobody took, of those connections, and what their open calls are taken for.
    uint64_t untaken_bytes = 0;
  };

  // Memory of the process above `most_bytes` leads to cuts.
  explicit MemoryGuard(uint64_t most_bytes) : most_bytes_(most_bytes) {}
  // Returns the mark for a budget: 6 % above it, as a server may have a tenth more than its budget.
  // No budget is too small for the program itself and a few calls.
  static uint64_t MostBytes(uint64_t budget_bytes) {
    return std::max(budget_bytes + budget_bytes / 50 * 3, uint64_t{160} << 20);
  }

  // Notes what all open connections have sent. The others are forgotten.
  void Observe(const std::vector<ConnectionUse>& connections, absl::Time now);

  // Returns whether this memory, or what it grows to before the next look, is too much. Call it
  // every few milliseconds.
  bool IsOver(uint64_t resident_bytes, absl::Time now);
  // Returns whether memory grew much just before the last call of IsOver.
  bool grows() const { return lead_bytes_ > most_bytes_ / 64; }
  // Returns the connections to end now. They belong to the owner with most bytes that nobody took,
  // and have a good part of these. After a cut it waits for the memory to fall, and less long if
  // the memory grows. Each cut without a fall doubles that time. Call it after IsOver, with the
  // same arguments.
  std::optional<Cut> Decide(uint64_t resident_bytes, absl::Time now);
  // Returns whether to accept no connection now: while a cut frees memory that is still too much,
  // and for at most half of the time. A peer that was cut would otherwise come back before the
  // memory is free.
  bool IsClosed(uint64_t resident_bytes, absl::Time now) const;

 private:
  struct Record {
    ConnectionUse use;
    // Received and not taken, less an allowance for overhead.
    double excess = 0;
    absl::Time seen;

    double untaken() const;
  };
  struct Sample {
    absl::Time time;
    uint64_t resident_bytes;
    double arrived_bytes;
  };

  const uint64_t most_bytes_;
  std::map<uint64_t, Record> connections_;
  // Sum of all growth of untaken bytes.
  double arrived_bytes_ = 0;
  // Older than kWindow, and newer.
  Sample before_ = {absl::InfinitePast(), 0, 0};
  Sample since_ = {absl::InfinitePast(), 0, 0};
  // Added to the memory, because it grows.
  uint64_t lead_bytes_ = 0;

  absl::Time last_cut_ = absl::InfinitePast();
  absl::Duration patience_ = absl::ZeroDuration();
  // Memory at the last cut, and the least since.
  uint64_t cut_bytes_ = 0;
  uint64_t least_bytes_ = 0;
  // The last time that the port may have been closed.
  absl::Time closed_from_ = absl::InfinitePast();
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_MEMORY_GUARD_H_
