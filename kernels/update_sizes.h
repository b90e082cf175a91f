// The sizes that the buffers of an update must have. Backends check them first. A pure function;
// any thread.
#ifndef KAON_KERNELS_UPDATE_SIZES_H_
#define KAON_KERNELS_UPDATE_SIZES_H_

#include "kernels/update.h"

namespace kaon::kernels {

// CHECKs the sizes of gradient, weights and state slots against rule and shape.
void CheckUpdateSizes(const Update& update);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_UPDATE_SIZES_H_
