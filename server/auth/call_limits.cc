#include "server/auth/call_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kaon::auth {

namespace {

// A connection is asked to end each time that so many of its calls were refused.
constexpr size_t kRefusals = 64;
// One waiting call of a connection is forgiven in each.
constexpr absl::Duration kForgiven = absl::Seconds(1);
// Longer than the listener keeps a connection without a handler.
constexpr absl::Duration kYoung = absl::Seconds(15);

}  // namespace

void CallLimits::SetBudget(uint64_t bytes) {
  MutexLock lock(mu_);
  calls_of_identity_ = std::max<size_t>(bytes / 4 / kCallBytes, kFreeCalls);
}

uint64_t CallLimits::Connect(absl::Time now) {
  MutexLock lock(mu_);
  while (!young_.empty() && young_.front().first + kYoung <= now) {
    const auto found = connections_.find(young_.front().second);
    if (found != connections_.end() && !found->second.had_handler) Erase(found);
    young_.pop_front();
  }
  return ++last_;
}

CallLimits::Connection& CallLimits::Find(uint64_t connection, const std::string& identity,
                                         absl::Time now) {
  const auto [found, is_new] = connections_.try_emplace(connection);
  if (is_new) {
    found->second.identity = identity;
    found->second.forgiven = now;
    young_.emplace_back(now, connection);
  }
  return found->second;
}

void CallLimits::Forgive(Connection& connection, absl::Time now) {
  const int64_t seconds = (now - connection.forgiven) / kForgiven;
  if (seconds <= 0) return;
  connection.forgiven += seconds * kForgiven;
  const size_t calls = std::min<size_t>(connection.waiting, seconds);
  connection.waiting -= calls;
  Remove(connection.identity, calls);
}

absl::Status CallLimits::Arrive(uint64_t connection, const std::string& identity,
                                uint64_t header_bytes, absl::Time now) {
  bool end = false;
  bool had_handler = false;
  absl::Status status = Note(connection, identity, header_bytes, now, end, had_handler);
  if (end && end_) end_(connection, had_handler);
  return status;
}

absl::Status CallLimits::Note(uint64_t number, const std::string& identity, uint64_t header_bytes,
                              absl::Time now, bool& end, bool& had_handler) {
  MutexLock lock(mu_);
  Connection& connection = Find(number, identity, now);
  had_handler = connection.had_handler;
  if (header_bytes > kHeaderBytes) {
    // A client of gRPC keeps to the smaller size that the server announces.
    end = true;
    return absl::UnavailableError(
        absl::StrCat("headers have ", header_bytes, " bytes, at most ", kHeaderBytes, " allowed"));
  }
  Forgive(connection, now);
  const size_t calls = connection.waiting + connection.open;
  const auto all = of_identity_.find(connection.identity);
  std::string limit;
  if (calls >= calls_of_connection_) {
    limit = absl::StrCat(calls_of_connection_, " calls of one connection");
  } else if (calls >= kFreeCalls && all != of_identity_.end() &&
             all->second >= calls_of_identity_) {
    limit = absl::StrCat(calls_of_identity_, " calls of ", connection.identity);
  }
  if (!limit.empty()) {
    end = ++connection.refused % kRefusals == 0;
    return absl::UnavailableError(absl::StrCat("at most ", limit, " may be open, try again"));
  }
  ++connection.waiting;
  ++of_identity_[connection.identity];
  return absl::OkStatus();
}

void CallLimits::Begin(uint64_t number) {
  MutexLock lock(mu_);
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.had_handler = true;
  ++connection.open;
  // A call that waited for long was forgiven already.
  connection.waiting > 0 ? --connection.waiting : ++of_identity_[connection.identity];
}

void CallLimits::End(uint64_t number) {
  MutexLock lock(mu_);
  const auto found = connections_.find(number);
  // The connection may have been forgotten, with its calls.
  if (found == connections_.end() || found->second.open == 0) return;
  --found->second.open;
  Remove(found->second.identity, 1);
}

void CallLimits::Forget(uint64_t number) {
  MutexLock lock(mu_);
  if (const auto found = connections_.find(number); found != connections_.end()) Erase(found);
}

void CallLimits::Erase(std::map<uint64_t, Connection>::iterator found) {
  Remove(found->second.identity, found->second.waiting + found->second.open);
  connections_.erase(found);
}

void CallLimits::Remove(const std::string& identity, size_t calls) {
  const auto all = of_identity_.find(identity);
  if (calls == 0 || all == of_identity_.end()) return;
  all->second -= std::min(all->second, calls);
  if (all->second == 0) of_identity_.erase(all);
}

}  // namespace kaon::auth
