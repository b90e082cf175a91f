// A function for tests in Python: memory of the device of libkaon_cuda.so, as a trainer on a GPU
// has it. Any thread.
#include <glog/logging.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/nccl/load_link.h"

// Never freed.
extern "C" void* kaon_test_device_memory(uint64_t bytes) {
  using Link = absl::StatusOr<std::shared_ptr<kaon::kernels::DeviceLink>>;
  kaon::kernels::LinkOptions options;
  options.network = "lo";
  // Never destroyed: its memory is in use until the process ends.
  static const Link* const link =
      std::make_unique<Link>(kaon::kernels::LoadLink(options)).release();
  CHECK(link->ok()) << link->status();
  const absl::StatusOr<kaon::kernels::Region> memory = (**link)->Allocate(bytes);
  CHECK(memory.ok()) << memory.status();
  return memory->data();
}
