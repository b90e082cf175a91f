// Records which program wrote a file of a checkpoint, and checks whether another program would
// continue with the same bits. Pure functions except for reading the processor's name; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_
#define KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"

namespace kaon::checkpoint {

// Returns this build with the name and device class of a backend; bits depend on all three.
v1::CheckpointFile WrittenBy(absl::string_view backend, absl::string_view device_class);

// Returns what stands for weights that no step computed: backend "import".
v1::CheckpointFile WrittenByImport();

// Returns FAILED_PRECONDITION if build, backend or device class differ, because bits depend on them
// (protocol.md section 3). The error names `what` was written, `who` continues with it, and the
// three values of both. Accepts imports, and files of versions that did not record these values.
absl::Status CheckSameBits(absl::string_view what, const v1::CheckpointFile& written_by,
                           absl::string_view who, const v1::CheckpointFile& present);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_WRITTEN_BY_H_
