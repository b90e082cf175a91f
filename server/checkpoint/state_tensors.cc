#include "server/checkpoint/state_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/rule_config.h"
#include "job/validation.h"
#include "kernels/optimizer_rule.h"
#include "kernels/reduce/digest.h"
#include "kernels/state_codec.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_dtype.h"

namespace kaon::checkpoint {

namespace {

constexpr char kMomentumRole[] = "momentum_buffer";

v1::MomentumForm FormOf(const v1::ParameterGroup& group, const std::string& role) {
  if (role != kMomentumRole) return v1::MOMENTUM_FORM_UNSPECIFIED;
  if (group.rule() == v1::RULE_MUON) return group.muon().momentum_form();
  // Matches torch's SGD ([G1]), which adds the gradient, dampened or not.
  return v1::MOMENTUM_FORM_SUM;
}

absl::Status AddSlots(const v1::JobDefinition& job, const v1::ParameterPlacement& placement,
                      std::vector<StateTensor>& tensors) {
  const uint32_t id = placement.parameter_id();
  const v1::ParameterSpec& parameter = job.parameters(static_cast<int>(id));
  const int group = job::GroupIndex(job, placement.group());
  if (group < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quoted(parameter.name()), " is placed in group ",
                     Quoted(placement.group()), ", which the job does not have"));
  }
  const kernels::RuleConfig rule = job::RuleConfigOf(job.groups(group), parameter, placement);
  const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
  const absl::Status valid = kernels::ValidateRule(rule, shape);
  if (!valid.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quoted(parameter.name()), ": ", valid.message()));
  }
  uint32_t number = 0;
  for (const kernels::StateSlot& slot : kernels::StateSlots(rule, shape)) {
    tensors.push_back({id, slot.name, FromKernels(slot.dtype), FormOf(job.groups(group), slot.name),
                       static_cast<uint64_t>(slot.num_elements), ++number});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<StateTensor>> StateTensorsOf(const v1::RegisterBody& registration) {
  const v1::JobDefinition& job = registration.definition();
  const v1::Placement& placement = registration.placement();
  KAON_RETURN_IF_ERROR(job::ValidateJob(job).status());
  if (placement.parameters_size() != job.parameters_size()) {
    return absl::InvalidArgumentError(absl::StrCat("placement of ", placement.parameters_size(),
                                                   " parameters, the job has ",
                                                   job.parameters_size()));
  }
  std::vector<StateTensor> tensors;
  for (int i = 0; i < job.parameters_size(); ++i) {
    const auto id = static_cast<uint32_t>(i);
    if (placement.parameters(i).parameter_id() != id) {
      return absl::InvalidArgumentError(absl::StrCat("placement ", i, " is of parameter_id ",
                                                     placement.parameters(i).parameter_id(),
                                                     ", expecting ", i));
    }
    tensors.push_back({id, kWeightRole, v1::STATE_DTYPE_FLOAT32, v1::MOMENTUM_FORM_UNSPECIFIED,
                       job::NumElements(job.parameters(i)), kernels::kWeightSlot});
    if (job.parameters(i).frozen()) continue;
    KAON_RETURN_IF_ERROR(AddSlots(job, placement.parameters(i), tensors));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StateTensor& a, const StateTensor& b) {
    return a.parameter_id != b.parameter_id ? a.parameter_id < b.parameter_id : a.role < b.role;
  });
  return tensors;
}

uint64_t StateBytes(v1::StateDType dtype, uint64_t num_elements) {
  return static_cast<uint64_t>(
      kernels::StateBytes(ToKernels(dtype), static_cast<int64_t>(num_elements)));
}

bool IsInGroups(v1::StateDType dtype) {
  return dtype == v1::STATE_DTYPE_INT8 || dtype == v1::STATE_DTYPE_SQRT_UINT8;
}

std::string Describe(const v1::JobDefinition& job, uint32_t parameter_id, const std::string& role) {
  if (parameter_id >= static_cast<uint32_t>(job.parameters_size())) {
    return absl::StrCat("parameter_id ", parameter_id, " ", Quoted(role));
  }
  return absl::StrCat("parameter ", Quoted(job.parameters(static_cast<int>(parameter_id)).name()),
                      " ", Quoted(role));
}

Tensor TensorInFile(const v1::ParameterSpec& parameter, const v1::CheckpointTensor& tensor) {
  const uint64_t end = tensor.first_element() + tensor.num_elements();
  const bool whole = tensor.num_elements() == job::NumElements(parameter);
  Tensor in_file;
  in_file.name = whole ? absl::StrCat(tensor.role(), ":", parameter.name())
                       : absl::StrCat(tensor.role(), "[", tensor.first_element(), ",", end,
                                      "]:", parameter.name());
  switch (tensor.dtype()) {
    case v1::STATE_DTYPE_INT8:
    case v1::STATE_DTYPE_SQRT_UINT8:
      in_file.type = TensorType::kUint8;
      in_file.shape = {StateBytes(tensor.dtype(), tensor.num_elements())};
      return in_file;
    case v1::STATE_DTYPE_BFLOAT16:
      in_file.type = TensorType::kBFloat16;
      break;
    default:
      in_file.type = TensorType::kFloat32;
  }
  if (whole) {
    in_file.shape.assign(parameter.shape().begin(), parameter.shape().end());
  } else {
    in_file.shape = {tensor.num_elements()};
  }
  return in_file;
}

}  // namespace kaon::checkpoint
