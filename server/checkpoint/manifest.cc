#include "server/checkpoint/manifest.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/reduce/digest.h"
#include "kernels/state_codec.h"
#include "proto/status_macros.h"
#include "server/checkpoint/manifest_file.h"
#include "server/checkpoint/safetensors/safetensors_header.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

namespace {

auto OrderOf(const v1::CheckpointTensor& tensor) {
  return std::make_tuple(tensor.parameter_id(), absl::string_view(tensor.role()),
                         tensor.first_element());
}

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

template <typename Value>
absl::Status CheckEqual(absl::string_view what, const Value& is, const Value& expected) {
  if (is == expected) return absl::OkStatus();
  return Wrong(absl::StrCat(what, " is ", is, ", expecting ", expected));
}

// Checks a number from which a job counts on: it must be far from overflow.
absl::Status CheckCount(absl::string_view what, uint64_t value, uint64_t min) {
  constexpr uint64_t kMax = uint64_t{1} << 62;
  if (value >= min && value <= kMax) return absl::OkStatus();
  return Wrong(absl::StrCat(what, " is ", value, ", expecting ", min, " .. 2^62"));
}

absl::Status CheckFacts(const v1::CheckpointManifest& manifest) {
  KAON_RETURN_IF_ERROR(CheckId(manifest.id()));
  const v1::StepPlan& plan = manifest.last_record().plan();
  KAON_RETURN_IF_ERROR(
      CheckEqual("job of the last record", Quoted(plan.job()), Quoted(manifest.job())));
  KAON_RETURN_IF_ERROR(CheckEqual("job of the registration",
                                  Quoted(manifest.registration().definition().name()),
                                  Quoted(manifest.job())));
  KAON_RETURN_IF_ERROR(
      CheckEqual("timeline of the last record", plan.timeline(), manifest.timeline()));
  KAON_RETURN_IF_ERROR(
      CheckEqual("position of the last record", plan.position(), manifest.position()));
  KAON_RETURN_IF_ERROR(CheckCount("timeline", manifest.timeline(), 1));
  KAON_RETURN_IF_ERROR(CheckCount("position", manifest.position(), 1));
  KAON_RETURN_IF_ERROR(CheckCount("step", manifest.step(), 0));
  if (!plan.has_step()) return absl::OkStatus();
  return CheckEqual("step of the last record", plan.step().step(), manifest.step());
}

// A manifest may name files of its own checkpoint only.
absl::Status CheckFileName(const std::string& id, const std::string& name) {
  const bool good =
      absl::StartsWith(name, absl::StrCat(id, ".")) && name.size() <= 128 &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.';
      });
  if (good) return absl::OkStatus();
  return Wrong(absl::StrCat("file name ", Quoted(name), ", expecting '", id,
                            ".' and more of [a-z0-9.-], at most 128"));
}

absl::Status CheckFiles(const v1::CheckpointManifest& manifest) {
  for (int i = 0; i < manifest.files_size(); ++i) {
    const v1::CheckpointFile& file = manifest.files(i);
    KAON_RETURN_IF_ERROR(CheckFileName(manifest.id(), file.name()));
    if (i > 0 && manifest.files(i - 1).name() >= file.name()) {
      return Wrong(absl::StrCat("file ", file.name(), " comes after ", manifest.files(i - 1).name(),
                                ", expecting names in order, each once"));
    }
    const std::string name = absl::StrCat("file ", file.name(), ": ");
    if (file.size() == 0) return Wrong(absl::StrCat(name, "has 0 bytes, expecting more"));
    KAON_RETURN_IF_ERROR(
        CheckEqual(absl::StrCat(name, "length of sha256"), file.sha256().size(), kSha256Bytes));
    KAON_RETURN_IF_ERROR(CheckEqual<uint64_t>(absl::StrCat(name, "number of fragments"),
                                              file.fragment_crc32c_size(),
                                              (file.size() - 1) / kFragmentBytes + 1));
  }
  return absl::OkStatus();
}

