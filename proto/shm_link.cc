#include "proto/shm_link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/local_socket.h"
#include "proto/status_macros.h"

namespace kaon::proto {

namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(2);

int PollTimeout(absl::Duration timeout) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const int64_t ms = absl::ToInt64Milliseconds(timeout + absl::Microseconds(999));
  return static_cast<int>(std::clamp<int64_t>(ms, 0, kMost));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmLink>> ShmLink::Serve(Descriptor socket, size_t ring_bytes) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<ShmRegion> region, ShmRegion::Create(ring_bytes));
  KAON_RETURN_IF_ERROR(SendLocal(socket, "m", region->descriptor()));
  return Create(End::kShard, std::move(socket), std::move(region));
}

absl::StatusOr<std::unique_ptr<ShmLink>> ShmLink::Connect(const std::string& address,
                                                          absl::string_view token) {
  KAON_ASSIGN_OR_RETURN(Descriptor socket, ConnectLocal(address));
  KAON_RETURN_IF_ERROR(SendLocal(socket, token));
  KAON_ASSIGN_OR_RETURN(Descriptor memory, ReceiveDescriptor(socket, kAnswerTimeout));
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<ShmRegion> region, ShmRegion::Open(std::move(memory)));
  return Create(End::kWorker, std::move(socket), std::move(region));
}

absl::StatusOr<std::unique_ptr<ShmLink>> ShmLink::Create(End end, Descriptor socket,
                                                         std::unique_ptr<ShmRegion> region) {
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  return std::unique_ptr<ShmLink>(
      new ShmLink(end, std::move(socket), std::move(region), std::move(wake)));
}

ShmLink::ShmLink(End end, Descriptor socket, std::unique_ptr<ShmRegion> region, Descriptor wake)
    : socket_(std::move(socket)),
      region_(std::move(region)),
      wake_(std::move(wake)),
      writer_(end == End::kShard ? region_->responses() : region_->requests()),
      reader_(end == End::kShard ? region_->requests() : region_->responses()) {}

absl::StatusOr<bool> ShmLink::Write(const RingHeader& header, absl::string_view body) {
  KAON_ASSIGN_OR_RETURN(std::byte* const to, writer_.Reserve(body.size()));
  if (to == nullptr) return false;
  std::memcpy(to, body.data(), body.size());
  RingHeader written = header;
  written.size = static_cast<uint32_t>(body.size());
  writer_.Commit(written);
  return true;
}

void ShmLink::Ring() {
  const char byte = 0;
  // If the socket is full, the other end has bytes to wake up for. If the other end is gone, Await
  // reports it.
  (void)send(socket_.get(), &byte, sizeof(byte), MSG_NOSIGNAL | MSG_DONTWAIT);
}

absl::Status ShmLink::Await(absl::Duration timeout) {
  pollfd wanted[] = {{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  if (poll(wanted, 2, PollTimeout(timeout)) <= 0) return absl::OkStatus();
  if (wanted[1].revents != 0) {
    uint64_t wakes = 0;
    (void)!read(wake_.get(), &wakes, sizeof(wakes));
  }
  if (wanted[0].revents == 0) return absl::OkStatus();
  char rings[4096];
  const ssize_t received = recv(socket_.get(), rings, sizeof(rings), MSG_DONTWAIT);
  if (received > 0 || (received < 0 && errno == EAGAIN)) return absl::OkStatus();
  return absl::UnavailableError("the other end of the shared memory is gone");
}

void ShmLink::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

}  // namespace kaon::proto
