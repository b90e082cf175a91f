// Report of a failing seed: the error, the command that replays it, its options, the build, and the
// newest events of its trace. Printed also if the process dies of a CHECK or a signal. Owned by the
// test's main program; one thread.
#ifndef KAON_TESTS_SIMULATION_FAILING_SEED_H_
#define KAON_TESTS_SIMULATION_FAILING_SEED_H_

#include <cstdint>
#include <string>

#include "tests/simulation/cluster.h"
#include "tests/simulation/trace_ring.h"

namespace kaon::simulation {

class FailingSeed {
 public:
  // Looks up the sources of this build: a commit, or "unknown".
  FailingSeed();

  // Prints the seed in progress when the process dies. Only one object of a process may call this,
  // and it outlives the process.
  void PrintAtDeath();

  // Announces the next seed, whose trace goes to this object's ring. `replay` is the command that
  // runs it again.
  void Begin(ClusterOptions& options, const std::string& replay);
  // Announces that no seed is running.
  void End() { seed_.clear(); }
  // Prints the report of a seed that failed.
  void Print(const ClusterResult& result) const;

 private:
  static void OnDeath(int signal);

  std::string build_;
  std::string seed_;
  // The report without the error and the events.
  std::string about_;
  TraceRing newest_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_FAILING_SEED_H_
