#include "server/disk/system_error.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/disk/device_error.h"

namespace kaon::disk {

absl::Status SystemError(absl::string_view what, const std::string& path, int error) {
  const std::string message = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    // A table of the process or of the system is full; room may come.
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    case EIO:
    case ENXIO:
    case ENODEV:
    case EBADMSG:
    case EUCLEAN:
      return DeviceError(message);
    case ENOENT:
      return absl::NotFoundError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

}  // namespace kaon::disk
