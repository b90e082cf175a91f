// Derives a cluster from a seed. Shapes, faults and modes vary with the seed, so that few seeds
// cover many. Pure functions; any thread.
#ifndef KAON_TESTS_SIMULATION_SEEDS_H_
#define KAON_TESTS_SIMULATION_SEEDS_H_

#include <cstdint>
#include <string>

#include "tests/simulation/cluster.h"

namespace kaon::simulation {

ClusterOptions OptionsOf(uint64_t seed);
// Returns options as large as the model in docs/design/reliability.md, "Evidence". They have 41
// steps, 3 shards, 3 workers, 2 rival coordinators, loss of up to 12 %, and about 40 faults.
ClusterOptions ModelSizedOptionsOf(uint64_t seed);
// Describes the options in the report of a failure.
std::string Describe(const ClusterOptions& options);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_SEEDS_H_
