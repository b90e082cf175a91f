// A backend plugin as small as can be: proves that CreateBackend loads one. Built into
// libkaon_echo.so, and with another interface version into libkaon_stale.so.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"

#ifndef TEST_PLUGIN_VERSION
#define TEST_PLUGIN_VERSION kaon::kernels::kBackendVersion
#endif

namespace kaon::kernels {
namespace {

// Has no memory, and says with which options it was made.
class EchoBackend final : public Backend {
 public:
  explicit EchoBackend(int device) : device_(device) {}

  std::string name() const override { return "echo"; }
  std::string device_class() const override { return absl::StrCat("device ", device_); }
  Space space() const override { return Space::kDevice; }
  std::string memory_tier() const override { return absl::StrCat("echo:", device_); }
  uint64_t capacity_bytes() const override { return 0; }
  absl::StatusOr<Region> Allocate(uint64_t) override { return absl::ResourceExhaustedError(""); }
  void Free(Region) override {}
  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t) override {
    return absl::ResourceExhaustedError("");
  }
  void FreeStaging(absl::Span<std::byte>) override {}
  void CopyIn(absl::Span<const std::byte>, Region) override {}
  void CopyOut(ConstRegion, absl::Span<std::byte>) override {}
  void Copy(ConstRegion, Region) override {}
  void RoundOut(ConstRegion, DType, std::byte*) override {}
  uint64_t Digest(uint32_t, uint32_t, ConstRegion) override { return 4711; }
  uint32_t LargestMagnitude(ConstRegion) override { return 0; }
  std::unique_ptr<Accumulation> Accumulate(Region) override { return nullptr; }
  void RunUpdates(absl::Span<Update>) override {}
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate>) const override { return 0; }

 private:
  const int device_;
};

}  // namespace
}  // namespace kaon::kernels

extern "C" int kaon_backend_version() { return TEST_PLUGIN_VERSION; }

extern "C" kaon::kernels::Backend* kaon_create_backend(const kaon::kernels::BackendOptions* options,
                                                       std::string* error) {
  if (options->device > 7) {
    *error = absl::StrCat("no device ", options->device, ", this machine has 8");
    return nullptr;
  }
  return std::make_unique<kaon::kernels::EchoBackend>(options->device).release();
}
