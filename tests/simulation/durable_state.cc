#include "tests/simulation/durable_state.h"

#include <variant>

#include "proto/status_macros.h"
#include "server/journal/journal_log.h"

namespace kaon::simulation {

absl::StatusOr<DurableState> ReadDurableState(const SimulatedDirectory& disk) {
  const std::unique_ptr<SimulatedDirectory> copy = disk.DurableCopy();
  DurableState state;
  const auto visit = [&state](const journal::Entry& entry) {
    if (const auto* promise = std::get_if<journal::PromiseRecord>(&entry)) {
      state.promised = promise->ballot;
    } else if (const auto* prepare = std::get_if<journal::PrepareRecord>(&entry)) {
      state.prepared_plan = prepare->prepared.plan();
    } else if (const auto* decision = std::get_if<journal::DecisionRecord>(&entry)) {
      state.decided = decision->record.plan().position();
      state.record = decision->record.SerializeAsString();
      state.prepared_plan.clear();
    }
    return absl::OkStatus();
  };
  KAON_RETURN_IF_ERROR(journal::JournalLog::Open(*copy, {}, visit).status());
  return state;
}

}  // namespace kaon::simulation
