#include "server/shard/transport/shm_endpoint.h"

#include <glog/logging.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kernels/steady_clock.h"
#include "proto/local_socket.h"
#include "proto/shm_link.h"
#include "proto/status_macros.h"
#include "server/auth/peer_identity.h"

namespace kaon::shard {

namespace {

// Maximum number of connections without a token. Others wait in the listener's queue.
constexpr size_t kMaxConnections = 16;
// Interval between checks for expired connections.
constexpr absl::Duration kTick = absl::Milliseconds(500);

constexpr char kName[] = "kaon-shard-";
constexpr char kSuffix[] = ".sock";
// Equal length to kSuffix, so that both names have one size limit.
constexpr char kNotListeningSuffix[] = ".bind";
// Digits between prefix and suffix.
constexpr size_t kRandomDigits = 32;

// Returns a name that nobody else has or can guess.
std::string NewName() {
  ShmTokens names(absl::ZeroDuration());
  return absl::StrCat(
      kName, absl::BytesToHexString(
                 names.Issue(proto::Identity(), SteadyNow()).substr(0, kRandomDigits / 2)));
}

// Returns true for a name that NewName can create.
bool IsOwnName(absl::string_view name) {
  return absl::ConsumePrefix(&name, kName) && absl::ConsumeSuffix(&name, kSuffix) &&
         name.size() == kRandomDigits &&
         std::all_of(name.begin(), name.end(), absl::ascii_isxdigit);
}

// Removes the sockets of this user's killed shards, and nothing else.
void RemoveAbandoned(const std::string& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator file(directory, error), end; !error && file != end;
       file.increment(error)) {
    struct stat facts;
    const std::string path = file->path();
    if (!IsOwnName(file->path().filename().string()) || lstat(path.c_str(), &facts) != 0 ||
        !S_ISSOCK(facts.st_mode) || facts.st_uid != geteuid()) {
      continue;
    }
    if (proto::IsAbandoned(path)) unlink(path.c_str());
  }
}

// In a directory that everyone may write to, anyone could replace the shard's socket.
absl::Status CheckDirectory(const std::string& directory) {
  struct stat facts;
  if (stat(directory.c_str(), &facts) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shm_dir ", directory, ": ", std::strerror(errno)));
  }
  if ((facts.st_mode & S_IWOTH) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("shm_dir %s has mode %04o, others may not write to it: chmod o-w, or name "
                      "another directory",
                      directory, facts.st_mode & 07777));
}

// Binds under a temporary name and renames the socket once it listens. So a socket under its final
// name without a listener is abandoned.
absl::StatusOr<proto::Descriptor> ListenIn(const std::string& directory, std::string* address) {
  KAON_RETURN_IF_ERROR(CheckDirectory(directory));
  RemoveAbandoned(directory);
  const std::string base = absl::StrCat(directory, "/", NewName());
  const std::string unready = base + kNotListeningSuffix;
  KAON_ASSIGN_OR_RETURN(proto::Descriptor listener, proto::ListenLocal(unready));
  *address = base + kSuffix;
  if (std::rename(unready.c_str(), address->c_str()) == 0) return listener;
  const std::string why = std::strerror(errno);
  unlink(unready.c_str());
  return absl::FailedPreconditionError(absl::StrCat("cannot rename ", unready, ": ", why));
}

absl::StatusOr<proto::Descriptor> Listen(const std::string& directory, std::string* address) {
  if (!directory.empty()) return ListenIn(directory, address);
  *address = absl::StrCat("@", NewName());
  return proto::ListenLocal(*address);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmEndpoint>> ShmEndpoint::Start(Options options,
                                                                const ShmBackends& backends) {
  std::string address;
  KAON_ASSIGN_OR_RETURN(proto::Descriptor listener, Listen(options.directory, &address));
  proto::Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::FailedPreconditionError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  return std::unique_ptr<ShmEndpoint>(new ShmEndpoint(
      std::move(options), backends, std::move(address), std::move(listener), std::move(wake)));
}

ShmEndpoint::ShmEndpoint(Options options, const ShmBackends& backends, std::string address,
                         proto::Descriptor listener, proto::Descriptor wake)
    : options_(std::move(options)),
      backends_(backends),
      address_(std::move(address)),
      boot_id_(proto::BootId()),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      tokens_(options_.token_lifetime),
      thread_([this] { Run(); }) {}

ShmEndpoint::~ShmEndpoint() { Stop(); }

void ShmEndpoint::Stop() {
  std::vector<Session> sessions;
  {
    MutexLock lock(mu_);
    if (stopped_) return;
    stopped_ = true;
    for (const Session& session : sessions_) session.session->Stop();
  }
  Wake();
  // After the join, no new session starts.
  thread_.join();
  {
    MutexLock lock(mu_);
    sessions = std::move(sessions_);
    sessions_.clear();
  }
  for (Session& session : sessions) session.thread.join();
  if (!options_.directory.empty()) unlink(address_.c_str());
}

absl::StatusOr<v1::OpenSessionResponse> ShmEndpoint::Open(const proto::Identity& peer,
                                                          const std::string& boot_id) {
  if (boot_id_.empty() || boot_id != boot_id_) {
    return absl::FailedPreconditionError("boot_id is not that of the shard's machine");
  }
  if (peer.role == proto::Role::kReader) {
    return absl::FailedPreconditionError("sessions over shared memory are for workers");
  }
  MutexLock lock(mu_);
  if (stopped_) return absl::UnavailableError("the shard is shutting down");
  const absl::Time now = SteadyNow();
  size_t taken = tokens_.Count(now);
  for (const auto& [uri, sessions] : held_) taken += sessions;
  if (taken >= options_.max_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shm_sessions is ", options_.max_sessions, ", all of them are taken"));
  }
  const auto held = held_.find(peer.ToUri());
  const size_t own = tokens_.CountOf(peer, now) + (held == held_.end() ? 0 : held->second);
  if (own >= LimitOf(peer)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(auth::PeerName(peer), " has ", own, " of ", options_.max_sessions,
                     " sessions over shared memory, must have at most ", LimitOf(peer)));
  }
  v1::OpenSessionResponse response;
  response.set_socket(address_);
  response.set_token(tokens_.Issue(peer, now));
  return response;
}

uint32_t ShmEndpoint::LimitOf(const proto::Identity& peer) const {
  // Without certificates, workers cannot be told apart.
  if (peer.domain.empty()) return options_.max_sessions;
  const uint32_t half = (options_.max_sessions + 1) / 2;
  // A peer without a rank may represent all workers of a job.
  return peer.rank.has_value() ? std::min(kMaxShmSessionsOfRank, half) : half;
}

void ShmEndpoint::Release(const proto::Identity& peer) {
  const auto held = held_.find(peer.ToUri());
  if (--held->second == 0) held_.erase(held);
}

uint32_t ShmEndpoint::num_sessions() const {
  MutexLock lock(mu_);
  return static_cast<uint32_t>(sessions_.size() - ended_.size());
}

void ShmEndpoint::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void ShmEndpoint::Run() {
  while (true) {
    std::vector<pollfd> wanted = {{wake_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      wanted.push_back({connection.socket.get(), POLLIN, 0});
    }
    const bool accepts = connections_.size() < kMaxConnections && SteadyNow() >= accept_after_;
    if (accepts) wanted.push_back({listener_.get(), POLLIN, 0});
    const bool waits = accepts && connections_.empty();
    poll(wanted.data(), wanted.size(),
         waits ? -1 : static_cast<int>(absl::ToInt64Milliseconds(kTick)));
    uint64_t wakes = 0;
    (void)!read(wake_.get(), &wakes, sizeof(wakes));
    {
      MutexLock lock(mu_);
      if (stopped_) return;
    }
    JoinEnded();
    connections_.erase(
        std::remove_if(connections_.begin(), connections_.end(),
                       [this](Connection& connection) { return TakeToken(connection); }),
        connections_.end());
    if (accepts) Accept();
  }
}

void ShmEndpoint::JoinEnded() {
  std::vector<Session> joined;
  {
    MutexLock lock(mu_);
    for (const ShmSession* ended : ended_) {
      const auto session =
          std::find_if(sessions_.begin(), sessions_.end(),
                       [ended](const Session& other) { return other.session.get() == ended; });
      joined.push_back(std::move(*session));
      sessions_.erase(session);
    }
    ended_.clear();
  }
  for (Session& session : joined) session.thread.join();
}

void ShmEndpoint::Accept() {
  proto::Descriptor socket(
      accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Without a free descriptor the connection stays in the queue, and an immediate retry would spin.
  if (!socket.valid() && errno != EAGAIN) accept_after_ = SteadyNow() + kTick;
  if (!socket.valid() || !MayConnect(socket)) return;
  connections_.push_back({std::move(socket), SteadyNow() + options_.token_timeout});
}

bool ShmEndpoint::MayConnect(const proto::Descriptor& socket) const {
  const absl::StatusOr<uid_t> user = proto::PeerUser(socket);
  const std::vector<uid_t>& others = options_.other_users;
  if (user.ok() &&
      (*user == options_.user || std::find(others.begin(), others.end(), *user) != others.end())) {
    return true;
  }
  monitor::NoteUnauthorized(
      *backends_.counts, "a process of this machine",
      user.ok() ? absl::PermissionDeniedError(absl::StrCat("user ", *user, " is not in shm_uids"))
                : user.status());
  return false;
}

bool ShmEndpoint::TakeToken(Connection& connection) {
  char token[proto::kShmTokenBytes];
  const ssize_t received = recv(connection.socket.get(), token, sizeof(token), MSG_DONTWAIT);
  if (received < 0 && errno == EAGAIN && SteadyNow() < connection.deadline) return false;
  // A peer that closes without a message only tested whether somebody listens.
  if (received == 0) return true;
  std::optional<proto::Identity> peer;
  if (received == static_cast<ssize_t>(sizeof(token))) {
    MutexLock lock(mu_);
    peer = tokens_.Redeem(absl::string_view(token, sizeof(token)), SteadyNow());
    if (peer.has_value()) ++held_[peer->ToUri()];
  }
  if (!peer.has_value()) {
    monitor::NoteUnauthorized(
        *backends_.counts, "a process of this machine",
        absl::UnauthenticatedError("no token that was issued and not used yet"));
    return true;
  }
  const absl::Status status = StartSession(std::move(connection.socket), *peer);
  if (!status.ok()) {
    LOG(WARNING) << "no session for " << auth::PeerName(*peer) << ": " << status;
    MutexLock lock(mu_);
    Release(*peer);
  }
  return true;
}

absl::Status ShmEndpoint::StartSession(proto::Descriptor socket, const proto::Identity& peer) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<proto::ShmLink> link,
                        proto::ShmLink::Serve(std::move(socket), options_.ring_bytes));
  auto session =
      std::make_shared<ShmSession>(backends_, peer, std::move(link), options_.idle_limit);
  LOG(INFO) << "session over shared memory for " << auth::PeerName(peer);
  MutexLock lock(mu_);
  if (stopped_) return absl::OkStatus();
  sessions_.push_back({session, std::thread([this, session, peer] {
                         session->Run();
                         MutexLock ended_lock(mu_);
                         Release(peer);
                         ended_.push_back(session.get());
                         Wake();
                       })});
  return absl::OkStatus();
}

}  // namespace kaon::shard
