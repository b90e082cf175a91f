#include "server/listener/port_owner.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace kaon::listener {

namespace {

namespace fs = std::filesystem;

// Columns of /proc/net/tcp, and its value of a socket that listens.
constexpr size_t kLocalAddress = 1;
constexpr size_t kState = 3;
constexpr size_t kInode = 9;
constexpr absl::string_view kListens = "0A";

// Returns the sockets that listen on `port`, as links in /proc/PID/fd name them.
std::set<std::string> SocketsOf(int port) {
  const std::string suffix = absl::StrFormat(":%04X", port);
  std::set<std::string> sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      const std::vector<absl::string_view> row = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (row.size() <= kInode || row[kState] != kListens) continue;
      if (!absl::EndsWith(row[kLocalAddress], suffix)) continue;
      sockets.insert(absl::StrCat("socket:[", row[kInode], "]"));
    }
  }
  return sockets;
}

bool Owns(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code error;
  for (fs::directory_iterator next(process / "fd", error), end; !error && next != end;
       next.increment(error)) {
    std::error_code closed;
    if (sockets.count(fs::read_symlink(next->path(), closed)) > 0) return true;
  }
  return false;
}

}  // namespace

std::string PortOwner(int port) {
  const std::set<std::string> sockets = SocketsOf(port);
  if (sockets.empty()) return "";
  std::error_code error;
  for (fs::directory_iterator next("/proc", error), end; !error && next != end;
       next.increment(error)) {
    const std::string pid = next->path().filename();
    if (int number = 0; !absl::SimpleAtoi(pid, &number) || !Owns(next->path(), sockets)) continue;
    std::string program;
    std::getline(std::ifstream(next->path() / "comm"), program);
    return absl::StrCat("pid ", pid, " (", absl::CHexEscape(program), ")");
  }
  return "";
}

}  // namespace kaon::listener
