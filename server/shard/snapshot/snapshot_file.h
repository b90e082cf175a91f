// What a shard's snapshot holds beside its tensors, and the bytes of the file that says so
// (docs/formats.md): whose it is, what the agreement knew, and where the tensors lie. Pure
// functions and plain values; any thread.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_FILE_H_
#define KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/journal/identity_file.h"
#include "server/shard/agreement/agreement_snapshot.h"

namespace kaon::shard {

struct Snapshot {
  // Of the data_dir it belongs to.
  journal::DirectoryId directory;
  AgreementSnapshot facts;
  v1::CheckpointPart part;

  uint64_t position() const { return facts.state.applied_position(); }
};

std::string FormatSnapshot(const Snapshot& snapshot);

// What `bytes`, the whole file called `file`, say. Total: any bytes are read or refused. DATA_LOSS
// naming both values for bytes that are not those that were written, and for what cannot be true:
// a part that is of another shard or position than the rest, tensors that are not those of the
// shard's parameters. FAILED_PRECONDITION for another version, naming both, and for fields that
// this version does not know.
absl::StatusOr<Snapshot> ParseSnapshot(absl::string_view file, absl::string_view bytes);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_FILE_H_
