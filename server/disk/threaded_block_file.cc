#include "server/disk/threaded_block_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/disk/device_error.h"
#include "server/disk/system_error.h"

namespace kaon::disk {

namespace {

// Bytes of one system call.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// Opens without following a symbolic link; a pipe in place of the file must not block.
int OpenFile(const std::string& path, int flags) {
  return Repeat([&] {
    return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
  });
}

// Locks the file, which must still have its name then: its creator removes one that does not fit.
absl::Status LockFile(const std::string& path, int fd) {
  struct stat state;
  if (::fstat(fd, &state) != 0) return SystemError("opening", path, errno);
  if (!S_ISREG(state.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("opening ", path, ": it is not a regular file"));
  }
  const bool locked = Repeat([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0;
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
  if (::fcntl(fd, F_SETFL, O_DIRECT) != 0) return false;
  const std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(kBlockBytes, kBlockBytes), &std::free);
  if (::pread(fd, block.get(), kBlockBytes, 0) == static_cast<ssize_t>(kBlockBytes)) return true;
  ::fcntl(fd, F_SETFL, 0);
  return false;
}

}  // namespace

// One call of Read or Write, until its last piece.
class ThreadedBlockFile::Operation {
 public:
  Operation(size_t num_pieces, Done done) : left_(num_pieces), done_(std::move(done)) {}

  void OnPiece(const absl::Status& status) {
    {
      MutexLock lock(mu_);
      status_.Update(status);
      if (--left_ > 0) return;
    }
    done_(status_);
  }

 private:
  Mutex mu_;
  size_t left_ ABSL_GUARDED_BY(mu_);
  // First error. No other thread writes it after the last piece.
  absl::Status status_;
  const Done done_;
};

absl::StatusOr<std::unique_ptr<ThreadedBlockFile>> ThreadedBlockFile::Open(const Options& options) {
  CHECK(options.size_bytes > 0 && options.size_bytes % kBlockBytes == 0) << options.size_bytes;
  CHECK_GE(options.num_threads, 1);
  const std::string& path = options.path;
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
  KAON_RETURN_IF_ERROR(ReserveBlocks(path, fd, options.size_bytes));
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
  return std::unique_ptr<ThreadedBlockFile>(new ThreadedBlockFile(options, fd, is_direct));
}

ThreadedBlockFile::ThreadedBlockFile(Options options, int fd, bool is_direct)
    : options_(std::move(options)), fd_(fd), is_direct_(is_direct) {
  for (int i = 0; i < options_.num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadedBlockFile::~ThreadedBlockFile() {
  {
    MutexLock lock(mu_);
    ending_ = true;
    wake_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  ::close(fd_);
}

void ThreadedBlockFile::Read(uint64_t offset, absl::Span<std::byte> to, Done done) {
  Start(false, offset, to, std::move(done));
}

void ThreadedBlockFile::Write(uint64_t offset, absl::Span<const std::byte> from, Done done) {
  Start(true, offset, {const_cast<std::byte*>(from.data()), from.size()}, std::move(done));
}

void ThreadedBlockFile::Start(bool is_write, uint64_t offset, absl::Span<std::byte> memory,
                              Done done) {
  const absl::Status checked = CheckBlocks(*this, offset, memory);
  if (!checked.ok() || memory.empty()) return done(checked);
  const uint64_t num_pieces = (memory.size() + kPieceBytes - 1) / kPieceBytes;
  const auto operation = std::make_shared<Operation>(num_pieces, std::move(done));
  MutexLock lock(mu_);
  for (uint64_t first = 0; first < memory.size(); first += kPieceBytes) {
    pieces_.push_back({operation, is_write, offset + first, memory.subspan(first, kPieceBytes)});
    wake_.NotifyOne();
  }
}

void ThreadedBlockFile::Run() {
  while (true) {
    Piece piece;
    {
      MutexLock lock(mu_);
      while (pieces_.empty() && !ending_) wake_.Wait(mu_);
      if (pieces_.empty()) return;
      piece = std::move(pieces_.front());
      pieces_.pop_front();
    }
    piece.operation->OnPiece(Transfer(piece));
  }
}

absl::Status ThreadedBlockFile::Transfer(const Piece& piece) const {
  for (size_t done = 0; done < piece.memory.size();) {
    std::byte* const memory = piece.memory.data() + done;
    const size_t size = piece.memory.size() - done;
    const auto offset = static_cast<off_t>(piece.offset + done);
    const ssize_t count = Repeat([&] {
      return piece.is_write ? ::pwrite(fd_, memory, size, offset)
                            : ::pread(fd_, memory, size, offset);
    });
    if (count < 0) {
      const int error = errno;
      return SystemError(
          absl::StrCat(piece.is_write ? "writing" : "reading", " at offset ", offset, " of"),
          options_.path, error);
    }
    if (count == 0) {
      return DeviceError(absl::StrCat(options_.path, " ends at byte ", offset, ", it had ",
                                      options_.size_bytes, ": something else has cut it off"));
    }
    done += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status ThreadedBlockFile::Sync() {
  if (::fdatasync(fd_) != 0) return SystemError("syncing", options_.path, errno);
  return absl::OkStatus();
}

}  // namespace kaon::disk
