// Converts between the storage types of the wire and of the kernels, whose enumerators differ by 1.
// Pure functions; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_STATE_DTYPE_H_
#define KAON_SERVER_CHECKPOINT_STATE_DTYPE_H_

#include "kaon/v1/parameters.pb.h"
#include "kernels/optimizer_rule.h"

namespace kaon::checkpoint {

inline kernels::StateDType ToKernels(v1::StateDType dtype) {
  return static_cast<kernels::StateDType>(static_cast<int>(dtype) - 1);
}

inline v1::StateDType FromKernels(kernels::StateDType dtype) {
  return static_cast<v1::StateDType>(static_cast<int>(dtype) + 1);
}

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_STATE_DTYPE_H_
