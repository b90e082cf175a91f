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
  file_ = proto::Descriptor(
      open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat facts;
  if (!file_.valid() || fstat(file_.get(), &facts) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("audit_file '", path_, "' cannot be written: ", std::strerror(errno)));
  }
  file_bytes_ = facts.st_size;
  file_inode_ = facts.st_ino;
  return absl::OkStatus();
}

absl::Status AuditLog::Rotate() {
  for (int number = limits_.old_files - 1; number > 0; --number) {
    // The first ones may not exist yet.
    std::rename(absl::StrCat(path_, ".", number).c_str(),
                absl::StrCat(path_, ".", number + 1).c_str());
  }
  if (std::rename(path_.c_str(), absl::StrCat(path_, ".1").c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot be renamed: ", std::strerror(errno)));
  }
  return OpenFile();
}

absl::Status AuditLog::Write(const std::string& line) {
  struct stat facts;
  // Another program may have moved the file, or an earlier line found no descriptor.
  if (!file_.valid() || stat(path_.c_str(), &facts) != 0 || facts.st_ino != file_inode_) {
    KAON_RETURN_IF_ERROR(OpenFile());
  }
  if (file_bytes_ > 0 && file_bytes_ + line.size() > limits_.file_bytes) {
    KAON_RETURN_IF_ERROR(Rotate());
  }
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
