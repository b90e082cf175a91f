// Model of the machine's processor: bits of results depend on it. Pure functions except for reading
// /proc/cpuinfo; any thread.
#ifndef KAON_KERNELS_CPU_PROCESSOR_MODEL_H_
#define KAON_KERNELS_CPU_PROCESSOR_MODEL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace kaon::kernels {

// Returns the model of this machine.
std::string ProcessorModel();

// Returns the model name in `cpuinfo`, the contents of /proc/cpuinfo; "unknown" without one.
std::string ProcessorModelIn(absl::string_view cpuinfo);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_PROCESSOR_MODEL_H_
