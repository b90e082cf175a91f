#include "server/checkpoint/import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "job/decide.h"
#include "job/definition.h"
#include "job/resolve.h"
#include "job/rule_config.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_rule.h"
#include "kernels/reduce/digest.h"
#include "proto/decide_version.h"
#include "proto/status_macros.h"
#include "server/checkpoint/manifest.h"
#include "server/checkpoint/manifest_file.h"
#include "server/checkpoint/part_writer.h"
#include "server/checkpoint/safetensors/safetensors_reader.h"
#include "server/checkpoint/state_tensors.h"
#include "server/checkpoint/written_by.h"

namespace kaon::checkpoint {

namespace {

// Elements in memory at a time.
constexpr uint64_t kPiece = uint64_t{1} << 18;
constexpr uint64_t kTimeline = 1;
constexpr uint64_t kPosition = 1;

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

// Returns how `tensor` does not fit the parameter; empty if it fits.
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

// Tensors with the weights of one parameter.
struct Weights {
  // Null if the file has none.
  const Tensor* tensor = nullptr;
  // Tensor of a tied parameter, which must have equal values. Null if `tensor` is the only one.
  const Tensor* twin = nullptr;
};

// Finds the weights of every parameter. Tied parameters need only one tensor, of any of them.
class WeightSources {
 public:
  WeightSources(const v1::JobDefinition& job, const SafetensorsReader& reader) : reader_(reader) {
    for (const v1::ParameterSpec& parameter : job.parameters()) {
      const Tensor* own = FindOwn(parameter);
      if (own != nullptr) first_of_tie_.emplace(Original(parameter), own);
    }
  }

  Weights Of(const v1::ParameterSpec& parameter) const {
    const Tensor* own = FindOwn(parameter);
    const auto first = first_of_tie_.find(Original(parameter));
    if (first == first_of_tie_.end()) return {};
    if (own == nullptr) return {first->second, nullptr};
    return {own, own == first->second ? nullptr : first->second};
  }

  const SafetensorsReader& reader() const { return reader_; }

 private:
  static const std::string& Original(const v1::ParameterSpec& parameter) {
    return parameter.tied_to().empty() ? parameter.name() : parameter.tied_to();
  }

  const Tensor* FindOwn(const v1::ParameterSpec& parameter) const {
    const absl::StatusOr<const Tensor*> found = reader_.Find(parameter.name());
    return found.ok() ? *found : nullptr;
  }

