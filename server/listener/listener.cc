#include "server/listener/listener.h"

#include <glog/logging.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/transport/loopback.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"
#include "server/auth/peer_identity.h"
#include "server/auth/server_credentials.h"
#include "server/listener/port_owner.h"
#include "server/monitor/wall_clock.h"

namespace kaon::listener {

namespace {

// Connections that wait to be accepted. They are few enough to be accepted within the watchdog's
// timeout.
constexpr int kBacklog = 512;
// Time between sweeps of overdue and closed connections. kPause: time between retries when
// the table or the process is full.
constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kPause = absl::Milliseconds(10);
// Fewer descriptors for connections make no useful service; more bring no benefit.
constexpr size_t kMinDescriptors = 8;
constexpr size_t kMaxDescriptors = 1 << 20;

// 64 calls beyond the limit take as many bytes with the smallest headers, and a handshake 2 KiB.
// Peers send less before their first handler, but for large messages.
constexpr uint64_t kFloodBytes = 8 << 10;

#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_MEMORY_SANITIZER) || \
    defined(ABSL_HAVE_THREAD_SANITIZER)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

absl::Status CannotListen(absl::string_view listen, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", listen, ": ", why));
}

std::string InUse(const std::string& listen) {
  const std::string owner = PortOwner(std::atoi(listen.c_str() + listen.rfind(':') + 1));
  return absl::StrCat(std::strerror(EADDRINUSE),
                      owner.empty() ? "; its owner is unknown" : absl::StrCat(", by ", owner),
                      "; stop it or choose another port");
}

absl::StatusOr<sockaddr_storage> AddressOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("getsockname: ", std::strerror(errno)));
  }
  return address;
}

// IPv4 and IPv6 addresses have the port at the same offset.
in_port_t& PortOf(sockaddr_storage& address) {
  return reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// Replaces a wildcard address by the loopback address, where the port can be reached.
sockaddr_storage Reachable(sockaddr_storage address) {
  if (address.ss_family == AF_INET) {
    in_addr& host = reinterpret_cast<sockaddr_in&>(address).sin_addr;
    if (host.s_addr == htonl(INADDR_ANY)) host.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    in6_addr& host = reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_UNSPECIFIED(&host)) host = in6addr_loopback;
  }
  return address;
}

// Returns a listening socket; an invalid descriptor, with errno set, if it cannot listen there.
proto::Descriptor ListenOn(const sockaddr_storage& address, socklen_t size) {
  proto::Descriptor made(
      socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  const int on = 1;
  const int off = 0;
  if (made.valid()) {
    setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // Accepted sockets inherit this option: credits and votes must not wait for an acknowledgement.
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (address.ss_family == AF_INET6) {
      setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(made.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
        ::listen(made.get(), kBacklog) == 0) {
      return made;
    }
  }
  const int error = errno;
  made = proto::Descriptor();
  errno = error;
  return made;
}

// Returns a listening socket for each address of the host; with `any_port`, on ports that the
// system chooses.
absl::StatusOr<std::vector<proto::Descriptor>> ListenAt(const std::string& listen, bool any_port) {
  const std::string host(client::HostOf(listen));
  const std::string port = any_port ? "0" : listen.substr(listen.rfind(':') + 1);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return CannotListen(listen, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::vector<proto::Descriptor> sockets;
  in_port_t bound = 0;
  int error = 0;
  for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
    sockaddr_storage address = {};
    std::memcpy(&address, next->ai_addr, next->ai_addrlen);
    // Use the port that the system chose for every address of the host.
    if (bound != 0) PortOf(address) = bound;
    proto::Descriptor socket = ListenOn(address, next->ai_addrlen);
    if (!socket.valid()) {
      error = errno;
      // On a machine without IPv6, localhost is an IPv4 address only.
      if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;
      continue;
    }
    KAON_ASSIGN_OR_RETURN(sockaddr_storage chosen, AddressOf(socket.get()));
    bound = PortOf(chosen);
    sockets.push_back(std::move(socket));
    error = 0;
  }
  if (error == EADDRINUSE) return CannotListen(listen, InUse(listen));
  if (sockets.empty()) return CannotListen(listen, std::strerror(error));
  return sockets;
}

// Returns how many descriptors connections may use.
absl::StatusOr<size_t> Available(size_t reserve) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("getrlimit: ", std::strerror(errno)));
  }
  std::error_code error;
  const size_t open = std::distance(std::filesystem::directory_iterator("/proc/self/fd", error),
                                    std::filesystem::directory_iterator());
  const size_t needed = open + reserve + kMinDescriptors;
  if (limit.rlim_cur < needed) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the limit of open files (ulimit -n) is ", limit.rlim_cur, ", must be at least ", needed,
        ": ", open, " are open, ", reserve, " are kept for files and outgoing connections, and ",
        kMinDescriptors, " for incoming ones"));
  }
  return std::min<size_t>(limit.rlim_cur - open - reserve, kMaxDescriptors);
}

}  // namespace

