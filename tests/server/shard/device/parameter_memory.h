// Memory of a parameter that is always in memory, for tests that read or damage it. Valid as long
// as its store. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_DEVICE_PARAMETER_MEMORY_H_
#define KAON_TESTS_SERVER_SHARD_DEVICE_PARAMETER_MEMORY_H_

#include <cstddef>

#include "kernels/region.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

// Returns the newest weights.
inline kernels::Region WeightsOf(const StoredParameter& parameter) {
  const kernels::ConstRegion weights =
      parameter.place.home->PinForUpdate(parameter.place.unit)->weights();
  return {weights.space(), const_cast<std::byte*>(weights.data()), weights.size()};
}

inline kernels::Region SlotOf(const StoredParameter& parameter, size_t i) {
  return parameter.place.home->PinForUpdate(parameter.place.unit)->state(i);
}

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_DEVICE_PARAMETER_MEMORY_H_
