#include "tests/simulation/durable_state.h"

#include <optional>
#include <variant>
#include <vector>

#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "server/journal/identity_file.h"
#include "server/journal/journal_log.h"
#include "server/shard/snapshot/snapshot_directory.h"

namespace kaon::simulation {

absl::StatusOr<DurableState> ReadDurableState(const SimulatedDirectory& disk) {
  const std::unique_ptr<SimulatedDirectory> copy = disk.DurableCopy();
  DurableState state;
  // The journal need not hold entries that a snapshot contains.
  journal::JournalLog::Options options;
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id, journal::ReadIdentity(*copy));
  if (id.has_value()) {
    shard::SnapshotDirectory snapshots(*copy, *id);
    KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, snapshots.List());
    for (const uint64_t position : positions) {
      KAON_RETURN_IF_ERROR(snapshots.Verify(position));
      if (position < options.snapshot_position) continue;
      options.snapshot_position = position;
      KAON_ASSIGN_OR_RETURN(const shard::Snapshot snapshot, snapshots.Load(position));
      state.promised = snapshot.facts.promised;
    }
  }
  const auto visit = [&state](const journal::Entry& entry) {
    if (const auto* promise = std::get_if<journal::PromiseRecord>(&entry)) {
      if (proto::Compare(promise->ballot, state.promised) > 0) state.promised = promise->ballot;
    } else if (const auto* prepare = std::get_if<journal::PrepareRecord>(&entry)) {
      state.prepared_plan = prepare->prepared.plan();
    } else if (const auto* decision = std::get_if<journal::DecisionRecord>(&entry)) {
      state.decided = decision->record.plan().position();
      state.record = decision->record.SerializeAsString();
      state.prepared_plan.clear();
    }
    return absl::OkStatus();
  };
  KAON_RETURN_IF_ERROR(journal::JournalLog::Open(*copy, options, visit).status());
  return state;
}

}  // namespace kaon::simulation
