#include "tests/kernels/cuda/immediate_device.h"

#include "kernels/cuda/on_host/host_stream.h"

namespace kaon::kernels::cuda::on_host {

void Enqueue(Stream& stream, std::function<void(uint64_t seed)> work) {
  static_cast<ImmediateStream&>(stream).Do(work);
}

}  // namespace kaon::kernels::cuda::on_host