// Enumerators of another version have no name.
template <typename Enum>
std::string NameOrNumber(const std::string& name, Enum value) {
  return name.empty() ? absl::StrCat(static_cast<int>(value)) : name;
}
std::string NameOf(v1::StateDType dtype) { return NameOrNumber(v1::StateDType_Name(dtype), dtype); }
std::string NameOf(v1::MomentumForm form) {
  return NameOrNumber(v1::MomentumForm_Name(form), form);
}

// Checks that one run of elements can be one of `expected`, and begins where the previous run ends.
absl::Status CheckRun(const std::string& name, const v1::CheckpointTensor& tensor,
                      const StateTensor& expected, uint64_t covered) {
  KAON_RETURN_IF_ERROR(
      CheckEqual(absl::StrCat(name, ": dtype"), NameOf(tensor.dtype()), NameOf(expected.dtype)));
  KAON_RETURN_IF_ERROR(CheckEqual(absl::StrCat(name, ": momentum_form"),
                                  NameOf(tensor.momentum_form()), NameOf(expected.momentum_form)));
  const uint64_t first = tensor.first_element();
  if (first > covered) {
    return Wrong(absl::StrCat(name, ": elements ", covered, " to ", first, " are in no file"));
  }
  if (first < covered) {
    return Wrong(absl::StrCat(name, ": a run begins at element ", first,
                              ", the one before it ends at ", covered));
  }
  if (tensor.num_elements() == 0 || tensor.num_elements() > expected.num_elements - first) {
    return Wrong(absl::StrCat(name, ": a run of ", tensor.num_elements(), " elements from element ",
                              first, " on, of ", expected.num_elements));
  }
  const uint64_t end = first + tensor.num_elements();
  if (IsInGroups(expected.dtype) && end != expected.num_elements &&
      end % kernels::kStateGroup != 0) {
    return Wrong(absl::StrCat(name, ": a run of groups ends at element ", end,
                              ", expecting a multiple of ", kernels::kStateGroup, " or ",
                              expected.num_elements));
  }
  return absl::OkStatus();
}

absl::Status CheckCoverage(const v1::CheckpointManifest& manifest) {
  KAON_ASSIGN_OR_RETURN(const std::vector<StateTensor> expected,
                        StateTensorsOf(manifest.registration()));
  const v1::JobDefinition& job = manifest.registration().definition();
  int next = 0;
  const auto next_is = [&](const StateTensor& tensor) {
    return next < manifest.tensors_size() &&
           manifest.tensors(next).parameter_id() == tensor.parameter_id &&
           manifest.tensors(next).role() == tensor.role;
  };
  for (const StateTensor& tensor : expected) {
    const std::string name = Describe(job, tensor.parameter_id, tensor.role);
    uint64_t covered = 0;
    for (; next_is(tensor); ++next) {
      KAON_RETURN_IF_ERROR(CheckRun(name, manifest.tensors(next), tensor, covered));
      covered += manifest.tensors(next).num_elements();
    }
    if (covered == tensor.num_elements) continue;
    std::string found = "nothing";
    if (next < manifest.tensors_size()) {
      found = Describe(job, manifest.tensors(next).parameter_id(), manifest.tensors(next).role());
    }
    return Wrong(absl::StrCat(name, ": elements ", covered, " to ", tensor.num_elements,
                              " are in no file; what follows is ", found));
  }
  if (next == manifest.tensors_size()) return absl::OkStatus();
  return Wrong(absl::StrCat(
      Describe(job, manifest.tensors(next).parameter_id(), manifest.tensors(next).role()),
      ": is no tensor of the job, or out of order"));
}