  const SafetensorsReader& reader_;
  // First tensor of each tie in the order of parameters, by the original's name.
  absl::flat_hash_map<std::string, const Tensor*> first_of_tie_;
};

// Lists every bad tensor at once, so that the user can repair the file in one go.
absl::Status CheckNames(const disk::File& file, const v1::JobDefinition& job,
                        const WeightSources& sources) {
  std::vector<std::string> problems;
  std::set<absl::string_view> known;
  for (const v1::ParameterSpec& parameter : job.parameters()) {
    known.insert(parameter.name());
    const Tensor* tensor = sources.Of(parameter).tensor;
    std::string problem;
    if (tensor == nullptr) {
      problem = absl::StrCat("tensor ", Quoted(parameter.name()), " is missing");
    } else if (tensor->name == parameter.name()) {
      problem = Mismatch(parameter, *tensor);
    }
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const Tensor& tensor : sources.reader().header().tensors) {
    if (known.count(tensor.name) > 0) continue;
    problems.push_back(absl::StrCat("tensor ", Quoted(tensor.name), " is no parameter of the job"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("file ", file.path(), ": ", absl::StrJoin(problems, "; ")));
}

// Puts everything on one shard; a restore places it again.
absl::StatusOr<v1::RegisterBody> Register(const v1::JobDefinition& job) {
  KAON_ASSIGN_OR_RETURN(v1::RegisterBody registration, job::Resolve(job));
  registration.mutable_placement()->set_num_shards(1);
  return registration;
}

CheckpointFacts FactsOf(const std::string& id, const v1::RegisterBody& registration) {
  CheckpointFacts facts;
  facts.id = id;
  facts.registration = registration;
  v1::StepPlan& plan = *facts.last_record.mutable_plan();
  plan.set_job(registration.definition().name());
  plan.set_timeline(kTimeline);
  plan.set_position(kPosition);
  plan.set_decide_version(proto::kDecideVersion);
  *plan.mutable_registration() = registration;
  // As in a job that was just registered: nothing has been updated yet.
  *facts.last_record.mutable_decision() = job::Decide(registration, plan, {}, nullptr);
  facts.step = 0;
  return facts;
}

// Reads elements of `tensor` from `first` on, as masters.
absl::Status ReadMasters(const SafetensorsReader& reader, const Tensor& tensor, uint64_t first,
                         absl::Span<float> masters) {
  const kernels::DType dtype = *DTypeOf(tensor.type);
  const size_t size = kernels::SizeOf(dtype);
  std::string stored(masters.size() * size, '\0');
  KAON_RETURN_IF_ERROR(reader.Read(tensor, first * size, absl::MakeSpan(stored)));
  kernels::ToFloat(dtype, reinterpret_cast<const std::byte*>(stored.data()), masters);
  return absl::OkStatus();
}

// Checks elements from `first` on of a tensor and, if there is one, its twin.
absl::Status CheckMasters(const Weights& weights, uint64_t first, absl::Span<const float> masters,
                          absl::Span<const float> twins) {
  const auto error = [&](size_t i, const std::string& expected) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(weights.tensor->name),
                                                   ": element ", first + i, " is ", masters[i],
                                                   ", must be ", expected));
  };
  for (size_t i = 0; i < masters.size(); ++i) {
    if (!std::isfinite(masters[i])) return error(i, "finite");
    if (weights.twin == nullptr || masters[i] == twins[i]) continue;
    return error(i, absl::StrCat(twins[i], " as in tensor ", Quoted(weights.twin->name),
                                 ", which it is tied to"));
  }
  return absl::OkStatus();
}

// Copies the file's weights as masters into `writer`, and adds their digest to `digest`.
absl::Status CopyWeights(const WeightSources& sources, const v1::ParameterSpec& parameter,
                         uint32_t id, PartWriter& writer, uint64_t* digest) {
  const Weights weights = sources.Of(parameter);
  const uint64_t total = job::NumElements(parameter);
  std::vector<float> masters;
  std::vector<float> twins;
  for (uint64_t first = 0; first < total; first += kPiece) {
    masters.resize(std::min(kPiece, total - first));
    KAON_RETURN_IF_ERROR(
        ReadMasters(sources.reader(), *weights.tensor, first, absl::MakeSpan(masters)));
    if (weights.twin != nullptr) {
      twins.resize(masters.size());
      KAON_RETURN_IF_ERROR(
          ReadMasters(sources.reader(), *weights.twin, first, absl::MakeSpan(twins)));
    }
    KAON_RETURN_IF_ERROR(CheckMasters(weights, first, masters, twins));
    *digest += kernels::TensorDigest(id, kernels::kWeightSlot, masters, first);
    KAON_RETURN_IF_ERROR(writer.Append(absl::string_view(
        reinterpret_cast<const char*>(masters.data()), masters.size() * sizeof(float))));
  }
  return absl::OkStatus();
}

absl::Status AppendZeros(uint64_t num_bytes, PartWriter& writer) {
  const std::string zeros(std::min(num_bytes, kPiece), '\0');
  for (uint64_t written = 0; written < num_bytes; written += zeros.size()) {
    KAON_RETURN_IF_ERROR(writer.Append(
        absl::string_view(zeros).substr(0, std::min<uint64_t>(zeros.size(), num_bytes - written))));
  }
  return absl::OkStatus();
}

// Returns the digest of state before any step: zero bytes in every slot, no update counted.
uint64_t FreshStateDigest(const v1::RegisterBody& registration, uint32_t id) {
  const v1::JobDefinition& job = registration.definition();
  const v1::ParameterSpec& parameter = job.parameters(static_cast<int>(id));
  uint64_t digest = kernels::FactDigest(id, kernels::kUpdatesSlot, 0) +
                    kernels::FactDigest(id, kernels::kPositionSlot, kPosition);
  if (parameter.frozen()) return digest;
  const v1::ParameterPlacement& placement =
      registration.placement().parameters(static_cast<int>(id));
  const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
  const std::vector<kernels::StateSlot> slots = kernels::StateSlots(
      job::RuleConfigOf(job.groups(job::GroupIndex(job, placement.group())), parameter, placement),
      shape);
  const std::vector<std::byte> zeros(kPiece);
  for (size_t i = 0; i < slots.size(); ++i) {
    const kernels::TensorDigester digester(id, static_cast<uint32_t>(i) + 1);
    const auto num_bytes = static_cast<uint64_t>(slots[i].num_bytes);
    for (uint64_t first = 0; first < num_bytes; first += kPiece) {
      const uint64_t size = std::min(kPiece, num_bytes - first);
      digest += digester.OfBytes(absl::MakeConstSpan(zeros).first(size), first);
    }
  }
  return digest;
}

absl::StatusOr<v1::CheckpointPart> WritePart(const WeightSources& sources,
                                             const CheckpointFacts& facts,
                                             CheckpointDirectory& to) {
  const v1::JobDefinition& job = facts.registration.definition();
  KAON_ASSIGN_OR_RETURN(const std::vector<StateTensor> states, StateTensorsOf(facts.registration));
  std::vector<v1::CheckpointTensor> tensors;
  for (const StateTensor& state : states) {
    v1::CheckpointTensor& tensor = tensors.emplace_back();
    tensor.set_parameter_id(state.parameter_id);
    tensor.set_role(state.role);
    tensor.set_dtype(state.dtype);
    tensor.set_momentum_form(state.momentum_form);
    tensor.set_num_elements(state.num_elements);
  }
  PartWriter::Options options;
  options.id = facts.id;
  options.part.set_num_shards(1);
  options.part.set_job(job.name());
  options.part.set_timeline(kTimeline);
  options.part.set_position(kPosition);
  uint64_t state = 0;
  for (int id = 0; id < job.parameters_size(); ++id) {
    options.part.add_parameters()->set_parameter_id(static_cast<uint32_t>(id));
    state += FreshStateDigest(facts.registration, static_cast<uint32_t>(id));
  }
  options.written_by = WrittenByImport();
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(to, job, std::move(options), std::move(tensors)));
  uint64_t weights = 0;
  while (const v1::CheckpointTensor* tensor = writer->tensor()) {
    const uint32_t id = tensor->parameter_id();
    KAON_RETURN_IF_ERROR(
        tensor->role() == kWeightRole
            ? CopyWeights(sources, job.parameters(static_cast<int>(id)), id, *writer, &weights)
            : AppendZeros(StateBytes(tensor->dtype(), tensor->num_elements()), *writer));
  }
  KAON_ASSIGN_OR_RETURN(v1::CheckpointPart part, writer->Finish());
  part.set_weights_digest(weights);
  part.set_state_digest(weights + state);
  return part;
}

