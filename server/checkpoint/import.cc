#include "server/checkpoint/import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "job/decide.h"
#include "job/definition.h"
#include "job/resolve.h"
#include "job/rule_config.h"
#include "kernels/digest.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_rule.h"
#include "proto/decide_version.h"
#include "proto/status_macros.h"
#include "server/checkpoint/manifest.h"
#include "server/checkpoint/manifest_file.h"
#include "server/checkpoint/part_writer.h"
#include "server/checkpoint/safetensors_reader.h"
#include "server/checkpoint/state_tensors.h"
#include "server/checkpoint/written_by.h"

namespace kaon::checkpoint {

namespace {

// Elements that are held at once.
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

// What of `tensor` is not the parameter's; empty if nothing.
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

// Whoever prepares the file wants to hear of every tensor at once.
absl::Status CheckNames(const disk::File& file, const v1::JobDefinition& job,
                        const SafetensorsReader& reader) {
  std::vector<std::string> problems;
  std::set<absl::string_view> known;
  for (const v1::ParameterSpec& parameter : job.parameters()) {
    known.insert(parameter.name());
    const absl::StatusOr<const Tensor*> tensor = reader.Find(parameter.name());
    const std::string problem =
        tensor.ok() ? Mismatch(parameter, **tensor)
                    : absl::StrCat("tensor ", Quoted(parameter.name()), " is missing");
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const Tensor& tensor : reader.header().tensors) {
    if (known.count(tensor.name) > 0) continue;
    problems.push_back(absl::StrCat("tensor ", Quoted(tensor.name), " is no parameter of the job"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("file ", file.path(), ": ", absl::StrJoin(problems, "; ")));
}

// Everything on one shard; whoever loads it places it anew.
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
  // As a job that was just registered: nothing was updated yet.
  *facts.last_record.mutable_decision() = job::Decide(registration, plan, {}, nullptr);
  facts.step = 0;
  return facts;
}

// The file's weights as masters, into `writer`; adds their digest to `digest`.
absl::Status CopyWeights(const SafetensorsReader& reader, const v1::ParameterSpec& parameter,
                         uint32_t id, PartWriter& writer, uint64_t* digest) {
  KAON_ASSIGN_OR_RETURN(const Tensor* tensor, reader.Find(parameter.name()));
  const kernels::DType dtype = *DTypeOf(tensor->type);
  const uint64_t total = job::NumElements(parameter);
  std::string stored;
  std::vector<float> masters;
  for (uint64_t first = 0; first < total; first += kPiece) {
    masters.resize(std::min(kPiece, total - first));
    stored.resize(masters.size() * kernels::SizeOf(dtype));
    KAON_RETURN_IF_ERROR(
        reader.Read(*tensor, first * kernels::SizeOf(dtype), absl::MakeSpan(stored)));
    kernels::ToFloat(dtype, reinterpret_cast<const std::byte*>(stored.data()),
                     absl::MakeSpan(masters));
    for (size_t i = 0; i < masters.size(); ++i) {
      if (std::isfinite(masters[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor->name), ": element ",
                                                     first + i, " is ", masters[i],
                                                     ", must be finite"));
    }
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

// Of state that no step has touched: zero bytes in every slot, no update counted.
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

absl::StatusOr<v1::CheckpointPart> WritePart(const SafetensorsReader& reader,
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
  options.written_by = WrittenBy("import");
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(to, job, std::move(options), std::move(tensors)));
  uint64_t weights = 0;
  while (const v1::CheckpointTensor* tensor = writer->tensor()) {
    const uint32_t id = tensor->parameter_id();
    KAON_RETURN_IF_ERROR(
        tensor->role() == kWeightRole
            ? CopyWeights(reader, job.parameters(static_cast<int>(id)), id, *writer, &weights)
            : AppendZeros(StateBytes(tensor->dtype(), tensor->num_elements()), *writer));
  }
  KAON_ASSIGN_OR_RETURN(v1::CheckpointPart part, writer->Finish());
  part.set_weights_digest(weights);
  part.set_state_digest(weights + state);
  return part;
}

absl::StatusOr<v1::CheckpointManifest> Write(const SafetensorsReader& reader,
                                             const CheckpointFacts& facts,
                                             CheckpointDirectory& to) {
  KAON_ASSIGN_OR_RETURN(const v1::CheckpointPart part, WritePart(reader, facts, to));
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
  KAON_RETURN_IF_ERROR(CheckNames(file, registration.definition(), *reader));
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> ids, to.List());
  if (std::find(ids.begin(), ids.end(), id) != ids.end()) {
    return absl::AlreadyExistsError(absl::StrCat("checkpoint ", id, " is there"));
  }
  absl::StatusOr<v1::CheckpointManifest> manifest = Write(*reader, FactsOf(id, registration), to);
  // A name that is there without a manifest may be another import's.
  if (!manifest.ok() && !absl::IsAlreadyExists(manifest.status())) {
    // What made it fail is worth more than whether the rest could be removed.
    to.RemoveAttempt({id, std::nullopt}).IgnoreError();
  }
  return manifest;
}

}  // namespace kaon::checkpoint
