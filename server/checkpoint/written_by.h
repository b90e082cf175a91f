// What a file of a checkpoint says of the program that wrote it. A pure function but for the name
// of the processor; any thread.
#ifndef KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_
#define KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"

namespace kaon::checkpoint {

// With build, backend and device_class: bits depend on them. "import" for weights nobody computed.
v1::CheckpointFile WrittenBy(absl::string_view backend);

// The model name in `cpuinfo`, which is what /proc/cpuinfo holds; "unknown" without one.
std::string ProcessorModel(absl::string_view cpuinfo);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_