absl::StatusOr<v1::CheckpointManifest> Write(const WeightSources& sources,
                                             const CheckpointFacts& facts,
                                             CheckpointDirectory& to) {
  KAON_ASSIGN_OR_RETURN(const v1::CheckpointPart part, WritePart(sources, facts, to));
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, BuildManifest(facts, {part}));
  KAON_RETURN_IF_ERROR(to.Commit(manifest));
  return manifest;
}

}  // namespace

absl::StatusOr<v1::CheckpointManifest> ImportWeights(disk::File& file, const v1::JobDefinition& job,
                                                     const std::string& id,
                                                     CheckpointDirectory& to) {
  KAON_RETURN_IF_ERROR(CheckId(id));
  KAON_ASSIGN_OR_RETURN(const v1::RegisterBody registration, Register(job));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(file, kImportedFiles));
  const WeightSources sources(registration.definition(), *reader);
  KAON_RETURN_IF_ERROR(CheckNames(file, registration.definition(), sources));
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> ids, to.List());
  if (std::find(ids.begin(), ids.end(), id) != ids.end()) {
    return absl::AlreadyExistsError(absl::StrCat("checkpoint ", id, " is there"));
  }
  absl::StatusOr<v1::CheckpointManifest> manifest = Write(sources, FactsOf(id, registration), to);
  // Files of this id without a manifest may belong to another import.
  if (!manifest.ok() && !absl::IsAlreadyExists(manifest.status())) {
    // Report the first error, and ignore errors of the cleanup.
    to.RemoveAttempt({id, std::nullopt}).IgnoreError();
  }
  return manifest;
}

}  // namespace kaon::checkpoint
