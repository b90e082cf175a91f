#include "server/disk/uring_block_file.h"

#include <glog/logging.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::disk {

namespace {

// user_data of the read that Wake ends.
constexpr uint64_t kWake = ~uint64_t{0};

absl::Status NoUring(absl::string_view what, int error) {
  return absl::UnimplementedError(
      absl::StrCat("io_uring cannot be used: ", what, ": ", std::strerror(error)));
}

}  // namespace

// The kernel's ring, and the pieces that are in it.
class UringBlockFile::Ring {
 public:
  static absl::StatusOr<std::unique_ptr<Ring>> Create(uint32_t depth) {
    auto ring = absl::WrapUnique(new Ring(depth));
    // One entry more, for the wake.
    const int made = io_uring_queue_init(depth + 1, &ring->ring_, 0);
    if (made < 0) return NoUring("io_uring_setup", -made);
    ring->is_made_ = true;
    ring->wake_fd_ = ::eventfd(0, EFD_CLOEXEC);
    if (ring->wake_fd_ < 0) return NoUring("eventfd", errno);
    KAON_RETURN_IF_ERROR(ring->TryRead());
    return ring;
  }
  ~Ring() {
    if (is_made_) io_uring_queue_exit(&ring_);
    if (wake_fd_ >= 0) ::close(wake_fd_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  bool has_room() const { return !free_.empty(); }
  bool is_idle() const { return free_.size() == slots_.size(); }

  // Adds a piece of the open file `fd`. Requires has_room().
  void Add(Piece piece, int fd) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = std::move(piece);
    Prepare(slot, fd);
  }

  // Lets the next Enter return, from any thread.
  void Wake() {
    const uint64_t one = 1;
    CHECK_EQ(::write(wake_fd_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  // Submits what was added. Waits for a result or a Wake if `wait`.
  void Enter(bool wait) {
    if (!is_awaiting_wake_) AwaitWake();
    if (!wait && io_uring_sq_ready(&ring_) == 0) return;
    const int result = io_uring_submit_and_wait(&ring_, wait ? 1 : 0);
    // The next call submits the rest.
    const bool again = result == -EINTR || result == -EAGAIN || result == -EBUSY;
    CHECK(result >= 0 || again) << "io_uring_enter: " << std::strerror(-result);
  }

  // Removes a piece whose call has returned, with its result.
  struct Result {
    Piece piece;
    int64_t bytes_or_error = 0;
  };
  std::optional<Result> Take() {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const uint64_t slot = cqe->user_data;
      const int32_t result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (slot == kWake) {
        is_awaiting_wake_ = false;
        continue;
      }
      free_.push_back(static_cast<uint32_t>(slot));
      return Result{std::move(slots_[slot]), result};
    }
    return std::nullopt;
  }

 private:
  explicit Ring(uint32_t depth) : slots_(depth) {
    for (uint32_t slot = 0; slot < depth; ++slot) free_.push_back(slot);
  }

  // Linux 5.1 to 5.5 have rings without this call. A profile may forbid to enter a ring.
  absl::Status TryRead() {
    Wake();
    AwaitWake();
    io_uring_cqe* cqe = nullptr;
    int entered = io_uring_submit(&ring_);
    while (entered >= 0 || entered == -EINTR) {
      entered = io_uring_wait_cqe(&ring_, &cqe);
      if (entered < 0) continue;
      const int32_t result = cqe->res;
      CHECK(!Take().has_value());
      return result < 0 ? NoUring("IORING_OP_READ", -result) : absl::OkStatus();
    }
    return NoUring("io_uring_enter", -entered);
  }

  void AwaitWake() {
    io_uring_sqe* const sqe = NextSqe();
    io_uring_prep_read(sqe, wake_fd_, &wakes_, sizeof(wakes_), 0);
    io_uring_sqe_set_data64(sqe, kWake);
    is_awaiting_wake_ = true;
  }

  // The queue is as long as the slots and the wake.
  io_uring_sqe* NextSqe() {
    io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
    CHECK(sqe != nullptr);
    return sqe;
  }
  void Prepare(uint32_t slot, int fd) {
    const Piece& piece = slots_[slot];
    const auto size = static_cast<unsigned>(piece.memory.size());
    io_uring_sqe* const sqe = NextSqe();
    if (piece.is_write) {
      io_uring_prep_write(sqe, fd, piece.memory.data(), size, piece.offset);
    } else {
      io_uring_prep_read(sqe, fd, piece.memory.data(), size, piece.offset);
    }
    io_uring_sqe_set_data64(sqe, slot);
  }

  io_uring ring_;
  bool is_made_ = false;
  int wake_fd_ = -1;
  uint64_t wakes_ = 0;
  bool is_awaiting_wake_ = false;
  std::vector<Piece> slots_;
  std::vector<uint32_t> free_;
};

absl::StatusOr<std::unique_ptr<UringBlockFile>> UringBlockFile::Open(const Options& options) {
  CHECK(options.depth >= 1 && options.depth <= 4096) << options.depth;
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<Ring> ring, Ring::Create(options.depth));
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<ReservedFile> file,
                        ReservedFile::Open(options.path, options.size_bytes));
  return absl::WrapUnique(new UringBlockFile(std::move(ring), std::move(file)));
}

UringBlockFile::UringBlockFile(std::unique_ptr<Ring> ring, std::unique_ptr<const ReservedFile> file)
    : SystemBlockFile(std::move(file)), ring_(std::move(ring)), thread_([this] { Run(); }) {}

UringBlockFile::~UringBlockFile() {
  {
    MutexLock lock(mu_);
    ending_ = true;
    ring_->Wake();
  }
  thread_.join();
}

void UringBlockFile::Start(std::vector<Piece> pieces) {
  MutexLock lock(mu_);
  for (Piece& piece : pieces) pieces_.push_back(std::move(piece));
  // Under the lock: once it is free, the last operation may end, and this object with it.
  if (std::exchange(needs_wake_, false)) ring_->Wake();
}

bool UringBlockFile::Fill(bool may_wait) {
  MutexLock lock(mu_);
  for (; ring_->has_room() && !pieces_.empty(); pieces_.pop_front()) {
    ring_->Add(std::move(pieces_.front()), fd());
  }
  needs_wake_ = may_wait && ring_->has_room();
  return !(ending_ && ring_->is_idle() && may_wait);
}

void UringBlockFile::Run() {
  // Results that are not yet called back. Pieces that wait go into the ring before each call, which
  // may take as long as checksums of many bytes.
  std::deque<std::pair<Piece, absl::Status>> ended;
  while (Fill(ended.empty())) {
    ring_->Enter(ended.empty());
    while (std::optional<Ring::Result> result = ring_->Take()) {
      std::optional<absl::Status> status = OnResult(result->piece, result->bytes_or_error);
      if (status.has_value()) {
        ended.emplace_back(std::move(result->piece), *std::move(status));
      } else {
        ring_->Add(std::move(result->piece), fd());
      }
    }
    if (ended.empty()) continue;
    End(ended.front().first, std::move(ended.front().second));
    ended.pop_front();
  }
}

}  // namespace kaon::disk
