// What a seed that fails leaves behind: what went wrong, the command that replays it, its options,
// the build, and the newest events of its trace - also when the process dies of a CHECK or a
// signal. Owned by the test's main program; one thread.
#ifndef KAON_TESTS_SIMULATION_FAILING_SEED_H_
#define KAON_TESTS_SIMULATION_FAILING_SEED_H_

#include <cstdint>
#include <string>

#include "tests/simulation/cluster.h"
#include "tests/simulation/trace_ring.h"

namespace kaon::simulation {

class FailingSeed {
 public:
  // Looks up what the sources of this build are: a commit, or "unknown".
  FailingSeed();

  // Prints the seed in progress when the process dies. At most one in a process, which outlives it.
  void PrintAtDeath();

  // This is run next, and its trace goes to a ring of this. `replay` runs it again.
  void Begin(ClusterOptions& options, const std::string& replay);
  // None is run any more.
  void End() { seed_.clear(); }
  // It failed.
  void Print(const ClusterResult& result) const;

 private:
  static void OnDeath(int signal);

  std::string build_;
  std::string seed_;
  // Everything but what went wrong, and the events.
  std::string about_;
  TraceRing newest_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_FAILING_SEED_H_
