// A libnccl.so.2 for processes of one machine without a GPU: it carries memory of the device on the
// host over Unix sockets. NcclApi loads it in place of NCCL. Each communicator has a thread, which
// does its transfers one after the other. Its state is ncclInProgress until they are done, because
// streams on the host run no work of others. A process that dies takes its sockets along, so the
// other rank fails as with NCCL.
//
// With KAON_SOCKET_NCCL_FAULTS=N, a process spoils its N-th transfer: a receive gets a flipped bit,
// a send loses its connection in the middle.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "kernels/nccl/nccl_declarations.h"

namespace nccl = kaon::kernels::nccl;
using kaon::CondVar;
using kaon::Mutex;
using kaon::MutexLock;

namespace {

struct Operation {
  bool sends = false;
  char* memory = nullptr;
  size_t bytes = 0;
};

struct Address {
  explicit Address(const char* name) {
    address.sun_family = AF_UNIX;
    // An abstract name begins with a zero, and needs no file.
    std::strncpy(address.sun_path + 1, name, sizeof(address.sun_path) - 2);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address = {};
};

// Sockets of the ids of this process, on which rank 0 awaits rank 1.
struct Listeners {
  Mutex mu;
  std::map<std::string, int> sockets ABSL_GUARDED_BY(mu);
};
Listeners listeners;

int NextFault() {
  static const char* const variable = std::getenv("KAON_SOCKET_NCCL_FAULTS");
  static std::atomic<int> left = variable == nullptr ? 0 : std::atoi(variable);
  return left.load() > 0 ? --left : -1;
}

class Communicator {
 public:
  Communicator(std::string name, int rank)
      : name_(std::move(name)), rank_(rank), wake_(eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Communicator() {
    Stop();
    thread_.join();
    if (socket_ >= 0) close(socket_);
    close(wake_);
  }

  nccl::Result state() {
    const MutexLock lock(mu_);
    if (failed_) return nccl::kRemoteError;
    return joined_ && operations_.empty() ? nccl::kSuccess : nccl::kInProgress;
  }
  void Add(const Operation& operation) {
    const MutexLock lock(mu_);
    operations_.push_back(operation);
    changed_.NotifyAll();
  }
  // Ends all operations; their memory is free once `state` is no longer kInProgress.
  void Stop() {
    const MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
    eventfd_write(wake_, 1);
  }

 private:
  void Run() {
    bool ok = Join();
    while (ok) {
      Operation operation;
      {
        const MutexLock lock(mu_);
        joined_ = true;
        while (!stopped_ && operations_.empty()) changed_.Wait(mu_);
        if (stopped_) break;
        operation = operations_.front();
      }
      ok = Do(operation);
      const MutexLock lock(mu_);
      if (ok) operations_.pop_front();
    }
    const MutexLock lock(mu_);
    failed_ = !stopped_;
    joined_ = true;
    operations_.clear();
  }

  // Waits until the socket is ready. False once the communicator is stopped.
  bool Await(int fd, short events) {
    pollfd both[] = {{fd, events, 0}, {wake_, POLLIN, 0}};
    while (poll(both, 2, -1) < 0) continue;
    return both[1].revents == 0;
  }

  bool Join() {
    if (rank_ == 0) {
      int listener = -1;
      {
        const MutexLock lock(listeners.mu);
        listener = listeners.sockets.at(name_);
        listeners.sockets.erase(name_);
      }
      if (Await(listener, POLLIN)) {
        socket_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      }
      close(listener);
      return socket_ >= 0;
    }
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const Address address(name_.c_str());
    return connect(socket_, address.get(), sizeof(address.address)) == 0;
  }

  bool Do(const Operation& operation) {
    const bool spoiled = NextFault() == 0;
    for (size_t done = 0; done < operation.bytes;) {
      if (!Await(socket_, operation.sends ? POLLOUT : POLLIN)) return false;
      const size_t left = operation.bytes - done;
      if (operation.sends && spoiled && done > 0) return false;
      const ssize_t moved = operation.sends ? send(socket_, operation.memory + done,
                                                   spoiled ? left / 2 + 1 : left, MSG_NOSIGNAL)
                                            : recv(socket_, operation.memory + done, left, 0);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (moved <= 0) return false;
      done += static_cast<size_t>(moved);
    }
    if (spoiled && !operation.sends) operation.memory[operation.bytes / 2] ^= 4;
    return !(spoiled && operation.sends);
  }

  const std::string name_;
  const int rank_;
  const int wake_;
  // Used by the thread.
  int socket_ = -1;

  Mutex mu_;
  CondVar changed_;
  std::deque<Operation> operations_ ABSL_GUARDED_BY(mu_);
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

Communicator* Of(nccl::Comm comm) { return static_cast<Communicator*>(comm); }

}  // namespace

extern "C" {

nccl::Result ncclGetVersion(int* version) {
  *version = 22809;
  return nccl::kSuccess;
}

nccl::Result ncclGetUniqueId(nccl::UniqueIdBytes* id) {
  const std::string name =
      "kaon-nccl-" + std::to_string(getpid()) + "-" + std::to_string(std::random_device()());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Address address(name.c_str());
  if (bind(listener, address.get(), sizeof(address.address)) != 0 || listen(listener, 1) != 0) {
    close(listener);
    return nccl::kSystemError;
  }
  std::memset(id->internal, 0, sizeof(id->internal));
  std::memcpy(id->internal, name.data(), name.size());
  const MutexLock lock(listeners.mu);
  listeners.sockets[name] = listener;
  return nccl::kSuccess;
}

nccl::Result ncclCommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueIdBytes id, int rank,
                                    nccl::Config*) {
  if (ranks != 2 || rank < 0 || rank > 1) return nccl::kInvalidArgument;
  *comm = std::make_unique<Communicator>(id.internal, rank).release();
  return nccl::kInProgress;
}

nccl::Result ncclCommGetAsyncError(nccl::Comm comm, nccl::Result* state) {
  *state = Of(comm)->state();
  return nccl::kSuccess;
}

const char* ncclGetLastError(nccl::Comm) { return "the connection was closed by the other rank"; }
const char* ncclGetErrorString(nccl::Result) { return "an error of the socket"; }

nccl::Result ncclSend(const void* memory, size_t bytes, int, int, nccl::Comm comm, void*) {
  Of(comm)->Add({true, const_cast<char*>(static_cast<const char*>(memory)), bytes});
  return nccl::kInProgress;
}

nccl::Result ncclRecv(void* memory, size_t bytes, int, int, nccl::Comm comm, void*) {
  Of(comm)->Add({false, static_cast<char*>(memory), bytes});
  return nccl::kInProgress;
}

nccl::Result ncclGroupStart() { return nccl::kSuccess; }
nccl::Result ncclGroupEnd() { return nccl::kSuccess; }

nccl::Result ncclCommAbort(nccl::Comm comm) {
  std::unique_ptr<Communicator>(Of(comm)).reset();
  return nccl::kSuccess;
}

nccl::Result ncclCommRevoke(nccl::Comm comm, int) {
  Of(comm)->Stop();
  return nccl::kInProgress;
}

}  // extern "C"
