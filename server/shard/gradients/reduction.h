// Settings by which a shard reduces the sum of one parameter to its gradient. The job's groups
// determine them, so they stay the same until the groups change. Pure functions; any thread.
#ifndef KAON_SERVER_SHARD_GRADIENTS_REDUCTION_H_
#define KAON_SERVER_SHARD_GRADIENTS_REDUCTION_H_

#include <vector>

#include "kaon/v1/agreement.pb.h"

namespace kaon::shard {

struct Reduction {
  // A decision or the record needs the sum of squares ([T5]). The check for non-finite values
  // ([T3]) runs in any case.
  bool takes_sum = true;
  // Use zeros if no worker sent a gradient ([T7]).
  bool zero_if_missing = false;
  // A norm may scale the gradient ([C3], [C7]), so the update must wait for the decision.
  bool is_clipped = true;
};

// Returns the reductions of all parameters, indexed by parameter id.
std::vector<Reduction> ReductionsOf(const v1::RegisterBody& job);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_REDUCTION_H_
