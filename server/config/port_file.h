// Tells the process that started a server which port the server got. The server writes the file
// once, when it accepts calls.
#ifndef KAON_SERVER_CONFIG_PORT_FILE_H_
#define KAON_SERVER_CONFIG_PORT_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace kaon::config {

// Writes "PORT\n" to `path`. Uses a rename, so that a reader never sees half of it. UNAVAILABLE
// names the path and the reason.
absl::Status WritePortFile(const std::string& path, int port);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_PORT_FILE_H_
