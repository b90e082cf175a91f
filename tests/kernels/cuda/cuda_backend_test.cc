#include "kernels/cuda/cuda_backend.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/on_host/device_on_host.h"
#include "tests/conformance/backend/backend_conformance.h"

namespace kaon::kernels::cuda {
namespace {

std::unique_ptr<Backend> MakeBackend(uint64_t seed, int num_streams) {
  CudaBackend::Options options;
  options.folds = {num_streams, 4};
  options.num_update_streams = static_cast<size_t>(num_streams);
  on_host::DeviceOnHostOptions device;
  device.seed = seed;
  auto backend = CudaBackend::Create(on_host::NewDeviceOnHost(device), options);
  CHECK(backend.ok()) << backend.status();
  return *std::move(backend);
}

INSTANTIATE_TEST_SUITE_P(CudaOnHost, BackendConformanceTest,
                         ::testing::Values([] { return MakeBackend(1, 1); },
                                           [] { return MakeBackend(2, 4); }));

}  // namespace
}  // namespace kaon::kernels::cuda
