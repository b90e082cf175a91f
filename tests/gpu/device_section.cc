#include "absl/strings/str_cat.h"
#include "tests/gpu/sections.h"

namespace kaon::gpu_check {

void Probe(const Machine& machine, Results& results) {
  const kernels::cuda::DeviceProperties& properties = machine.device.properties();
  results.Fact("device", properties.name);
  results.Fact("compute_capability", absl::StrCat(properties.major, ".", properties.minor));
  results.Figure("multiprocessors", properties.multiprocessors, "");
  results.Figure("memory", static_cast<double>(properties.memory_bytes) / (1 << 30), "GiB");
  results.Figure("shared_memory_per_block",
                 static_cast<double>(properties.shared_bytes_per_block) / 1024, "KiB");
  results.Figure("driver_version", properties.driver_version, "");
  results.Figure("runtime_version", properties.runtime_version, "");
  results.Fact("device_class", machine.cuda.device_class());
  results.Skip("uplo_support", "not yet");
}

void CheckTwins(const Machine&, Results& results) { results.Skip("", "not yet"); }
void CheckProducts(const Machine&, Results& results) { results.Skip("", "not yet"); }
void MeasureDevice(const Machine&, Results& results) { results.Skip("fold", "not yet"); }

}  // namespace kaon::gpu_check