// Reports every authorized call, and has its messages counted.
class Listener::PeerObserver : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit PeerObserver(Listener& listener) : listener_(listener) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const std::string name = PeerName(info->server_context()->peer());
    std::shared_ptr<CallCounts> counts;
    bool unknown = false;
    {
      MutexLock lock(listener_.mu_);
      if (!listener_.table_.has_value()) return nullptr;
      counts = listener_.table_->CountsOf(name);
      unknown = listener_.table_->IsUnknown(name);
    }
    if (unknown) MarkKnown(name, *info->server_context());
    if (counts == nullptr) return nullptr;
    if (listener_.limits_ != nullptr && listener_.policy_ != nullptr && counts->number == 0) {
      counts->number = auth::ConnectionOf(*info->server_context()->auth_context());
    }
    using Type = grpc::experimental::ServerRpcInfo::Type;
    const bool streams =
        info->type() == Type::CLIENT_STREAMING || info->type() == Type::BIDI_STREAMING;
    // gRPC deletes it.
    return std::make_unique<CallObserver>(std::move(counts), MessagesOf(info->method()), streams)
        .release();
  }

 private:
  void MarkKnown(const std::string& name, const grpc::ServerContextBase& server_context) {
    auth::PeerPolicy::CertificatePtr certificate;
    const std::shared_ptr<const grpc::AuthContext> context = server_context.auth_context();
    if (listener_.policy_ != nullptr && context != nullptr) {
      certificate = listener_.policy_->CertificateOf(*context);
    }
    const std::string identity = auth::PeerName(auth::PeerIdentity(server_context));
    MutexLock lock(listener_.mu_);
    listener_.table_->MarkKnown(name, identity, std::move(certificate));
  }

  CallObserver::Messages MessagesOf(absl::string_view method) const {
    const auto form = listener_.forms_.find(std::string(method));
    return form == listener_.forms_.end() ? CallObserver::Messages::kUnknown : form->second;
  }

  Listener& listener_;
};

absl::Status Listener::CheckAddress(const std::string& listen) {
  return ListenAt(listen, /*any_port=*/true).status();
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& listen,
                                                         monitor::EventCounts& counts) {
  KAON_ASSIGN_OR_RETURN(std::vector<proto::Descriptor> sockets,
                        ListenAt(listen, /*any_port=*/false));
  KAON_ASSIGN_OR_RETURN(sockaddr_storage bound, AddressOf(sockets[0].get()));
  proto::Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return CannotListen(listen, std::strerror(errno));
  return std::unique_ptr<Listener>(
      new Listener(std::move(sockets), ntohs(PortOf(bound)), std::move(wake), counts));
}

Listener::Listener(std::vector<proto::Descriptor> sockets, int port, proto::Descriptor wake,
                   monitor::EventCounts& counts)
    : sockets_(std::move(sockets)), port_(port), wake_(std::move(wake)), counts_(counts) {}

Listener::~Listener() { Stop(); }

size_t Listener::num_unknown() const {
  MutexLock lock(mu_);
  return table_.has_value() ? table_->num_unknown() : 0;
}

void Listener::AddService(grpc::ServerBuilder& builder, grpc::Service& service,
                          const char* full_name) {
  forms_.merge(CallObserver::FormsOf(service, full_name));
  builder.RegisterService(&service);
}

void Listener::AddTo(grpc::ServerBuilder& builder,
                     std::shared_ptr<grpc::ServerCredentials> credentials,
                     std::shared_ptr<auth::PeerPolicy> policy,
                     std::shared_ptr<auth::CallLimits> limits) {
  policy_ = std::move(policy);
  limits_ = std::move(limits);
  if (limits_ != nullptr) {
    limits_->OnExcess(
        [this](uint64_t number, bool had_handler) { EndExcess(number, had_handler); });
  }
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
  observers.push_back(std::make_unique<PeerObserver>(*this));
  builder.experimental().SetInterceptorCreators(std::move(observers));
}

absl::Status Listener::Start(size_t reserve, bool tls) {
  KAON_ASSIGN_OR_RETURN(const size_t descriptors, Available(reserve));
  KAON_ASSIGN_OR_RETURN(const sockaddr_storage address, AddressOf(sockets_[0].get()));
  {
    MutexLock lock(mu_);
    table_.emplace(ConnectionTable::Share(descriptors), limits_);
  }
  thread_ = std::thread([this] { Run(); });
  ListenerWatchdog::Options options;
  options.address = Reachable(address);
  options.tls = tls;
  watchdog_.emplace(std::move(options));
  if (policy_ == nullptr) return absl::OkStatus();
  PolicyThread::Options policy;
  policy.policy = policy_;
  policy.connections = [this] {
    MutexLock lock(mu_);
    return table_->Certified();
  };
  policy.end = [this](const std::vector<uint64_t>& connections) { return End(connections); };
  policy.now = monitor::WallNow;
  policy_thread_.emplace(std::move(policy));
  return absl::OkStatus();
}