// Checks that every byte after a file's header belongs to exactly one tensor. Call it after
// CheckCoverage, so that sizes do not overflow.
absl::Status CheckLayout(const v1::CheckpointManifest& manifest) {
  const v1::JobDefinition& job = manifest.registration().definition();
  std::vector<const v1::CheckpointTensor*> tensors;
  for (const v1::CheckpointTensor& tensor : manifest.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
    return std::make_tuple(a->file(), a->offset()) < std::make_tuple(b->file(), b->offset());
  });
  auto tensor = tensors.begin();
  for (int i = 0; i < manifest.files_size(); ++i) {
    const v1::CheckpointFile& file = manifest.files(i);
    uint64_t end = 0;
    for (; tensor != tensors.end() && (*tensor)->file() == static_cast<uint32_t>(i); ++tensor) {
      const uint64_t offset = (*tensor)->offset();
      const bool begins_well =
          end == 0 ? offset > 0 && offset % kDataAlignment == 0 : offset == end;
      const uint64_t bytes = StateBytes((*tensor)->dtype(), (*tensor)->num_elements());
      if (!begins_well || offset > file.size() || bytes > file.size() - offset) {
        return Wrong(absl::StrCat(
            Describe(job, (*tensor)->parameter_id(), (*tensor)->role()), ": ", bytes,
            " bytes from byte ", offset, " of file ", file.name(), " on, which has ", file.size(),
            "; expecting ",
            end == 0 ? absl::StrCat("a multiple of ", kDataAlignment) : absl::StrCat(end)));
      }
      end = offset + bytes;
    }
    if (end == file.size()) continue;
    return Wrong(absl::StrCat("file ", file.name(), " has ", file.size(),
                              " bytes, but its last tensor ends at ", end));
  }
  if (tensor == tensors.end()) return absl::OkStatus();
  return Wrong(absl::StrCat(Describe(job, (*tensor)->parameter_id(), (*tensor)->role()),
                            ": is in file ", (*tensor)->file(), " of ", manifest.files_size()));
}

absl::Status CheckCounters(const v1::CheckpointManifest& manifest) {
  KAON_RETURN_IF_ERROR(CheckEqual("number of parameters with counters", manifest.parameters_size(),
                                  manifest.registration().definition().parameters_size()));
  for (int i = 0; i < manifest.parameters_size(); ++i) {
    KAON_RETURN_IF_ERROR(CheckEqual(absl::StrCat("parameter_id of counter ", i),
                                    manifest.parameters(i).parameter_id(),
                                    static_cast<uint32_t>(i)));
  }
  return absl::OkStatus();
}

absl::Status CheckParts(const v1::CheckpointManifest& manifest,
                        const std::vector<v1::CheckpointPart>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const v1::CheckpointPart& part = parts[i];
    const std::string name = absl::StrCat("part ", i, ": ");
    KAON_RETURN_IF_ERROR(
        CheckEqual(absl::StrCat(name, "shard"), part.shard(), static_cast<uint32_t>(i)));
    KAON_RETURN_IF_ERROR(
        CheckEqual<uint64_t>(absl::StrCat(name, "num_shards"), part.num_shards(), parts.size()));
    KAON_RETURN_IF_ERROR(
        CheckEqual(absl::StrCat(name, "job"), Quoted(part.job()), Quoted(manifest.job())));
    KAON_RETURN_IF_ERROR(
        CheckEqual(absl::StrCat(name, "timeline"), part.timeline(), manifest.timeline()));
    KAON_RETURN_IF_ERROR(
        CheckEqual(absl::StrCat(name, "position"), part.position(), manifest.position()));
    for (const v1::CheckpointTensor& tensor : part.tensors()) {
      if (tensor.file() < static_cast<uint32_t>(part.files_size())) continue;
      return Wrong(absl::StrCat(name, "a tensor of parameter_id ", tensor.parameter_id(),
                                " is in file ", tensor.file(), " of ", part.files_size()));
    }
  }
  return absl::OkStatus();
}

