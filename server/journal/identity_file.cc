#include "server/journal/identity_file.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/disk/replace_file.h"

namespace kaon::journal {

namespace {

constexpr absl::string_view kFirstLine = "kaon data 2\n";
constexpr size_t kHexDigits = 32;
constexpr size_t kFileBytes = kFirstLine.size() + kHexDigits + 1;

// Accept only what ToHex prints: with two spellings of one number, a changed byte could stay
// undetected.
std::optional<uint64_t> ParseHex(absl::string_view digits) {
  uint64_t value = 0;
  for (const char digit : digits) {
    const size_t nibble = absl::string_view("0123456789abcdef").find(digit);
    if (nibble == absl::string_view::npos) return std::nullopt;
    value = value << 4 | nibble;
  }
  return value;
}

std::optional<DirectoryId> ParseId(absl::string_view line) {
  if (line.size() != kHexDigits + 1 || line.back() != '\n') return std::nullopt;
  const std::optional<uint64_t> high = ParseHex(line.substr(0, 16));
  const std::optional<uint64_t> low = ParseHex(line.substr(16, 16));
  if (!high.has_value() || !low.has_value()) return std::nullopt;
  return DirectoryId{*high, *low};
}

}  // namespace

std::string DirectoryId::ToHex() const {
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

uint64_t DirectoryId::Hash() const {
  // A change of few bits changes the hash. The factor is odd, so the map of each half is one to
  // one.
  return high * 0x9e3779b97f4a7c15 ^ low;
}

absl::StatusOr<std::optional<DirectoryId>> ReadIdentity(disk::Directory& directory) {
  absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Open(kIdentityFile);
  if (file.status().code() == absl::StatusCode::kNotFound) return std::nullopt;
  if (!file.ok()) return file.status();
  // Read one byte more than the file may have, to detect a longer file.
  char buffer[kFileBytes + 1];
  KAON_ASSIGN_OR_RETURN(const size_t size, (*file)->Read(0, sizeof(buffer), buffer));
  const absl::string_view contents(buffer, size);
  if (!absl::StartsWith(contents, kFirstLine)) {
    const absl::string_view line = contents.substr(0, contents.find('\n'));
    return absl::FailedPreconditionError(
        absl::StrCat((*file)->path(), " starts with the line '", proto::Excerpt(line),
                     "', expecting '", kFirstLine.substr(0, kFirstLine.size() - 1), "'"));
  }
  const absl::string_view second = contents.substr(kFirstLine.size());
  const std::optional<DirectoryId> id = ParseId(second);
  if (!id.has_value()) {
    return absl::DataLossError(absl::StrCat((*file)->path(), " has the second line '",
                                            proto::Excerpt(second), "', expecting ", kHexDigits,
                                            " hexadecimal digits"));
  }
  return id;
}

absl::Status WriteIdentity(disk::Directory& directory, const DirectoryId& id) {
  return disk::ReplaceFile(directory, kIdentityFile, absl::StrCat(kFirstLine, id.ToHex(), "\n"));
}

}  // namespace kaon::journal
