// Moves parameters between memory and disk when their group gets another tier. It allocates the new
// places before the shard votes for the change, and moves once that is decided. Owned by
// AppliedState; step thread.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_MOVES_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_MOVES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class ParameterMoves {
 public:
  // Allocates a place for each parameter that is not where its group in `job` asks for. A group
  // without a wish leaves its parameters where they are. All arguments outlive the result.
  // RESOURCE_EXHAUSTED with the arithmetic, or if this shard has no such tier.
  static absl::StatusOr<std::unique_ptr<ParameterMoves>> Reserve(const v1::JobDefinition& job,
                                                                 ParameterStore& store,
                                                                 GradientAccumulator& accumulator);
  // Frees the places that are not used.
  ~ParameterMoves();

  // Copies weights and state, and frees the old places. Nobody may push. Calls `before_write` for
  // both versions of a parameter before it frees them. Errors are those of a disk.
  absl::Status Apply(ParameterPublisher& publisher,
                     absl::FunctionRef<void(uint32_t parameter_id, int version)> before_write);

 private:
  struct Move {
    StoredParameter* parameter = nullptr;
    StoredPlace to;
    std::unique_ptr<SumMemory> sum;
  };

  ParameterMoves(ParameterStore& store, GradientAccumulator& accumulator)
      : store_(store), accumulator_(accumulator) {}

  absl::Status Add(StoredParameter& parameter, HomePlace place);
  absl::Status Copy(const StoredParameter& parameter, const StoredPlace& to);

  ParameterStore& store_;
  GradientAccumulator& accumulator_;
  std::vector<Move> moves_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_MOVES_H_
