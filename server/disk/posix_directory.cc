#include "server/disk/posix_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/disk/system_error.h"

namespace kaon::disk {

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kLongWrite = uint64_t{256} << 10;
// Number of slices for one system call; IOV_MAX is 1024.
constexpr size_t kMaxSlicesAtOnce = 64;

absl::Status CheckName(const std::string& directory, const std::string& name) {
  const bool usable = !name.empty() && name != "." && name != ".." &&
                      name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (usable) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("'", proto::Excerpt(name), "' in ", directory,
                   " is not a file name, expecting one component"));
}

class PosixFile : public File {
 public:
  // `read_only` is the errno that says why the file can only be read; 0 if it is writable.
  PosixFile(std::string path, int fd, int read_only)
      : path_(std::move(path)), fd_(fd), read_only_(read_only) {}
  ~PosixFile() override { ::close(fd_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override {
    if (read_only_ != 0) return SystemError("writing", path_, read_only_);
    std::vector<struct iovec> left;
    left.reserve(slices.size());
    for (const absl::string_view slice : slices) {
      if (!slice.empty()) left.push_back({const_cast<char*>(slice.data()), slice.size()});
    }
    PassFailpoint(Failpoint::disk_write_begin);
    const uint64_t begin = offset;
    size_t first = 0;
    while (first < left.size()) {
      const int count = static_cast<int>(std::min(left.size() - first, kMaxSlicesAtOnce));
      const ssize_t written =
          Repeat([&] { return ::pwritev(fd_, &left[first], count, static_cast<off_t>(offset)); });
      if (written < 0) return SystemError("writing", path_, errno);
      offset += static_cast<uint64_t>(written);
      first = Skip(left, first, static_cast<size_t>(written));
    }
    if (offset - begin >= kLongWrite) StartWriteback(begin, offset);
    PassFailpoint(Failpoint::disk_write_end);
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override {
    size_t total = 0;
    while (total < size) {
      const ssize_t count = Repeat([&] {
        return ::pread(fd_, to + total, size - total, static_cast<off_t>(offset + total));
      });
      if (count < 0) return SystemError("reading", path_, errno);
      if (count == 0) break;
      total += static_cast<size_t>(count);
    }
    return total;
  }

  absl::StatusOr<uint64_t> Size() override {
    struct stat state;
    if (::fstat(fd_, &state) != 0) return SystemError("asking for the size of", path_, errno);
    return static_cast<uint64_t>(state.st_size);
  }

  absl::Status Truncate(uint64_t size) override {
    if (read_only_ != 0) return SystemError("truncating", path_, read_only_);
    if (Repeat([&] { return ::ftruncate(fd_, static_cast<off_t>(size)); }) != 0) {
      return SystemError("truncating", path_, errno);
    }
    return absl::OkStatus();
  }

  // An interrupted sync is not repeated: the state after a failed sync is unknown.
  absl::Status Sync() override {
    PassFailpoint(Failpoint::disk_sync_begin);
    if (::fdatasync(fd_) != 0) return SystemError("syncing", path_, errno);
    PassFailpoint(Failpoint::disk_sync_end);
    return absl::OkStatus();
  }

  const std::string& path() const override { return path_; }

 private:
  // Starts to write gradients and tensors to the device early. The device works while the next ones
  // are summed and copied, and the sync has little left to do. Only whole pages, because the last
  // page will be written again. The sync reports errors.
  void StartWriteback(uint64_t begin, uint64_t end) {
    begin = begin / kPageBytes * kPageBytes;
    end = end / kPageBytes * kPageBytes;
    ::sync_file_range(fd_, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                      SYNC_FILE_RANGE_WRITE);
  }

  // Skips `written` bytes. Returns the first slice that is not written whole, and cuts that slice
  // to the rest.
  static size_t Skip(std::vector<struct iovec>& slices, size_t first, size_t written) {
    while (first < slices.size() && written >= slices[first].iov_len) {
      written -= slices[first].iov_len;
      ++first;
    }
    if (written > 0) {
      slices[first].iov_base = static_cast<char*>(slices[first].iov_base) + written;
      slices[first].iov_len -= written;
    }
    return first;
  }

  const std::string path_;
  const int fd_;
  const int read_only_;
};

}  // namespace

PosixDirectory::PosixDirectory(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

PosixDirectory::~PosixDirectory() { ::close(fd_); }

absl::StatusOr<std::unique_ptr<PosixDirectory>> PosixDirectory::At(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("directory ", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<PosixDirectory>(new PosixDirectory(path, fd));
}

absl::Status PosixDirectory::Lock() {
  if (Repeat([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("directory ", path_, ": ",
                   errno == EWOULDBLOCK ? "another process is using it" : std::strerror(errno)));
}

absl::StatusOr<std::unique_ptr<File>> PosixDirectory::OpenAt(const std::string& name, int flags) {
  KAON_RETURN_IF_ERROR(CheckName(path_, name));
  std::string path = absl::StrCat(path_, "/", name);
  // O_NONBLOCK: a pipe instead of a file must not block us.
  const auto open = [&](int mode) {
    return Repeat([&] {
      return ::openat(fd_, name.c_str(), mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    });
  };
  int read_only = 0;
  int fd = open(O_RDWR);
  // Checkpoints are also verified, exported and restored from read-only file systems. A later Write
  // reports the error.
  if (fd < 0 && flags == 0 && (errno == EROFS || errno == EACCES)) {
    read_only = errno;
    fd = open(O_RDONLY);
  }
  if (fd < 0) return SystemError("opening", path, errno);
  auto file = std::make_unique<PosixFile>(std::move(path), fd, read_only);
  struct stat state;
  if (::fstat(fd, &state) != 0) return SystemError("opening", file->path(), errno);
  if (!S_ISREG(state.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("opening ", file->path(), ": it is not a regular file"));
  }
  return file;
}

absl::StatusOr<std::unique_ptr<File>> PosixDirectory::Open(const std::string& name) {
  return OpenAt(name, 0);
}

absl::StatusOr<std::unique_ptr<File>> PosixDirectory::Create(const std::string& name) {
  return OpenAt(name, O_CREAT | O_EXCL);
}

absl::StatusOr<std::vector<std::string>> PosixDirectory::List() {
  // The stream takes ownership of a separate descriptor, which has its own position in the
  // directory.
  const int fd = ::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("listing", path_, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), &::closedir);
  if (stream == nullptr) {
    const int error = errno;
    ::close(fd);
    return SystemError("listing", path_, error);
  }
  std::vector<std::string> names;
  errno = 0;
  for (const dirent* entry; (entry = ::readdir(stream.get())) != nullptr; errno = 0) {
    struct stat state;
    if (::fstatat(fd_, entry->d_name, &state, AT_SYMLINK_NOFOLLOW) != 0) {
      // Another user of the directory removed it: a shard's journal and its snapshots share one.
      if (errno == ENOENT) continue;
      return SystemError("listing", absl::StrCat(path_, "/", entry->d_name), errno);
    }
    if (!S_ISDIR(state.st_mode)) names.emplace_back(entry->d_name);
  }
  if (errno != 0) return SystemError("listing", path_, errno);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status PosixDirectory::Rename(const std::string& from, const std::string& to) {
  KAON_RETURN_IF_ERROR(CheckName(path_, from));
  KAON_RETURN_IF_ERROR(CheckName(path_, to));
  PassFailpoint(Failpoint::disk_rename_begin);
  if (::renameat(fd_, from.c_str(), fd_, to.c_str()) != 0) {
    return SystemError("renaming", absl::StrCat(path_, "/", from, " to ", to), errno);
  }
  PassFailpoint(Failpoint::disk_rename_end);
  return absl::OkStatus();
}

absl::Status PosixDirectory::Remove(const std::string& name) {
  KAON_RETURN_IF_ERROR(CheckName(path_, name));
  if (::unlinkat(fd_, name.c_str(), 0) == 0) return absl::OkStatus();
  return SystemError("removing", absl::StrCat(path_, "/", name), errno);
}

absl::Status PosixDirectory::Sync() {
  PassFailpoint(Failpoint::disk_directory_sync_begin);
  if (::fsync(fd_) != 0) return SystemError("syncing directory", path_, errno);
  PassFailpoint(Failpoint::disk_directory_sync_end);
  return absl::OkStatus();
}

}  // namespace kaon::disk
