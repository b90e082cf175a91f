#include "server/checkpoint/written_by.h"

#include "absl/strings/str_cat.h"
#include "kernels/cpu/processor_model.h"

namespace kaon::checkpoint {

namespace {

// Increase this with every change of the bits of results.
constexpr char kBuild[] = "kaon 1";
// Stands in place of a backend.
constexpr char kImport[] = "import";

bool IsOther(const std::string& written, const std::string& present) {
  return !written.empty() && written != present;
}

std::string Describe(const v1::CheckpointFile& file) {
  return absl::StrCat("build '", file.build(), "', backend '", file.backend(), "', device class '",
                      file.device_class(), "'");
}

}  // namespace

absl::Status CheckSameBits(absl::string_view what, const v1::CheckpointFile& written_by,
                           absl::string_view who, const v1::CheckpointFile& present) {
  const bool differs = IsOther(written_by.build(), present.build()) ||
                       IsOther(written_by.backend(), present.backend()) ||
                       IsOther(written_by.device_class(), present.device_class());
  if (!differs || written_by.backend() == kImport) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, " was written by ", Describe(written_by), ", ", who, " has ", Describe(present),
      ": later steps may differ in their last bits; --allow-other-build takes it"));
}

v1::CheckpointFile WrittenBy(absl::string_view backend, absl::string_view device_class) {
  v1::CheckpointFile written_by;
  written_by.set_build(kBuild);
  written_by.set_backend(std::string(backend));
  written_by.set_device_class(std::string(device_class));
  return written_by;
}

v1::CheckpointFile WrittenByImport() { return WrittenBy(kImport, kernels::ProcessorModel()); }

}  // namespace kaon::checkpoint
