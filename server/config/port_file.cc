#include "server/config/port_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace kaon::config {

absl::Status WritePortFile(const std::string& path, int port) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << port << '\n';
    file.close();
    if (!file) {
      return absl::UnavailableError(
          absl::StrCat("port_file '", proto::OneLine(temporary), "': ", std::strerror(errno)));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("port_file '", proto::OneLine(path), "': ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace kaon::config
