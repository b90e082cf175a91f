#include "server/disk/device_error.h"

#include "absl/strings/cord.h"

namespace kaon::disk {

namespace {

// A printed status shows these: [device='failed'].
constexpr char kPayload[] = "device";
constexpr char kFailed[] = "failed";

}  // namespace

absl::Status DeviceError(absl::string_view message) {
  absl::Status status = absl::DataLossError(message);
  status.SetPayload(kPayload, absl::Cord(kFailed));
  return status;
}

bool IsDeviceError(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

}  // namespace kaon::disk
