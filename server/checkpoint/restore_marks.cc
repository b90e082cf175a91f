#include "server/checkpoint/restore_marks.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/manifest_file.h"

namespace kaon::checkpoint {

namespace {

constexpr absl::string_view kRemoving = ".removing";
constexpr absl::string_view kRestore = ".restore-";
constexpr absl::string_view kAt = ".at-";
constexpr absl::string_view kTensors = ".safetensors";
// More than the names of all files of a manifest.
constexpr uint64_t kMaxMarkBytes = uint64_t{64} << 20;

std::string RestoreStem(absl::string_view id) { return absl::StrCat(id, kRestore); }

// Parses a mark of `id`; nullopt for a name that MarkName does not produce.
std::optional<RestoreMark> Parse(absl::string_view id, absl::string_view name) {
  RestoreMark mark;
  mark.id = std::string(id);
  if (!absl::ConsumePrefix(&name, RestoreStem(id))) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits(kAt, 1));
  const std::pair<absl::string_view, absl::string_view> at =
      absl::StrSplit(parts.second, absl::MaxSplits('-', 1));
  if (!proto::ParseDecimal(parts.first, &mark.timeline) ||
      !proto::ParseDecimal(at.first, &mark.at.timeline) ||
      !proto::ParseDecimal(at.second, &mark.at.position)) {
    return std::nullopt;
  }
  return mark;
}

// Creates a mark. On OK file and name are durable. If another process created it with the same
// contents, this one syncs it all the same, because the other may not have finished.
absl::Status MakeMark(disk::Directory& directory, const std::string& name,
                      absl::string_view contents) {
  absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Create(name);
  if (absl::IsAlreadyExists(file.status())) file = directory.Open(name);
  if (!file.ok()) return file.status();
  if (!contents.empty()) KAON_RETURN_IF_ERROR((*file)->Write(0, {contents}));
  KAON_RETURN_IF_ERROR((*file)->Sync());
  return directory.Sync();
}

bool Keeps(const RestoreMark& mark, const RetentionView& view, size_t enough) {
  const LogPoint& reached = view.reached;
  // As far as is known here, the restore is still to come; so it may be decided by now.
  if (std::tie(reached.timeline, reached.position) < std::tie(mark.at.timeline, mark.at.position)) {
    return true;
  }
  // Another entry was decided in its place.
  if (reached.timeline < mark.timeline) return false;
  // Count those of this log; an older life of the job may have gone beyond it.
  const auto since = std::count_if(view.newer.begin(), view.newer.end(), [&](uint64_t timeline) {
    return timeline >= mark.timeline && timeline <= reached.timeline;
  });
  return static_cast<size_t>(since) < enough;
}

}  // namespace

std::string MarkName(const RestoreMark& mark) {
  return absl::StrCat(RestoreStem(mark.id), mark.timeline, kAt, mark.at.timeline, "-",
                      mark.at.position);
}

std::string RemovalMarkName(absl::string_view id) { return absl::StrCat(id, kRemoving); }

bool IsMark(absl::string_view name) {
  const size_t dot = std::min(name.find('.'), name.size());
  const absl::string_view rest = name.substr(dot);
  return CheckId(name.substr(0, dot)).ok() &&
         (rest == kRemoving || absl::StartsWith(rest, kRestore));
}

absl::Status MarkRestore(disk::Directory& directory, const RestoreMark& mark) {
  KAON_RETURN_IF_ERROR(CheckId(mark.id));
  const absl::Status made = MakeMark(directory, MarkName(mark), "");
  if (!made.ok()) {
    return absl::Status(made.code(), absl::StrCat("checkpoint ", mark.id,
                                                  " cannot be restored, as its restore "
                                                  "cannot be marked in ",
                                                  directory.path(), ": ", made.message()));
  }
  return CheckNotRemoved(directory, mark.id);
}

absl::Status CheckNotRemoved(disk::Directory& directory, absl::string_view id) {
  const std::string name = RemovalMarkName(id);
  const absl::Status found = directory.Open(name).status();
  if (absl::IsNotFound(found)) return absl::OkStatus();
  if (!found.ok()) return found;
  return absl::FailedPreconditionError(absl::StrCat("checkpoint ", id, " is being removed, as ",
                                                    directory.path(), "/", name,
                                                    " says: the next retention finishes it"));
}

absl::Status MarkRemoval(disk::Directory& directory, absl::string_view id,
                         absl::Span<const std::string> files) {
  return MakeMark(directory, RemovalMarkName(id), absl::StrJoin(files, "\n"));
}

absl::StatusOr<std::vector<std::string>> FilesToRemove(disk::Directory& directory,
                                                       absl::string_view id) {
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file,
                        directory.Open(RemovalMarkName(id)));
  KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  std::string bytes(std::min(size, kMaxMarkBytes), '\0');
  KAON_ASSIGN_OR_RETURN(const size_t read, file->Read(0, bytes.size(), bytes.data()));
  bytes.resize(read);
  std::vector<std::string> names = absl::StrSplit(bytes, '\n');
  // Only files of this checkpoint may be removed, whatever the mark contains.
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&id](const std::string& name) {
                               return !absl::StartsWith(name, absl::StrCat(id, ".")) ||
                                      !absl::EndsWith(name, kTensors);
                             }),
              names.end());
  return names;
}

absl::StatusOr<RestoreMarks> FindRestoreMarks(disk::Directory& directory, absl::string_view id,
                                              const RetentionView& view, size_t enough) {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory.List());
  RestoreMarks marks;
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, RestoreStem(id))) continue;
    const std::optional<RestoreMark> mark = Parse(id, name);
    // A mark that cannot be parsed comes from another version, so it keeps the checkpoint.
    const bool keeps = !mark.has_value() || Keeps(*mark, view, enough);
    (keeps ? marks.keeping : marks.over).push_back(name);
  }
  return marks;
}

}  // namespace kaon::checkpoint
