// One parameter of a GradientAccumulator, which locks it. Shared with pushes in progress.
#ifndef KAON_SERVER_SHARD_GRADIENTS_SUMMED_PARAMETER_H_
#define KAON_SERVER_SHARD_GRADIENTS_SUMMED_PARAMETER_H_

#include <cstdint>
#include <memory>

#include "kernels/mutex.h"
#include "server/shard/gradients/parameter_fold.h"
#include "server/shard/gradients/sum_memory.h"

namespace kaon::shard {

struct SummedParameter {
  std::unique_ptr<SumMemory> sum;
  bool frozen = false;
  Mutex mu;
  // Only contributions of this generation are accepted; 0: none.
  uint64_t generation ABSL_GUARDED_BY(mu) = 0;
  std::unique_ptr<ParameterFold> fold ABSL_PT_GUARDED_BY(mu);
  // on_parameter_folded was called for the generation.
  bool announced ABSL_GUARDED_BY(mu) = false;
  // The gradient was appended to the journal.
  bool appended ABSL_GUARDED_BY(mu) = false;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_SUMMED_PARAMETER_H_
