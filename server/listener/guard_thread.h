// Watches the memory of the process and ends the connections that a MemoryGuard names, on a thread
// of its own. Returns memory that a burst took to the system. Owned by Listener.
#ifndef KAON_SERVER_LISTENER_GUARD_THREAD_H_
#define KAON_SERVER_LISTENER_GUARD_THREAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "server/listener/memory_guard.h"
#include "server/listener/repeating_thread.h"

namespace kaon::listener {

// Returns the resident memory of this process in bytes; 0 if /proc does not say.
uint64_t ResidentBytes();

class GuardThread {
 public:
  // Functions are called on the guard's thread, without a lock held.
  struct Options {
    uint64_t most_bytes = 0;
    std::function<uint64_t()> resident_bytes;
    std::function<std::vector<ConnectionUse>()> connections;
    // Ends those that are still open. Returns their number.
    std::function<size_t(const std::vector<uint64_t>&)> cut;
    // Says whether no connection may be accepted now, each time that it changes.
    std::function<void(bool closed)> close;
    // Gives free memory of the allocator to the system.
    std::function<void()> trim;
  };

  explicit GuardThread(Options options);

 private:
  // Looks once. Returns the time until the next look.
  absl::Duration Look(absl::Time now);

  const Options options_;
  MemoryGuard guard_;
  bool closed_ = false;
  absl::Time last_observation_ = absl::InfinitePast();
  absl::Duration observation_took_;
  absl::Time next_trim_ = absl::InfinitePast();
  // Grows while trims do not help.
  absl::Duration between_trims_;
  // The same while memory is near the mark.
  absl::Duration near_trim_;
  // A burst is over by then.
  absl::Time last_trim_ = absl::InfiniteFuture();

  // Last member: it uses everything above.
  RepeatingThread thread_;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_GUARD_THREAD_H_
