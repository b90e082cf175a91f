#include "server/checkpoint/manifest_file.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "server/checkpoint/safetensors/safetensors_header.h"

namespace kaon::checkpoint {

namespace {

constexpr absl::string_view kFirstLine = "kaon checkpoint 2\n";
// Start of every version's first line.
constexpr absl::string_view kAnyVersion = "kaon checkpoint ";
constexpr size_t kMessageAt = kFirstLine.size() + 8;

absl::Status Damaged(absl::string_view file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("manifest ", file, ": ", what));
}

absl::Status CheckFirstLine(absl::string_view file, absl::string_view bytes) {
  // A whole line, or one that is cut off; the check of the length reports the latter.
  if (absl::StartsWith(bytes, kFirstLine) || absl::StartsWith(kFirstLine, bytes)) {
    return absl::OkStatus();
  }
  const absl::string_view line = bytes.substr(0, std::min(bytes.find('\n'), size_t{40}));
  const std::string what =
      absl::StrCat("begins with the line '", proto::Excerpt(line), "', expecting '",
                   absl::StripTrailingAsciiWhitespace(kFirstLine), "'");
  if (absl::StartsWith(bytes, kAnyVersion)) {
    return absl::FailedPreconditionError(absl::StrCat("manifest ", file, ": ", what));
  }
  return Damaged(file, what);
}

}  // namespace

absl::StatusOr<std::string> FormatManifest(const v1::CheckpointManifest& manifest) {
  const uint64_t size = manifest.ByteSizeLong();
  if (size > kMaxManifestBytes) {
    return absl::InvalidArgumentError(absl::StrCat("manifest of checkpoint ", manifest.id(),
                                                   " has ", size, " bytes, expecting at most ",
                                                   kMaxManifestBytes));
  }
  std::string bytes = absl::StrCat(kFirstLine, LittleEndian64(size));
  manifest.AppendToString(&bytes);
  return bytes + Sha256(bytes);
}

absl::StatusOr<v1::CheckpointManifest> ParseManifest(absl::string_view file,
                                                     absl::string_view bytes) {
  KAON_RETURN_IF_ERROR(CheckFirstLine(file, bytes));
  if (bytes.size() < kMessageAt + kSha256Bytes) {
    return Damaged(file, absl::StrCat("is ", bytes.size(), " bytes long, expecting at least ",
                                      kMessageAt + kSha256Bytes));
  }
  const uint64_t size = FromLittleEndian64(bytes.substr(kFirstLine.size()));
  const uint64_t held = bytes.size() - kMessageAt - kSha256Bytes;
  if (size != held || size > kMaxManifestBytes) {
    return Damaged(file, absl::StrCat("its message is ", size, " bytes long, there are ", held,
                                      ", and at most ", kMaxManifestBytes, " are allowed"));
  }
  const std::string sha256 = Sha256(bytes.substr(0, kMessageAt + size));
  const absl::string_view expected = bytes.substr(kMessageAt + size);
  if (sha256 != expected) {
    return Damaged(file, absl::StrCat("has SHA-256 ", absl::BytesToHexString(sha256),
                                      ", expecting ", absl::BytesToHexString(expected)));
  }
  v1::CheckpointManifest manifest;
  if (!manifest.ParseFromArray(bytes.data() + kMessageAt, static_cast<int>(size))) {
    return Damaged(file, "its message cannot be parsed");
  }
  const size_t with_unknown = manifest.ByteSizeLong();
  manifest.DiscardUnknownFields();
  if (manifest.ByteSizeLong() == with_unknown) return manifest;
  return absl::FailedPreconditionError(
      absl::StrCat("manifest ", file, ": has ", with_unknown - manifest.ByteSizeLong(),
                   " bytes of fields that this version does not know"));
}

absl::Status CheckId(absl::string_view id) {
  const bool good = !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("checkpoint id ", Quoted(id), ", expecting [a-z0-9-]{1,64}"));
}

}  // namespace kaon::checkpoint
