#include "server/checkpoint/export.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "job/definition.h"
#include "kernels/float_bits.h"
#include "kernels/reduce/grad_norm.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"
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

absl::StatusOr<FileSums> Write(CheckpointDirectory& from, const v1::CheckpointManifest& manifest,
                               kernels::DType dtype, std::unique_ptr<disk::File> file) {
  const v1::JobDefinition& job = manifest.registration().definition();
  std::vector<Tensor> tensors;
  std::map<std::string, uint32_t> id_of;
  for (int id = 0; id < job.parameters_size(); ++id) {
    Tensor& tensor = tensors.emplace_back();
    tensor.name = job.parameters(id).name();
    tensor.type = dtype == kernels::DType::kBFloat16 ? TensorType::kBFloat16 : TensorType::kFloat32;
    tensor.shape.assign(job.parameters(id).shape().begin(), job.parameters(id).shape().end());
    id_of[tensor.name] = static_cast<uint32_t>(id);
  }
  // Loaders of this format look for the first of these.
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {"checkpoint", manifest.id()},
                                                       {"job", manifest.job()},
                                                       {"step", absl::StrCat(manifest.step())}};
  KAON_ASSIGN_OR_RETURN(
      const std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::Create(std::move(file), metadata, std::move(tensors), kExportedFiles));
  CheckpointReader reader(from, manifest);
  for (const Tensor& tensor : writer->tensors()) {
    KAON_RETURN_IF_ERROR(AppendWeights(reader, id_of.at(tensor.name), dtype, *writer));
  }
  return writer->Finish();
}

}  // namespace

absl::StatusOr<FileSums> ExportWeights(CheckpointDirectory& from,
                                       const v1::CheckpointManifest& manifest, kernels::DType dtype,
                                       disk::Directory& to, const std::string& name) {
  if (dtype != kernels::DType::kFloat32 && dtype != kernels::DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype of the export is ", kernels::NameOf(dtype), ", must be float32 or bfloat16"));
  }
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
  absl::StatusOr<FileSums> sums = Write(from, manifest, dtype, *std::move(file));
  if (!sums.ok()) {
    // Report the first error, and ignore errors of the cleanup.
    to.Remove(unfinished).IgnoreError();
    return sums.status();
  }
  KAON_RETURN_IF_ERROR(to.Rename(unfinished, name));
  KAON_RETURN_IF_ERROR(to.Sync());
  return sums;
}

}  // namespace kaon::checkpoint
