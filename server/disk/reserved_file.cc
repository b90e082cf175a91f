#include "server/disk/reserved_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"
#include "server/disk/block_file.h"
#include "server/disk/system_error.h"

namespace kaon::disk {

namespace {

// Opens without following a symbolic link; a pipe in place of the file must not block.
int OpenFile(const std::string& path, int flags) {
  return Repeat([&] {
    return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
  });
}

// The kernel keeps the lock of a process that was killed until its io_uring has ended: 5 to 25 ms.
constexpr absl::Duration kLockPatience = absl::Seconds(3);

// Returns what flock returns once nobody has the lock, or after a while.
int Lock(int fd) {
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  const absl::Time end = SteadyNow() + kLockPatience;
  while (true) {
    const int result = Repeat([&] { return ::flock(fd, LOCK_EX | LOCK_NB); });
    if (result == 0 || errno != EWOULDBLOCK || SteadyNow() >= end) return result;
    never.WaitFor(mu, absl::Milliseconds(5));
  }
}

// Locks the file, which must still have its name then: its creator removes one that does not fit.
absl::Status LockFile(const std::string& path, int fd) {
  struct stat state;
  if (::fstat(fd, &state) != 0) return SystemError("opening", path, errno);
  if (!S_ISREG(state.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("opening ", path, ": it is not a regular file"));
  }
  const bool locked = Lock(fd) == 0;
  if (!locked && errno != EWOULDBLOCK) return SystemError("locking", path, errno);
  struct stat named;
  const bool has_name = ::lstat(path.c_str(), &named) == 0 && named.st_dev == state.st_dev &&
                        named.st_ino == state.st_ino;
  if (locked && has_name) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("opening ", path, ": another shard is using it; give each its own file"));
}

// Makes the file `bytes` long, with blocks for all of them; never shorter.
absl::Status ReserveBlocks(const std::string& path, int fd, uint64_t bytes) {
  struct stat state;
  struct statvfs system;
  if (::fstat(fd, &state) != 0 || ::fstatvfs(fd, &system) != 0) {
    return SystemError("asking for the size of", path, errno);
  }
  const uint64_t held = static_cast<uint64_t>(state.st_blocks) * 512;
  const uint64_t free = static_cast<uint64_t>(system.f_bavail) * system.f_frsize;
  // Checked first: an attempt that fails would fill the disk for other programs meanwhile.
  if (bytes > held && bytes - held > free) {
    return absl::ResourceExhaustedError(absl::StrCat("reserving ", bytes, " bytes for ", path,
                                                     ": it has ", held, ", its file system has ",
                                                     free, " free"));
  }
  if (Repeat([&] { return ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)); }) == 0) {
    return absl::OkStatus();
  }
  int error = errno;
  const auto size = static_cast<uint64_t>(state.st_size);
  // Blocks are then found at the first write.
  const bool cannot_reserve = error == EOPNOTSUPP;
  if (cannot_reserve && size >= bytes) return absl::OkStatus();
  const uint64_t wanted = cannot_reserve ? bytes : size;
  const int cut = Repeat([&] { return ::ftruncate(fd, static_cast<off_t>(wanted)); });
  if (cannot_reserve && cut == 0) return absl::OkStatus();
  if (cannot_reserve) error = errno;
  return SystemError(absl::StrCat("reserving ", bytes, " bytes for"), path, error);
}

// Makes the name of the file durable.
absl::Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("opening directory", directory, errno);
  const absl::Cleanup close = [fd] { ::close(fd); };
  if (::fsync(fd) != 0) return SystemError("syncing directory", directory, errno);
  return absl::OkStatus();
}

// Returns whether reads and writes of the file go past the page cache from now on. Some file
// systems take the flag and then refuse every read.
bool UseDirect(int fd) {
  const std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(kBlockBytes, kBlockBytes), &std::free);
  if (::fcntl(fd, F_SETFL, O_DIRECT) == 0 &&
      ::pread(fd, block.get(), kBlockBytes, 0) == static_cast<ssize_t>(kBlockBytes)) {
    return true;
  }
  // Clears O_NONBLOCK, too, with which a ring would answer "try again" instead of waiting.
  ::fcntl(fd, F_SETFL, 0);
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReservedFile>> ReservedFile::Open(const std::string& path,
                                                                 uint64_t size_bytes) {
  CHECK(size_bytes > 0 && size_bytes % kBlockBytes == 0) << size_bytes;
  int fd = OpenFile(path, O_CREAT | O_EXCL);
  const bool is_new = fd >= 0;
  if (!is_new && errno == EEXIST) fd = OpenFile(path, 0);
  if (fd < 0) return SystemError("opening", path, errno);
  bool is_locked = false;
  absl::Cleanup undo = [&] {
    if (is_new && is_locked) ::unlink(path.c_str());
    ::close(fd);
  };
  KAON_RETURN_IF_ERROR(LockFile(path, fd));
  is_locked = true;
  KAON_RETURN_IF_ERROR(ReserveBlocks(path, fd, size_bytes));
  // A process that crashed may have created it.
  if (::fdatasync(fd) != 0) return SystemError("syncing", path, errno);
  KAON_RETURN_IF_ERROR(SyncDirectoryOf(path));
  // After open, so that a file system without it never sees a file created and refused.
  const bool is_direct = UseDirect(fd);
  if (!is_direct) {
    LOG(WARNING) << path << " is in a file system without O_DIRECT: the page cache takes memory "
                 << "that no budget counts";
  }
  std::move(undo).Cancel();
  return std::unique_ptr<ReservedFile>(new ReservedFile(path, size_bytes, fd, is_direct));
}

ReservedFile::ReservedFile(std::string path, uint64_t size_bytes, int fd, bool is_direct)
    : path_(std::move(path)), size_bytes_(size_bytes), fd_(fd), is_direct_(is_direct) {}

ReservedFile::~ReservedFile() { ::close(fd_); }

absl::Status ReservedFile::Sync() const {
  if (::fdatasync(fd_) != 0) return SystemError("syncing", path_, errno);
  return absl::OkStatus();
}

}  // namespace kaon::disk
