// A device that reports an error, told from bytes that are wrong: both are DATA_LOSS, but damage
// stays and may be passed over for something older, while of a device that cannot be read nobody
// knows what it holds, so that the process must end (reliability.md, P18). Pure functions; any
// thread.
#ifndef KAON_SERVER_DISK_DEVICE_ERROR_H_
#define KAON_SERVER_DISK_DEVICE_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::disk {

// DATA_LOSS, and IsDeviceError.
absl::Status DeviceError(absl::string_view message);
bool IsDeviceError(const absl::Status& status);

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_DEVICE_ERROR_H_
