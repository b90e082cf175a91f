// Input: the .meta file of a snapshot. It is read or rejected. A snapshot that was read is written
// again unchanged.
#include <glog/logging.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "server/shard/snapshot/snapshot_file.h"

namespace kaon::shard {
namespace {

// Ten numbers follow the first line; the last two are the lengths of the messages.
constexpr size_t kFirstLine = sizeof("kaon snapshot 2\n") - 1;
constexpr size_t kLengthsAt = kFirstLine + 8 * 8;
constexpr size_t kMessagesAt = kFirstLine + 10 * 8;

void Read(absl::string_view file) {
  const absl::StatusOr<Snapshot> snapshot = ParseSnapshot("s", file);
  if (!snapshot.ok()) {
    CHECK(absl::IsDataLoss(snapshot.status()) || absl::IsFailedPrecondition(snapshot.status()))
        << snapshot.status();
    return;
  }
  const absl::StatusOr<Snapshot> again = ParseSnapshot("s", FormatSnapshot(*snapshot));
  CHECK(again.ok()) << again.status();
  CHECK(again->directory == snapshot->directory);
  CHECK_EQ(again->position(), snapshot->position());
  CHECK(again->facts.state.SerializeAsString() == snapshot->facts.state.SerializeAsString());
  CHECK(again->part.SerializeAsString() == snapshot->part.SerializeAsString());
}

// Corrects the lengths of the messages: a message of another length would be rejected at once.
std::string WithRightLengths(std::string file) {
  if (file.size() < kMessagesAt) return file;
  const uint64_t held = file.size() - kMessagesAt;
  const uint64_t state =
      std::min(held, checkpoint::FromLittleEndian64(absl::string_view(file).substr(kLengthsAt)));
  file.replace(kLengthsAt, 16,
               checkpoint::LittleEndian64(state) + checkpoint::LittleEndian64(held - state));
  return file;
}

}  // namespace
}  // namespace kaon::shard

// Input: a byte, then a whole file or a file without its digest; the byte says which. With its
// digest, every change would be rejected at once.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 1) return 0;
  // Silences the log line for strings that are no UTF-8.
  const google::protobuf::LogSilencer silencer;
  std::string file(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  if (bytes[0] % 3 == 0) {
    kaon::shard::Read(file);
    return 0;
  }
  if (bytes[0] % 3 == 1) file = kaon::shard::WithRightLengths(std::move(file));
  kaon::shard::Read(file + kaon::checkpoint::Sha256(file));
  return 0;
}
