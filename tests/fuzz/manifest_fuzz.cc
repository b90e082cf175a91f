// A manifest is read or refused, whatever its bytes, and what it says is accepted or refused,
// whatever it says; what is read is written again as it was read.
#include <glog/logging.h>
#include <google/protobuf/stubs/logging.h>

#include <string>

#include "server/checkpoint/manifest.h"
#include "server/checkpoint/manifest_file.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/checkpoint/safetensors/little_endian.h"

namespace kaon::checkpoint {
namespace {

void Read(absl::string_view file) {
  const auto manifest = ParseManifest("m", file);
  if (!manifest.ok()) return;
  const absl::Status status = CheckManifest(*manifest);
  const auto formatted = FormatManifest(*manifest);
  CHECK(formatted.ok()) << formatted.status();
  const auto again = ParseManifest("m", *formatted);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(CheckManifest(*again), status);
}

}  // namespace
}  // namespace kaon::checkpoint

// A byte that says whether the rest is a whole file, or a message to which the frame is added: its
// digest would keep every change of the message from being looked at.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  namespace checkpoint = kaon::checkpoint;
  if (size < 1) return 0;
  // Strings that are no UTF-8 are refused aloud.
  const google::protobuf::LogSilencer silencer;
  const absl::string_view rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  if (bytes[0] % 2 == 0) {
    checkpoint::Read(rest);
    return 0;
  }
  std::string file = "kaon checkpoint 2\n" + checkpoint::LittleEndian64(rest.size());
  file.append(rest.data(), rest.size());
  file += checkpoint::Sha256(file);
  checkpoint::Read(file);
  return 0;
}
