#include "server/config/server_log.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace kaon::config {

namespace {

struct Level {
  absl::string_view name;
  int least_severity;
  int verbosity;
};

constexpr Level kLevels[] = {{"", google::GLOG_INFO, 0},
                             {"debug", google::GLOG_INFO, 1},
                             {"info", google::GLOG_INFO, 0},
                             {"warning", google::GLOG_WARNING, 0},
                             {"error", google::GLOG_ERROR, 0}};

const Level* Find(absl::string_view name) {
  for (const Level& level : kLevels) {
    if (level.name == name) return &level;
  }
  return nullptr;
}

}  // namespace

absl::Status CheckLogLevel(absl::string_view level) {
  if (Find(level) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("log_level is \"", proto::Excerpt(level),
                                                 "\", must be debug, info, warning or error"));
}

absl::Status SetLogLevel(absl::string_view level) {
  const Level* const found = Find(level);
  if (found == nullptr) return CheckLogLevel(level);
  FLAGS_minloglevel = found->least_severity;
  FLAGS_v = found->verbosity;
  return absl::OkStatus();
}

}  // namespace kaon::config
