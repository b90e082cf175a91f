// What a shard does with the sum of one parameter besides dividing it: by the job alone, the same
// in every step until its groups change. Pure functions; any thread.
#ifndef KAON_SERVER_SHARD_GRADIENTS_REDUCTION_H_
#define KAON_SERVER_SHARD_GRADIENTS_REDUCTION_H_

#include <vector>

#include "kaon/v1/agreement.pb.h"

namespace kaon::shard {

struct Reduction {
  // Some decision reads its sum of squares, or the record reports it ([T5]). What is not finite is
  // looked for in any case ([T3]).
  bool takes_sum = true;
  // Stepped with zeros when no worker sent a gradient ([T7]).
  bool zero_if_missing = false;
  // Some norm may scale its gradient ([C3], [C7]): how it is stepped is known with the decision.
  bool is_clipped = true;
};

// By parameter id.
std::vector<Reduction> ReductionsOf(const v1::RegisterBody& job);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_REDUCTION_H_
