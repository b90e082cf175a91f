#include "server/monitor/audit_log.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::monitor {

namespace {

// A request may be long and contain any bytes.
constexpr size_t kMaxTextBytes = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path,
                                                         const Limits& limits) {
  std::unique_ptr<AuditLog> log(new AuditLog(path, limits));
  KAON_RETURN_IF_ERROR(log->OpenFile());
  log->thread_ = std::thread([log = log.get()] { log->Run(); });
  return log;
}

AuditLog::~AuditLog() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status AuditLog::OpenFile() {
  proto::Descriptor file(
      open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat facts;
  if (!file.valid() || fstat(file.get(), &facts) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("audit_file '", path_, "' cannot be written: ", std::strerror(errno)));
  }
  file_ = std::move(file);
  file_bytes_ = facts.st_size;
  file_inode_ = facts.st_ino;
  return absl::OkStatus();
}

absl::Status AuditLog::Rotate() {
  const auto name = [this](int number) {
    return number == 0 ? path_ : absl::StrCat(path_, ".", number);
  };
  // After an earlier error a number may be free. Files with a higher one stay.
  int last = 1;
  while (last < limits_.old_files && access(name(last).c_str(), F_OK) == 0) ++last;
  for (int number = last - 1; number >= 0; --number) {
    if (std::rename(name(number).c_str(), name(number + 1).c_str()) == 0) continue;
    return absl::UnavailableError(absl::StrCat("'", name(number), "' cannot become '",
                                               name(number + 1), "': ", std::strerror(errno)));
  }
  return OpenFile();
}

absl::Status AuditLog::MakeRoom(size_t bytes) {
  struct stat facts;
  if (stat(path_.c_str(), &facts) != 0 || facts.st_ino != file_inode_) {
    KAON_RETURN_IF_ERROR(OpenFile());
  }
  if (file_bytes_ == 0 || file_bytes_ + bytes <= limits_.file_bytes) return absl::OkStatus();
  return Rotate();
}

absl::Status AuditLog::Write(const std::string& line) {
  const absl::Status room = MakeRoom(line.size());
  LOG_IF(ERROR, !room.ok() && !overdue_)
      << "audit file " << path_
      << " grows beyond its bound, or goes on where it was moved: " << room;
  overdue_ = !room.ok();
  const ssize_t written = write(file_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    file_bytes_ += line.size();
    return absl::OkStatus();
  }
  const absl::Status failed = absl::UnavailableError(
      written < 0 ? absl::StrCat("cannot be written: ", std::strerror(errno)) : "the disk is full");
  // No line begins within another one.
  if (written > 0 && ftruncate(file_.get(), static_cast<off_t>(file_bytes_)) != 0) {
    file_bytes_ += written;
  }
  return failed;
}

void AuditLog::Run() {
  MutexLock lock(mu_);
  while (true) {
    while (lines_.empty() && !stopped_) changed_.Wait(mu_);
    if (lines_.empty()) return;
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    mu_.Unlock();
    const absl::Status written = Write(line);
    if (!written.ok()) {
      LOG_EVERY_T(ERROR, 10) << "a line of audit file " << path_ << " is lost: " << written;
    }
    mu_.Lock();
  }
}

void AuditLog::Add(absl::string_view kind, absl::string_view peer, absl::string_view what,
                   const absl::Status& result, absl::Time now) {
  if (lines_.size() >= limits_.waiting) {
    ++left_out_;
    return;
  }
  nlohmann::ordered_json object = {
      {"ts", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", now, absl::UTCTimeZone())},
      {"kind", std::string(kind)},
      {"peer", std::string(peer.substr(0, kMaxTextBytes))},
      {"code", absl::StatusCodeToString(result.code())}};
  if (!what.empty()) object["act"] = std::string(what.substr(0, kMaxTextBytes));
  if (!result.ok()) object["reason"] = std::string(result.message().substr(0, kMaxTextBytes));
  if (left_out_ > 0) object["left_out"] = std::exchange(left_out_, 0);
  lines_.push_back(absl::StrCat(
      object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace), "\n"));
  changed_.NotifyAll();
}

void AuditLog::Act(absl::string_view peer, absl::string_view act, const absl::Status& result,
                   absl::Time now) {
  MutexLock lock(mu_);
  Add("act", peer, act, result, now);
}

void AuditLog::Refusal(absl::string_view peer, const absl::Status& refusal, absl::Time now) {
  MutexLock lock(mu_);
  if (now >= second_ + absl::Seconds(1) || now < second_) {
    second_ = now;
    refusals_ = 0;
  }
  if (++refusals_ > limits_.refusals_per_second) {
    ++left_out_;
    return;
  }
  Add("refusal", peer, "", refusal, now);
}

}  // namespace kaon::monitor
