// The .meta file of a shard's snapshot (docs/formats.md): its owner, the agreement state, and the
// place of each tensor. Pure functions and plain values; any thread.
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
  // Identity of the data_dir that owns the snapshot.
  journal::DirectoryId directory;
  AgreementSnapshot facts;
  v1::CheckpointPart part;

  uint64_t position() const { return facts.state.applied_position(); }
};

std::string FormatSnapshot(const Snapshot& snapshot);

// Parses `bytes`, the whole contents of `file`. Total: accepts or refuses any bytes. Returns
// DATA_LOSS naming both values for changed bytes and for contradictions. Examples are a part of
// another shard or position, and tensors that do not match the shard's parameters. Returns
// FAILED_PRECONDITION for another version, naming both, and for fields unknown to this version.
absl::StatusOr<Snapshot> ParseSnapshot(absl::string_view file, absl::string_view bytes);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_FILE_H_