void Listener::GuardMemory(uint64_t budget_bytes) {
  if (limits_ != nullptr) limits_->SetBudget(budget_bytes);
  if (kSanitized) return;
  GuardThread::Options options;
  options.most_bytes = MemoryGuard::MostBytes(budget_bytes);
  options.resident_bytes = ResidentBytes;
  options.connections = [this] { return Uses(); };
  options.cut = [this](const std::vector<uint64_t>& connections) { return End(connections); };
  options.close = [this](bool closed) { closed_.store(closed, std::memory_order_relaxed); };
  options.trim = [] { malloc_trim(0); };
  guard_.emplace(std::move(options));
}

std::vector<ConnectionUse> Listener::Uses() const {
  std::vector<OpenConnection> open;
  {
    MutexLock lock(mu_);
    if (table_.has_value()) open = table_->Open();
  }
  // The kernel takes microseconds for each, while accepted connections and first calls must not
  // wait.
  std::vector<ConnectionUse> uses;
  for (const OpenConnection& connection : open) {
    if (std::optional<ConnectionUse> use = UseOf(connection)) uses.push_back(*std::move(use));
  }
  return uses;
}

void Listener::EndExcess(uint64_t number, bool had_handler) {
  std::vector<OpenConnection> open;
  {
    MutexLock lock(mu_);
    open = table_->Open();
  }
  std::vector<uint64_t> ended;
  std::vector<uint64_t> silent;
  for (const OpenConnection& connection : open) {
    const uint64_t its_number = connection.counts->number;
    if (its_number == number) ended.push_back(connection.id);
    // One with a handler that is not found has ended: gRPC still parses what it had read.
    if (its_number != 0 || had_handler) continue;
    const std::optional<ConnectionUse> use = UseOf(connection);
    if (use && use->received_bytes >= kFloodBytes) silent.push_back(connection.id);
  }
  // The number of a connection is known from its first handler on. One that floods the server
  // before that is among those that sent much without any.
  if (End(ended.empty() ? silent : ended) > 0) {
    LOG_EVERY_T(WARNING, 1) << "a connection ended that went on beyond its limit of calls";
  }
}

size_t Listener::End(const std::vector<uint64_t>& connections) {
  size_t ended = 0;
  MutexLock lock(mu_);
  for (const uint64_t id : connections) {
    if (!table_->End(id)) continue;
    ++ended;
    counts_.Add(monitor::Event::kConnectionEnded);
  }
  return ended;
}

void Listener::Stop() {
  watchdog_.reset();
  guard_.reset();
  policy_thread_.reset();
  {
    MutexLock lock(mu_);
    if (stopped_) return;
    stopped_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  // New clients get a refused connection instead of one that never answers.
  for (const proto::Descriptor& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
}

void Listener::Run() {
  absl::Time next_sweep = SteadyNow() + kTick;
  bool paused = false;
  while (true) {
    std::vector<pollfd> wanted = {{wake_.get(), POLLIN, 0}};
    for (const proto::Descriptor& socket : sockets_) {
      if (!paused) wanted.push_back({socket.get(), POLLIN, 0});
    }
    const absl::Duration wait = paused ? kPause : kTick;
    const int ready =
        poll(wanted.data(), wanted.size(), static_cast<int>(absl::ToInt64Milliseconds(wait)));
    {
      MutexLock lock(mu_);
      if (stopped_) return;
      if (const absl::Time now = SteadyNow(); now >= next_sweep) {
        table_->Sweep(now);
        CountCut();
        next_sweep = now + kTick;
      }
    }
    paused = false;
    for (size_t i = 1; ready > 0 && i < wanted.size(); ++i) {
      if (wanted[i].revents != 0 && !AcceptOne(wanted[i].fd)) paused = true;
    }
  }
}

bool Listener::AcceptOne(int socket) {
  if (closed_.load(std::memory_order_relaxed)) return false;
  {
    MutexLock lock(mu_);
    // If known peers fill the table, waiting makes no room. Accept, so that the caller gets an end
    // of the connection.
    const bool wait = !table_->MakeRoom(SteadyNow()) && !table_->FullOfKnown();
    CountCut();
    if (wait) return false;
  }
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  const int fd =
      accept4(socket, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // The caller may have gone. Without descriptors or memory, the listener retries after a pause.
    const int error = errno;
    if (error == EAGAIN || error == ECONNABORTED || error == EINTR) return true;
    LOG_EVERY_T(ERROR, 1) << "no connection can be accepted: " << std::strerror(error);
    return false;
  }
  if (!Admit(fd, address)) {
    close(fd);
    return true;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = socket;
  connection.fd = fd;
  acceptor_->HandleNewConnection(&connection);
  return true;
}

bool Listener::Admit(int fd, const sockaddr_storage& address) {
  const Peer peer = PeerOf(address);
  MutexLock lock(mu_);
  const absl::Time now = SteadyNow();
  const bool added = table_->MakeRoom(now) && table_->Add(fd, peer, now);
  CountCut();
  if (added) return true;
  counts_.Add(monitor::Event::kConnectionRefused);
  LOG_EVERY_T(WARNING, 1) << "connection of " << peer.name << " closed: there are "
                          << table_->num_connections() << " already";
  return false;
}

void Listener::CountCut() {
  for (; counted_cuts_ < table_->num_cut(); ++counted_cuts_) {
    counts_.Add(monitor::Event::kConnectionCut);
  }
}

}  // namespace kaon::listener
