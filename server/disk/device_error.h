// Tells an error of the device from wrong bytes; both are DATA_LOSS. Damaged bytes stay damaged, so
// a reader may use an older file instead. If a device cannot be read, nobody knows what it holds,
// and the process must end (reliability.md P18). Pure functions; thread-safe.
#ifndef KAON_SERVER_DISK_DEVICE_ERROR_H_
#define KAON_SERVER_DISK_DEVICE_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::disk {

// Returns DATA_LOSS for which IsDeviceError is true.
absl::Status DeviceError(absl::string_view message);
bool IsDeviceError(const absl::Status& status);

// Returns `status` with another message. An error of the device stays one.
absl::Status WithMessage(const absl::Status& status, absl::string_view message);

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_DEVICE_ERROR_H_
