#include "server/checkpoint/imported_tensors.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/definition.h"
#include "kernels/dtype.h"
#include "kernels/state_codec.h"
#include "proto/status_macros.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "server/checkpoint/state_dtype.h"

namespace kaon::checkpoint {

namespace {

constexpr int64_t kMaxUpdates = int64_t{1} << 62;

std::optional<kernels::DType> DTypeOf(TensorType type) {
  switch (type) {
    case TensorType::kFloat32:
      return kernels::DType::kFloat32;
    case TensorType::kBFloat16:
      return kernels::DType::kBFloat16;
    case TensorType::kFloat16:
      return kernels::DType::kFloat16;
    default:
      return std::nullopt;
  }
}

absl::Status CheckValues(const Tensor& tensor, bool is_second_moment, uint64_t first,
                         absl::Span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_bad_sign = is_second_moment && values[i] < 0;
    if (std::isfinite(values[i]) && !is_bad_sign) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name), ": element ",
                                                   first + i, " is ", values[i], ", must be ",
                                                   is_bad_sign ? "at least 0" : "finite"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string StateName(absl::string_view role, const v1::ParameterSpec& parameter) {
  return absl::StrCat(role, ":", parameter.name());
}

std::string Mismatch(const v1::ParameterSpec& parameter, const Tensor& tensor) {
  const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
  if (!DTypeOf(tensor.type)) {
    return absl::StrCat("tensor ", Quoted(tensor.name), " is ", NameOf(tensor.type),
                        ", must be F32, F16 or BF16");
  }
  if (tensor.shape == shape) return "";
  return absl::StrCat("tensor ", Quoted(tensor.name), " has shape [",
                      absl::StrJoin(tensor.shape, ", "), "], the parameter [",
                      absl::StrJoin(shape, ", "), "]");
}

absl::Status ReadFloats(const SafetensorsReader& reader, const Tensor& tensor, uint64_t first,
                        absl::Span<float> to) {
  const kernels::DType dtype = *DTypeOf(tensor.type);
  const size_t size = kernels::SizeOf(dtype);
  std::string stored(to.size() * size, '\0');
  KAON_RETURN_IF_ERROR(reader.Read(tensor, first * size, absl::MakeSpan(stored)));
  kernels::ToFloat(dtype, reinterpret_cast<const std::byte*>(stored.data()), to);
  return absl::OkStatus();
}

ImportedState::ImportedState(const v1::RegisterBody& registration,
                             const std::vector<StateTensor>& states,
                             const SafetensorsReader& reader)
    : placement_(registration.placement()),
      job_(registration.definition()),
      states_(states),
      reader_(reader),
      updates_(static_cast<size_t>(job_.parameters_size()), 0) {
  const auto form = reader.header().metadata.find(kMomentumFormKey);
  if (form != reader.header().metadata.end()) momentum_form_ = form->second;
}

const Tensor* ImportedState::Find(absl::string_view role, uint32_t parameter_id) const {
  const absl::StatusOr<const Tensor*> found =
      reader_.Find(StateName(role, ParameterOf(parameter_id)));
  return found.ok() ? *found : nullptr;
}

void ImportedState::Check(std::set<std::string>& known, std::vector<std::string>& problems) {
  if (!momentum_form_.empty() && momentum_form_ != kEma && momentum_form_ != kSum) {
    problems.push_back(absl::StrCat("metadata ", kMomentumFormKey, " is ", Quoted(momentum_form_),
                                    ", must be ", kEma, " or ", kSum));
  }
  std::vector<std::vector<std::string>> roles(updates_.size());
  for (const StateTensor& state : states_) {
    if (state.role != kWeightRole) roles[state.parameter_id].push_back(state.role);
  }
  for (uint32_t id = 0; id < roles.size(); ++id) {
    if (ParameterOf(id).frozen()) continue;
    const Tensor* updates = Find(kUpdatesRole, id);
    std::vector<std::string> missing;
    if (updates == nullptr) missing.push_back(kUpdatesRole);
    for (const std::string& role : roles[id]) {
      const Tensor* tensor = Find(role, id);
      const std::string problem = tensor == nullptr ? "" : Mismatch(ParameterOf(id), *tensor);
      if (!problem.empty()) problems.push_back(problem);
      if (tensor == nullptr) missing.push_back(role);
      known.insert(StateName(role, ParameterOf(id)));
    }
    known.insert(StateName(kUpdatesRole, ParameterOf(id)));
    if (updates != nullptr && (updates->type != TensorType::kInt64 || !updates->shape.empty())) {
      problems.push_back(
          absl::StrCat("tensor ", Quoted(updates->name), " must be a scalar of type I64"));
    }
    if (missing.empty() || missing.size() == roles[id].size() + 1) continue;
    problems.push_back(absl::StrCat("parameter ", Quoted(ParameterOf(id).name()),
                                    " has some state, but no ", absl::StrJoin(missing, ", ")));
  }
}

absl::Status ImportedState::ReadUpdates() {
  for (uint32_t id = 0; id < updates_.size(); ++id) {
    const Tensor* tensor = ParameterOf(id).frozen() ? nullptr : Find(kUpdatesRole, id);
    if (tensor == nullptr) continue;
    char bytes[sizeof(int64_t)];
    KAON_RETURN_IF_ERROR(reader_.Read(*tensor, 0, absl::MakeSpan(bytes)));
    const auto updates = static_cast<int64_t>(FromLittleEndian64({bytes, sizeof(bytes)}));
    if (updates < 0 || updates > kMaxUpdates) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(tensor->name), " is ", updates, ", must be 0 .. 2^62"));
    }
    updates_[id] = static_cast<uint64_t>(updates);
  }
  return absl::OkStatus();
}

uint64_t ImportedState::most_updates() const {
  return updates_.empty() ? 0 : *std::max_element(updates_.begin(), updates_.end());
}

double ImportedState::FactorOf(const StateTensor& state) const {
  const bool is_ema = state.momentum_form == v1::MOMENTUM_FORM_EMA;
  const auto id = static_cast<int>(state.parameter_id);
  const int group = job::GroupIndex(job_, placement_.parameters(id).group());
  // Only Muon has a choice of forms ([M2]).
  if (momentum_form_.empty() || state.momentum_form == v1::MOMENTUM_FORM_UNSPECIFIED ||
      job_.groups(group).rule() != v1::RULE_MUON || (momentum_form_ == kEma) == is_ema) {
    return 1;
  }
  const double share = 1 - job_.groups(group).muon().momentum();
  return is_ema ? share : 1 / share;
}

absl::StatusOr<std::string> ImportedState::Read(const StateTensor& state, uint64_t first,
                                                uint64_t num_elements) const {
  std::string bytes(StateBytes(state.dtype, num_elements), '\0');
  const Tensor* tensor = Find(state.role, state.parameter_id);
  if (tensor == nullptr) return bytes;
  std::vector<float> values(num_elements);
  KAON_RETURN_IF_ERROR(ReadFloats(reader_, *tensor, first, absl::MakeSpan(values)));
  KAON_RETURN_IF_ERROR(
      CheckValues(*tensor, absl::EndsWith(state.role, "exp_avg_sq"), first, values));
  const double factor = FactorOf(state);
  if (factor != 1) {
    for (float& value : values) value = static_cast<float>(factor * value);
  }
  // Groups are stored one after the other, so these elements are encoded as a slot of their own.
  kernels::EncodeState(ToKernels(state.dtype), values, 0,
                       absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
  return bytes;
}

}  // namespace kaon::checkpoint
