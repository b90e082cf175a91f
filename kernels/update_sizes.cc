#include "kernels/update_sizes.h"

#include <glog/logging.h>

#include <vector>

namespace kaon::kernels {

void CheckUpdateSizes(const Update& update) {
  const UpdateBuffers& buffers = update.buffers;
  uint64_t n = 1;
  for (const uint64_t extent : update.shape) n *= extent;
  const uint64_t bytes = n * sizeof(float);
  CHECK(buffers.grad.size() == n && buffers.param.size() == bytes &&
        buffers.new_param.size() == bytes)
      << "shape has " << n << " elements, gradient " << buffers.grad.size() << ", parameter "
      << buffers.param.num_floats() << ", new parameter " << buffers.new_param.num_floats();
  const std::vector<StateSlot> slots = StateSlots(*update.rule, update.shape);
  CHECK(buffers.state.size() == slots.size())
      << "rule has " << slots.size() << " state slots, given " << buffers.state.size();
  for (size_t i = 0; i < slots.size(); ++i) {
    CHECK(static_cast<int64_t>(buffers.state[i].size()) == slots[i].num_bytes)
        << slots[i].name << " has " << buffers.state[i].size() << " bytes, needs "
        << slots[i].num_bytes;
  }
}

}  // namespace kaon::kernels