// Adds files in order of their names, and the tensors of all parts with the new indices of their
// files.
void AddFiles(const std::vector<v1::CheckpointPart>& parts, v1::CheckpointManifest& manifest) {
  struct Place {
    absl::string_view name;
    uint32_t part;
    uint32_t file;
  };
  std::vector<Place> places;
  for (uint32_t part = 0; part < parts.size(); ++part) {
    for (uint32_t file = 0; file < static_cast<uint32_t>(parts[part].files_size()); ++file) {
      places.push_back({parts[part].files(static_cast<int>(file)).name(), part, file});
    }
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.name < b.name; });
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> index;
  for (const Place& place : places) {
    index[{place.part, place.file}] = static_cast<uint32_t>(manifest.files_size());
    v1::CheckpointFile& added = *manifest.add_files();
    added = parts[place.part].files(static_cast<int>(place.file));
    added.set_shard(place.part);
  }
  for (uint32_t part = 0; part < parts.size(); ++part) {
    for (const v1::CheckpointTensor& tensor : parts[part].tensors()) {
      v1::CheckpointTensor& added = *manifest.add_tensors();
      added = tensor;
      added.set_file(index.at({part, tensor.file()}));
    }
  }
}

}  // namespace

absl::StatusOr<v1::CheckpointManifest> BuildManifest(const CheckpointFacts& facts,
                                                     const std::vector<v1::CheckpointPart>& parts) {
  v1::CheckpointManifest manifest;
  manifest.set_id(facts.id);
  const v1::StepPlan& plan = facts.last_record.plan();
  manifest.set_job(plan.job());
  manifest.set_timeline(plan.timeline());
  manifest.set_position(plan.position());
  manifest.set_step(facts.step);
  *manifest.mutable_registration() = facts.registration;
  *manifest.mutable_last_record() = facts.last_record;
  const absl::Status alike = CheckParts(manifest, parts);
  if (!alike.ok())
    return Wrong(absl::StrCat("checkpoint ", Quoted(facts.id), ": ", alike.message()));
  AddFiles(parts, manifest);
  for (const v1::CheckpointPart& part : parts) {
    for (const v1::CheckpointParameter& counted : part.parameters()) {
      *manifest.add_parameters() = counted;
    }
    manifest.set_weights_digest(manifest.weights_digest() + part.weights_digest());
    manifest.set_state_digest(manifest.state_digest() + part.state_digest());
  }
  std::sort(manifest.mutable_tensors()->begin(), manifest.mutable_tensors()->end(),
            [](const auto& a, const auto& b) { return OrderOf(a) < OrderOf(b); });
  std::sort(manifest.mutable_parameters()->begin(), manifest.mutable_parameters()->end(),
            [](const auto& a, const auto& b) { return a.parameter_id() < b.parameter_id(); });
  KAON_RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

absl::Status CheckManifest(const v1::CheckpointManifest& manifest) {
  for (const auto check : {CheckFacts, CheckFiles, CheckCoverage, CheckLayout, CheckCounters}) {
    const absl::Status status = check(manifest);
    if (!status.ok()) {
      return Wrong(absl::StrCat("checkpoint ", Quoted(manifest.id()), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

uint64_t RestoredDigest(const v1::CheckpointManifest& manifest) {
  uint64_t digest = manifest.state_digest();
  for (const v1::CheckpointParameter& parameter : manifest.parameters()) {
    digest -=
        kernels::FactDigest(parameter.parameter_id(), kernels::kPositionSlot, manifest.position());
  }
  return digest;
}

FileSums SumsOf(const v1::CheckpointFile& file) {
  FileSums sums;
  sums.num_bytes = file.size();
  sums.fragment_crc32c.assign(file.fragment_crc32c().begin(), file.fragment_crc32c().end());
  sums.sha256 = file.sha256();
  return sums;
}

void SetSums(const FileSums& sums, v1::CheckpointFile* file) {
  file->set_size(sums.num_bytes);
  file->set_sha256(sums.sha256);
  file->mutable_fragment_crc32c()->Assign(sums.fragment_crc32c.begin(), sums.fragment_crc32c.end());
}

}  // namespace kaon::checkpoint
