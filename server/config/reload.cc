#include "server/config/reload.h"

#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/config/server_log.h"

namespace kaon::config {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kLogLevel[] = "log_level";
constexpr char kLogFormat[] = "log_format";

// Returns the names of the fields that differ, without the log level.
std::vector<std::string> Differing(const Message& running, const Message& reread) {
  std::vector<std::string> names;
  for (int i = 0; i < running.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = running.GetDescriptor()->field(i);
    if (field->name() == kLogLevel) continue;
    google::protobuf::util::MessageDifferencer differencer;
    if (!differencer.CompareWithFields(running, reread, {field}, {field})) {
      names.push_back(field->name());
    }
  }
  return names;
}

}  // namespace

void ApplyLogLevel(const Message& config) {
  const FieldDescriptor* const field = config.GetDescriptor()->FindFieldByName(kLogLevel);
  if (field == nullptr) return;
  const absl::Status set = SetLogLevel(config.GetReflection()->GetString(config, field));
  LOG_IF(ERROR, !set.ok()) << set.message();
}

void ApplyLogFormat(const Message& config, const std::string& program) {
  const FieldDescriptor* const field = config.GetDescriptor()->FindFieldByName(kLogFormat);
  if (field == nullptr) return;
  const absl::Status set = SetLogFormat(config.GetReflection()->GetString(config, field), program);
  LOG_IF(ERROR, !set.ok()) << set.message();
}

void Reload(const CommandLine& command_line, const Message& running, const Message* reread) {
  if (reread == nullptr) {
    LOG(ERROR) << "SIGHUP: the configuration cannot be read; everything stays as it is";
    return;
  }
  ApplyLogLevel(*reread);
  const absl::Status certificates = command_line.check_certificates(running);
  const std::vector<std::string> differing = Differing(running, *reread);
  const std::string rest =
      differing.empty() ? "" : absl::StrCat("; restart to apply ", absl::StrJoin(differing, ", "));
  if (!certificates.ok()) {
    LOG(ERROR) << "SIGHUP: the log level is set; " << certificates.message()
               << ": replace the file, which is read when it changes" << rest;
    return;
  }
  LOG(INFO) << "SIGHUP: the log level is set, and the certificates are good" << rest;
}

}  // namespace kaon::config
