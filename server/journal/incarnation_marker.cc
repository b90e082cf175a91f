#include "server/journal/incarnation_marker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/disk/private_directory.h"

namespace kaon::journal {

namespace {

constexpr char kFileName[] = "incarnation";
constexpr absl::string_view kContents = "kaon incarnation 1\n";

std::string Describe(absl::string_view what, const std::string& path) {
  return absl::StrCat(what, " ", path, ": ", std::strerror(errno));
}

// Closes the file on every path.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int fd() const { return fd_; }

 private:
  const int fd_;
};

// The existence of the marker counts: one torn by a crash still says that a promise was in
// progress. A marker of another version is an error, since its meaning is unknown.
absl::Status CheckContents(const std::string& path) {
  const OpenFile file(path, O_RDONLY);
  // Enough of a foreign line to name it.
  char buffer[80];
  const ssize_t size = file.fd() < 0 ? -1 : ::read(file.fd(), buffer, sizeof(buffer));
  if (size < 0) return absl::FailedPreconditionError(Describe("marker", path));
  const absl::string_view contents(buffer, static_cast<size_t>(size));
  if (absl::StartsWith(contents, kContents) || absl::StartsWith(kContents, contents)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("marker ", path, " starts with the line '",
                   proto::Excerpt(contents.substr(0, contents.find('\n'))), "', expecting '",
                   absl::StripTrailingAsciiWhitespace(kContents), "'"));
}

absl::Status SyncDirectory(const std::string& path) {
  const OpenFile directory(path, O_RDONLY | O_DIRECTORY);
  if (directory.fd() < 0 || ::fsync(directory.fd()) != 0) {
    return absl::UnavailableError(Describe("syncing directory", path));
  }
  return absl::OkStatus();
}

}  // namespace

IncarnationMarker::IncarnationMarker(std::string data_dir, bool held_state)
    : data_dir_(std::move(data_dir)),
      path_(absl::StrCat(data_dir_, "/", kFileName)),
      held_state_(held_state),
      written_(held_state) {}

absl::StatusOr<IncarnationMarker> IncarnationMarker::Open(const std::string& data_dir) {
  KAON_RETURN_IF_ERROR(disk::CreatePrivateDirectory("data_dir", data_dir));
  const std::string path = absl::StrCat(data_dir, "/", kFileName);
  struct stat file;
  if (::stat(path.c_str(), &file) == 0) {
    KAON_RETURN_IF_ERROR(CheckContents(path));
    return IncarnationMarker(data_dir, true);
  }
  if (errno != ENOENT) return absl::FailedPreconditionError(Describe("marker", path));
  return IncarnationMarker(data_dir, false);
}

absl::Status IncarnationMarker::Write() {
  if (written_) return absl::OkStatus();
  {
    const OpenFile file(path_, O_WRONLY | O_CREAT | O_TRUNC);
    constexpr ssize_t kSize = kContents.size();
    if (file.fd() < 0 || ::write(file.fd(), kContents.data(), kSize) != kSize ||
        ::fsync(file.fd()) != 0) {
      return absl::UnavailableError(Describe("writing marker", path_));
    }
  }
  KAON_RETURN_IF_ERROR(SyncDirectory(data_dir_));
  written_ = true;
  return absl::OkStatus();
}

}  // namespace kaon::journal
