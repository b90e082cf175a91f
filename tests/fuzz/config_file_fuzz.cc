// Input: the text of a configuration, or of a job's definition as textproto or JSON. It is read or
// rejected. A value that was read stays the same when it is written and read again. An accepted job
// is still accepted with every option written out.
#include <glog/logging.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "job/effective_job.h"
#include "job/validation.h"
#include "kaon/v1/config.pb.h"
#include "server/admin_cli/checkpoint_command.h"
#include "server/config/server_config.h"
#include "tests/fuzz/scratch_directory.h"

namespace kaon {
namespace {

void CheckRefusal(const absl::Status& status) { CHECK(absl::IsInvalidArgument(status)) << status; }

std::string Put(const char* name, const std::string& text) {
  const std::string path = absl::StrCat(ScratchDirectory(), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

template <typename Config>
void CheckConfig(const std::string& text) {
  Config config;
  const absl::Status read = config::LoadTextproto(Put("config", text), &config);
  if (!read.ok()) return CheckRefusal(read);
  std::string printed;
  CHECK(google::protobuf::TextFormat::PrintToString(config, &printed));
  Config again;
  const absl::Status reread = config::LoadTextproto(Put("config", printed), &again);
  CHECK(reread.ok()) << reread;
  CHECK(again.SerializeAsString() == config.SerializeAsString());
}

void CheckJob(const char* name, const std::string& text) {
  const absl::StatusOr<v1::JobDefinition> job = admin_cli::ReadJobFile(Put(name, text));
  if (!job.ok()) return CheckRefusal(job.status());
  const absl::StatusOr<v1::JobDefinition> effective = job::Effective(*job);
  if (!effective.ok()) return CheckRefusal(effective.status());
  CHECK(job::Effective(*effective).value().SerializeAsString() == effective->SerializeAsString());
  const absl::StatusOr<v1::Placement> placement = job::ValidateJob(*effective);
  if (!placement.ok()) return CheckRefusal(placement.status());
  CHECK_EQ(placement->parameters_size(), effective->parameters_size());
}

}  // namespace
}  // namespace kaon

// Input: a byte that chooses the kind of text, then the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 1) return 0;
  // Silences the log line for strings that are no UTF-8.
  const google::protobuf::LogSilencer silencer;
  const std::string text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  switch (bytes[0] % 4) {
    case 0:
      kaon::CheckConfig<kaon::v1::ShardConfig>(text);
      break;
    case 1:
      kaon::CheckConfig<kaon::v1::CoordinatorConfig>(text);
      break;
    case 2:
      kaon::CheckJob("job.textproto", text);
      break;
    default:
      kaon::CheckJob("job.json", text);
  }
  return 0;
}
