#include "server/shard/parameters/parameter_moves.h"

#include <utility>

#include "proto/status_macros.h"

namespace kaon::shard {

absl::StatusOr<std::unique_ptr<ParameterMoves>> ParameterMoves::Reserve(
    const v1::JobDefinition& job, ParameterStore& store, GradientAccumulator& accumulator) {
  std::unique_ptr<ParameterMoves> moves(new ParameterMoves(store, accumulator));
  bool to_disk = false;
  for (StoredParameter& parameter : store.parameters()) {
    if (parameter.group < 0) continue;
    KAON_ASSIGN_OR_RETURN(const HomeWish wish, store.WishOf(job.groups(parameter.group)));
    const bool is_all_on_disk =
        !parameter.HasInMemory(0) && !parameter.place.state_unit.has_value();
    if (wish == HomeWish::kMemory && !parameter.is_in_memory()) {
      KAON_RETURN_IF_ERROR(moves->Add(parameter, HomePlace::kMemory));
    } else if (wish == HomeWish::kDisk && !is_all_on_disk) {
      KAON_RETURN_IF_ERROR(moves->Add(parameter, HomePlace::kDisk));
      to_disk = true;
    }
  }
  if (to_disk) KAON_RETURN_IF_ERROR(store.UseDisk());
  return moves;
}

absl::Status ParameterMoves::Add(StoredParameter& parameter, HomePlace place) {
  Move& move = moves_.emplace_back();
  move.parameter = &parameter;
  KAON_ASSIGN_OR_RETURN(move.to, store_.AllocatePlace(parameter, place));
  const bool on_disk = place == HomePlace::kDisk;
  // The sum is where the weights are.
  if (on_disk != parameter.is_in_memory()) return absl::OkStatus();
  KAON_ASSIGN_OR_RETURN(move.sum, accumulator_.ReserveSum(parameter.id, on_disk));
  return absl::OkStatus();
}

ParameterMoves::~ParameterMoves() {
  for (const Move& move : moves_) store_.FreePlace(move.to);
  store_.NoteMoved();
}

absl::Status ParameterMoves::Copy(const StoredParameter& parameter, const StoredPlace& to) {
  KAON_ASSIGN_OR_RETURN(const tier::UnitReadPin from,
                        parameter.place.home->Pin(parameter.place.unit));
  KAON_ASSIGN_OR_RETURN(tier::UnitUpdatePin moved, to.home->PinForUpdate(to.unit));
  store_.backend().Copy(from.tensor(0), moved.next_weights());
  for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
    // Both places may share the state.
    if (from.tensor(i + 1).data() == moved.state(i).data()) continue;
    store_.backend().Copy(from.tensor(i + 1), moved.state(i));
  }
  moved.Commit();
  return absl::OkStatus();
}

absl::Status ParameterMoves::Apply(
    ParameterPublisher& publisher,
    absl::FunctionRef<void(uint32_t parameter_id, int version)> before_write) {
  // A snapshot reads them in this order, too.
  for (Move& move : moves_) {
    StoredParameter& parameter = *move.parameter;
    KAON_RETURN_IF_ERROR(Copy(parameter, move.to));
    for (const int version : {0, 1}) before_write(parameter.id, version);
    publisher.Move(parameter.id, move.to.home, move.to.unit);
    std::swap(parameter.place, move.to);
    // State that was in memory alone stays in its unit, which the new place shares.
    if (parameter.is_in_memory()) std::swap(parameter.place.state_unit, move.to.state_unit);
    if (move.sum != nullptr) accumulator_.ReplaceSum(parameter.id, std::move(move.sum));
    // The old place.
    store_.FreePlace(std::exchange(move.to, {}));
  }
  return absl::OkStatus();
}

}  // namespace kaon::shard
