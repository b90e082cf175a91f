#include "server/checkpoint/export.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "job/definition.h"
#include "kernels/float_bits.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/state_codec.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/imported_tensors.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"
#include "server/checkpoint/state_dtype.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

namespace {

// Elements in memory at a time.
constexpr uint64_t kPiece = uint64_t{1} << 18;

// Checks elements of a parameter from `first` on, as they will be exported.
absl::Status CheckExported(const v1::ParameterSpec& parameter, kernels::DType dtype, uint64_t first,
                           absl::Span<const float> masters) {
  // Rounding keeps the order of magnitudes: if any rounds to infinity, the largest does.
  const float largest = kernels::FloatOf(kernels::LargestMagnitudeBits(masters));
  if (std::isfinite(kernels::RoundTo(dtype, largest))) return absl::OkStatus();
  for (size_t i = 0; i < masters.size(); ++i) {
    if (std::isfinite(kernels::RoundTo(dtype, masters[i]))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quoted(parameter.name()), ": element ", first + i, " is ",
                     masters[i], ", must be finite as ", kernels::NameOf(dtype), ": export ",
                     std::isfinite(masters[i]) ? "as float32" : "an earlier checkpoint"));
  }
  return absl::OkStatus();
}

absl::Status AppendWeights(CheckpointReader& reader, uint32_t parameter_id, kernels::DType dtype,
                           SafetensorsWriter& writer) {
  const v1::JobDefinition& job = reader.manifest().registration().definition();
  const v1::ParameterSpec& parameter = job.parameters(static_cast<int>(parameter_id));
  const uint64_t total = job::NumElements(parameter);
  std::vector<float> masters;
  std::string rounded;
  for (uint64_t first = 0; first < total; first += kPiece) {
    masters.resize(std::min(kPiece, total - first));
    const size_t num_bytes = masters.size() * sizeof(float);
    KAON_RETURN_IF_ERROR(
        reader.Read(parameter_id, kWeightRole, first, masters.size(),
                    absl::MakeSpan(reinterpret_cast<char*>(masters.data()), num_bytes)));
    KAON_RETURN_IF_ERROR(CheckExported(parameter, dtype, first, masters));
    rounded.resize(masters.size() * kernels::SizeOf(dtype));
    kernels::FromFloat(dtype, masters, reinterpret_cast<std::byte*>(rounded.data()));
    KAON_RETURN_IF_ERROR(writer.Append(rounded));
  }
  return absl::OkStatus();
}

// Appends optimizer state as fp32.
absl::Status AppendState(CheckpointReader& reader, const StateTensor& state,
                         SafetensorsWriter& writer) {
  std::vector<float> values;
  std::string stored;
  for (uint64_t first = 0; first < state.num_elements; first += kPiece) {
    values.resize(std::min(kPiece, state.num_elements - first));
    stored.resize(StateBytes(state.dtype, values.size()));
    KAON_RETURN_IF_ERROR(
        reader.Read(state.parameter_id, state.role, first, values.size(), absl::MakeSpan(stored)));
    // Groups are stored one after the other, so these elements are decoded as a slot of their own.
    kernels::DecodeState(
        ToKernels(state.dtype),
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(stored.data()), stored.size()), 0,
        absl::MakeSpan(values));
    KAON_RETURN_IF_ERROR(writer.Append(absl::string_view(
        reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))));
  }
  return absl::OkStatus();
}

Tensor TensorOf(const v1::ParameterSpec& parameter, std::string name, TensorType type) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.type = type;
  tensor.shape.assign(parameter.shape().begin(), parameter.shape().end());
  return tensor;
}

// A file to write: its tensors, and for each the function that appends its bytes.
struct Contents {
  using Append = std::function<absl::Status(SafetensorsWriter&)>;

  void Add(Tensor tensor, Append append) {
    append_of.emplace(tensor.name, std::move(append));
    tensors.push_back(std::move(tensor));
  }

  std::vector<Tensor> tensors;
  std::map<std::string, Append> append_of;
  std::map<std::string, std::string> metadata;
};

// `reader` must outlive the result.
Contents WeightsOf(CheckpointReader& reader, kernels::DType dtype) {
  const v1::CheckpointManifest& manifest = reader.manifest();
  Contents contents;
  const TensorType type =
      dtype == kernels::DType::kBFloat16 ? TensorType::kBFloat16 : TensorType::kFloat32;
  const v1::JobDefinition& job = manifest.registration().definition();
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterSpec& parameter = job.parameters(id);
    contents.Add(TensorOf(parameter, parameter.name(), type),
                 [&reader, id, dtype](SafetensorsWriter& to) {
                   return AppendWeights(reader, static_cast<uint32_t>(id), dtype, to);
                 });
  }
  // Loaders of this format look for the first of these.
  contents.metadata = {{"format", "pt"},
                       {"checkpoint", manifest.id()},
                       {"job", manifest.job()},
                       {"step", absl::StrCat(manifest.step())}};
  return contents;
}

