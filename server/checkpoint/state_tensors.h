// Which tensors the state of a job is made of, and how one of them is called in a file. The
// registration alone says so: whoever writes a checkpoint and whoever checks one ask the same
// functions. Pure functions; any thread.
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

// The role of a parameter's master weights; every other one is a state slot's name.
inline constexpr char kWeightRole[] = "weight";

struct StateTensor {
  uint32_t parameter_id = 0;
  std::string role;
  v1::StateDType dtype = v1::STATE_DTYPE_FLOAT32;
  // Of a momentum_buffer; UNSPECIFIED for every other role.
  v1::MomentumForm momentum_form = v1::MOMENTUM_FORM_UNSPECIFIED;
  uint64_t num_elements = 0;
  // By which digests are taken of it (kernels/reduce/digest.h): 0 for weights, state slots in the
  // order of the rule from 1 on.
  uint32_t slot = 0;
};

// Ordered by (parameter_id, role). INVALID_ARGUMENT naming what is wrong with the definition or
// with the placement of a parameter; total.
absl::StatusOr<std::vector<StateTensor>> StateTensorsOf(const v1::RegisterBody& registration);

// Bytes of so many elements from the first of a group of 32 on.
uint64_t StateBytes(v1::StateDType dtype, uint64_t num_elements);

// "parameter 'h.weight' exp_avg", for messages.
std::string Describe(const v1::JobDefinition& job, uint32_t parameter_id, const std::string& role);

// How `tensor` of `parameter` is written in its file: its name (role:parameter, or
// role[first,end]:parameter for a part), type and shape. int8 state is a row of bytes.
Tensor TensorInFile(const v1::ParameterSpec& parameter, const v1::CheckpointTensor& tensor);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_STATE_TENSORS_H_
