// The tensors that form the state of a job, and their names in files. They follow from the
// registration alone, so the writer and the checker of a checkpoint use the same functions. Pure
// functions; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_STATE_TENSORS_H_
#define KAON_SERVER_CHECKPOINT_STATE_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "server/checkpoint/safetensors/safetensors_header.h"

namespace kaon::checkpoint {

// Role of a parameter's master weights; every other role is the name of a state slot.
inline constexpr char kWeightRole[] = "weight";

struct StateTensor {
  uint32_t parameter_id = 0;
  std::string role;
  v1::StateDType dtype = v1::STATE_DTYPE_FLOAT32;
  // Set for a momentum_buffer; UNSPECIFIED for every other role.
  v1::MomentumForm momentum_form = v1::MOMENTUM_FORM_UNSPECIFIED;
  uint64_t num_elements = 0;
  // Slot for digests (kernels/reduce/digest.h): 0 for weights, then state slots in the order of the
  // rule from 1 on.
  uint32_t slot = 0;
};

// Returns the tensors ordered by (parameter_id, role); any input is safe. INVALID_ARGUMENT says
// what is wrong with the definition or with the placement of a parameter.
absl::StatusOr<std::vector<StateTensor>> StateTensorsOf(const v1::RegisterBody& registration);

// Returns the number of bytes of `num_elements` elements; elements in groups start at the first of
// a group of 32.
uint64_t StateBytes(v1::StateDType dtype, uint64_t num_elements);
// Returns true if elements are stored in groups of kStateGroup, which cannot be cut.
bool IsInGroups(v1::StateDType dtype);

// Returns "parameter 'h.weight' exp_avg", for messages.
std::string Describe(const v1::JobDefinition& job, uint32_t parameter_id, const std::string& role);

// Returns the entry of `tensor` of `parameter` in its file: type, shape, and name. The name is
// role:parameter, or role[first,end]:parameter for a part. int8 state is a row of bytes.
Tensor TensorInFile(const v1::ParameterSpec& parameter, const v1::CheckpointTensor& tensor);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_STATE_TENSORS_H_