// Names the form of Muon's buffers, unless groups differ: an import then takes each as in its job.
void AddMomentumForm(const v1::JobDefinition& job, Contents& contents) {
  std::set<v1::MomentumForm> forms;
  for (const v1::ParameterGroup& group : job.groups()) {
    if (group.rule() == v1::RULE_MUON) forms.insert(group.muon().momentum_form());
  }
  if (forms.size() != 1) return;
  contents.metadata[kMomentumFormKey] = *forms.begin() == v1::MOMENTUM_FORM_EMA ? kEma : kSum;
}

absl::Status AddState(CheckpointReader& reader, Contents& contents) {
  const v1::CheckpointManifest& manifest = reader.manifest();
  const v1::JobDefinition& job = manifest.registration().definition();
  KAON_ASSIGN_OR_RETURN(const std::vector<StateTensor> states,
                        StateTensorsOf(manifest.registration()));
  for (const StateTensor& state : states) {
    if (state.role == kWeightRole) continue;
    const v1::ParameterSpec& parameter = job.parameters(static_cast<int>(state.parameter_id));
    contents.Add(
        TensorOf(parameter, StateName(state.role, parameter), TensorType::kFloat32),
        [&reader, state](SafetensorsWriter& to) { return AppendState(reader, state, to); });
  }
  for (const v1::CheckpointParameter& counted : manifest.parameters()) {
    const v1::ParameterSpec& parameter = job.parameters(static_cast<int>(counted.parameter_id()));
    if (parameter.frozen()) continue;
    contents.Add(TensorOf({}, StateName(kUpdatesRole, parameter), TensorType::kInt64),
                 [updates = counted.updates_applied()](SafetensorsWriter& to) {
                   return to.Append(LittleEndian64(updates));
                 });
  }
  AddMomentumForm(job, contents);
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  const auto written = google::protobuf::util::MessageToJsonString(
      manifest.registration(), &contents.metadata["registration"], options);
  if (written.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("registration of checkpoint ", manifest.id(),
                   " cannot be written as JSON: ", std::string(written.message())));
}

absl::StatusOr<FileSums> Write(const Contents& contents, std::unique_ptr<disk::File> file) {
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                        SafetensorsWriter::Create(std::move(file), contents.metadata,
                                                  contents.tensors, kExportedFiles));
  for (const Tensor& tensor : writer->tensors()) {
    KAON_RETURN_IF_ERROR(contents.append_of.at(tensor.name)(*writer));
  }
  return writer->Finish();
}

// Writes a file that replaces nothing; its name appears last.
absl::StatusOr<FileSums> WriteAs(const std::string& name, const Contents& contents,
                                 disk::Directory& to) {
  const absl::StatusOr<std::unique_ptr<disk::File>> there = to.Open(name);
  if (there.ok()) return absl::AlreadyExistsError(absl::StrCat((*there)->path(), " is there"));
  if (!absl::IsNotFound(there.status())) return there.status();
  const std::string unfinished = absl::StrCat(name, ".tmp");
  absl::StatusOr<std::unique_ptr<disk::File>> file = to.Create(unfinished);
  if (absl::IsAlreadyExists(file.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat(to.path(), "/", unfinished,
                     " is there: another export is writing it, or was killed and has left it"));
  }
  if (!file.ok()) return file.status();
  absl::StatusOr<FileSums> sums = Write(contents, *std::move(file));
  if (!sums.ok()) {
    // Report the first error, and ignore errors of the cleanup.
    to.Remove(unfinished).IgnoreError();
    return sums.status();
  }
  KAON_RETURN_IF_ERROR(to.Rename(unfinished, name));
  KAON_RETURN_IF_ERROR(to.Sync());
  return sums;
}

}  // namespace

absl::StatusOr<FileSums> ExportWeights(CheckpointDirectory& from,
                                       const v1::CheckpointManifest& manifest, kernels::DType dtype,
                                       disk::Directory& to, const std::string& name) {
  if (dtype != kernels::DType::kFloat32 && dtype != kernels::DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype of the export is ", kernels::NameOf(dtype), ", must be float32 or bfloat16"));
  }
  CheckpointReader reader(from, manifest);
  return WriteAs(name, WeightsOf(reader, dtype), to);
}

absl::StatusOr<FileSums> ExportState(CheckpointDirectory& from,
                                     const v1::CheckpointManifest& manifest, disk::Directory& to,
                                     const std::string& name) {
  CheckpointReader reader(from, manifest);
  Contents contents = WeightsOf(reader, kernels::DType::kFloat32);
  KAON_RETURN_IF_ERROR(AddState(reader, contents));
  return WriteAs(name, contents, to);
}

}  // namespace kaon::checkpoint
