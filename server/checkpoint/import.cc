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
#include "kernels/reduce/digest.h"
#include "proto/decide_version.h"
#include "proto/status_macros.h"
#include "server/checkpoint/imported_tensors.h"
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
                        const WeightSources& sources, ImportedState& state) {
  std::vector<std::string> problems;
  std::set<std::string> known;
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
  state.Check(known, problems);
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

CheckpointFacts FactsOf(const std::string& id, const v1::RegisterBody& registration,
                        uint64_t applied_updates) {
  CheckpointFacts facts;
  facts.id = id;
  facts.registration = registration;
  v1::StepPlan& plan = *facts.last_record.mutable_plan();
  plan.set_job(registration.definition().name());
  plan.set_timeline(kTimeline);
  plan.set_position(kPosition);
  plan.set_decide_version(proto::kDecideVersion);
  *plan.mutable_registration() = registration;
  // As in a job that was just registered, but its schedules continue after the updates.
  *facts.last_record.mutable_decision() = job::Decide(registration, plan, {}, nullptr);
  facts.last_record.mutable_decision()->set_applied_updates(applied_updates);
  facts.step = 0;
  return facts;
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
        ReadFloats(sources.reader(), *weights.tensor, first, absl::MakeSpan(masters)));
    if (weights.twin != nullptr) {
      twins.resize(masters.size());
      KAON_RETURN_IF_ERROR(
          ReadFloats(sources.reader(), *weights.twin, first, absl::MakeSpan(twins)));
    }
    KAON_RETURN_IF_ERROR(CheckMasters(weights, first, masters, twins));
    *digest += kernels::TensorDigest(id, kernels::kWeightSlot, masters, first);
    KAON_RETURN_IF_ERROR(writer.Append(absl::string_view(
        reinterpret_cast<const char*>(masters.data()), masters.size() * sizeof(float))));
  }
  return absl::OkStatus();
}

// Copies the file's state, or zeros, into `writer`, and adds its digest to `digest`.
absl::Status CopyState(const ImportedState& from, const StateTensor& state, PartWriter& writer,
                       uint64_t* digest) {
  const kernels::TensorDigester digester(state.parameter_id, state.slot);
  for (uint64_t first = 0; first < state.num_elements; first += kPiece) {
    KAON_ASSIGN_OR_RETURN(const std::string bytes,
                          from.Read(state, first, std::min(kPiece, state.num_elements - first)));
    *digest += digester.OfBytes(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()),
        StateBytes(state.dtype, first));
    KAON_RETURN_IF_ERROR(writer.Append(bytes));
  }
  return absl::OkStatus();
}

// Holds the checked sources of an import.
struct Sources {
  const WeightSources& weights;
  const ImportedState& state;
  const std::vector<StateTensor>& tensors;
};

PartWriter::Options PartOptions(const CheckpointFacts& facts, const ImportedState& state) {
  PartWriter::Options options;
  options.id = facts.id;
  options.part.set_num_shards(1);
  options.part.set_job(facts.registration.definition().name());
  options.part.set_timeline(kTimeline);
  options.part.set_position(kPosition);
  for (int id = 0; id < facts.registration.definition().parameters_size(); ++id) {
    v1::CheckpointParameter& counted = *options.part.add_parameters();
    counted.set_parameter_id(static_cast<uint32_t>(id));
    counted.set_updates_applied(state.updates_applied(static_cast<uint32_t>(id)));
  }
  options.written_by = WrittenByImport();
  return options;
}

absl::StatusOr<v1::CheckpointPart> WritePart(const Sources& from, const CheckpointFacts& facts,
                                             CheckpointDirectory& to) {
  const v1::JobDefinition& job = facts.registration.definition();
  std::map<std::pair<uint32_t, std::string>, const StateTensor*> state_of;
  std::vector<v1::CheckpointTensor> tensors;
  for (const StateTensor& state : from.tensors) {
    state_of[{state.parameter_id, state.role}] = &state;
    v1::CheckpointTensor& tensor = tensors.emplace_back();
    tensor.set_parameter_id(state.parameter_id);
    tensor.set_role(state.role);
    tensor.set_dtype(state.dtype);
    tensor.set_momentum_form(state.momentum_form);
    tensor.set_num_elements(state.num_elements);
  }
  KAON_ASSIGN_OR_RETURN(
      const std::unique_ptr<PartWriter> writer,
      PartWriter::Create(to, job, PartOptions(facts, from.state), std::move(tensors)));
  uint64_t weights = 0;
  uint64_t state = 0;
  while (const v1::CheckpointTensor* tensor = writer->tensor()) {
    const uint32_t id = tensor->parameter_id();
    KAON_RETURN_IF_ERROR(
        tensor->role() == kWeightRole
            ? CopyWeights(from.weights, job.parameters(static_cast<int>(id)), id, *writer, &weights)
            : CopyState(from.state, *state_of.at({id, tensor->role()}), *writer, &state));
  }
  KAON_ASSIGN_OR_RETURN(v1::CheckpointPart part, writer->Finish());
  for (const v1::CheckpointParameter& counted : part.parameters()) {
    const uint32_t id = counted.parameter_id();
    state += kernels::FactDigest(id, kernels::kUpdatesSlot, counted.updates_applied()) +
             kernels::FactDigest(id, kernels::kPositionSlot, kPosition);
  }
  part.set_weights_digest(weights);
  part.set_state_digest(weights + state);
  return part;
}

absl::StatusOr<v1::CheckpointManifest> Write(const Sources& from, const CheckpointFacts& facts,
                                             CheckpointDirectory& to) {
  KAON_ASSIGN_OR_RETURN(const v1::CheckpointPart part, WritePart(from, facts, to));
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
  const WeightSources weights(registration.definition(), *reader);
  KAON_ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, StateTensorsOf(registration));
  ImportedState state(registration, tensors, *reader);
  KAON_RETURN_IF_ERROR(CheckNames(file, registration.definition(), weights, state));
  KAON_RETURN_IF_ERROR(state.ReadUpdates());
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> ids, to.List());
  if (std::find(ids.begin(), ids.end(), id) != ids.end()) {
    return absl::AlreadyExistsError(absl::StrCat("checkpoint ", id, " is there"));
  }
  absl::StatusOr<v1::CheckpointManifest> manifest =
      Write({weights, state, tensors}, FactsOf(id, registration, state.most_updates()), to);
  // Files of this id without a manifest may belong to another import.
  if (!manifest.ok() && !absl::IsAlreadyExists(manifest.status())) {
    // Report the first error, and ignore errors of the cleanup.
    to.RemoveAttempt({id, std::nullopt}).IgnoreError();
  }
  return manifest;
}

}  // namespace kaon::checkpoint
