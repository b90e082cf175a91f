// Input: a manifest. Its bytes are read or rejected, and so is its content. A manifest that was
// read is written again unchanged.
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

// Input: a byte, then a whole file or only its message; the byte says which. To a message the
// target adds the frame, because the file's digest would reject every change.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  namespace checkpoint = kaon::checkpoint;
  if (size < 1) return 0;
  // Silences the log line for strings that are no UTF-8.
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
