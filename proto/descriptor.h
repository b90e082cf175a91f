// A file descriptor that is closed with its owner. Used by one thread at a time.
#ifndef KAON_PROTO_DESCRIPTOR_H_
#define KAON_PROTO_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace kaon::proto {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Returns the descriptor; -1 for none.
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace kaon::proto

#endif  // KAON_PROTO_DESCRIPTOR_H_
