#include "server/checkpoint/written_by.h"

#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace kaon::checkpoint {

namespace {

// Goes up with whatever changes bits of results.
constexpr char kBuild[] = "kaon 1";

}  // namespace

std::string ProcessorModel(absl::string_view cpuinfo) {
  for (const absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos || !absl::StartsWith(line, "model name")) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "unknown";
}

v1::CheckpointFile WrittenBy(absl::string_view backend) {
  std::ifstream file("/proc/cpuinfo");
  std::stringstream cpuinfo;
  cpuinfo << file.rdbuf();
  v1::CheckpointFile written_by;
  written_by.set_build(kBuild);
  written_by.set_backend(std::string(backend));
  written_by.set_device_class(ProcessorModel(cpuinfo.str()));
  return written_by;
}

}  // namespace kaon::checkpoint
