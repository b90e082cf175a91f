// What a file of a checkpoint says of the program that wrote it, and whether another program goes
// on to the same bits. Pure functions but for the name of the processor; any thread.
#ifndef KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_
#define KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"

namespace kaon::checkpoint {

// With build, backend and device_class: bits depend on them. "import" for weights nobody computed.
v1::CheckpointFile WrittenBy(absl::string_view backend);

// FAILED_PRECONDITION naming what was written (`what`), who goes on with it (`who`), and build,
// backend and device class of both, if one of them differs: bits depend on them (protocol.md
// section 3). What nobody computed (an import), and what versions wrote that did not say, is of
// any.
absl::Status CheckSameBits(absl::string_view what, const v1::CheckpointFile& written_by,
                           absl::string_view who, const v1::CheckpointFile& present);

// The model name in `cpuinfo`, which is what /proc/cpuinfo holds; "unknown" without one.
std::string ProcessorModel(absl::string_view cpuinfo);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_
