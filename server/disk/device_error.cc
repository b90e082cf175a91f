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

absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status result(status.code(), message);
  status.ForEachPayload([&result](absl::string_view type, const absl::Cord& payload) {
    result.SetPayload(type, payload);
  });
  return result;
}

}  // namespace kaon::disk
