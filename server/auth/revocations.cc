#include "server/auth/revocations.h"

#include <glog/logging.h>
#include <openssl/err.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/transport/openssl_types.h"
#include "proto/identity.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::auth {

namespace {

using client::Bio;
using client::BioOf;
using client::Certificate;
using client::ErrorMark;
using client::RevocationList;

// A CRL of a million certificates has 40 MB.
constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;

absl::StatusOr<std::string> ReadFile(absl::string_view what, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (!file || error) {
    return absl::NotFoundError(absl::StrCat("tls ", what, " '", path, "' cannot be read"));
  }
  if (size > kMaxFileBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "tls ", what, " '", path, "' has ", size, " bytes, at most ", kMaxFileBytes, " are read"));
  }
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<uint64_t>(file.gcount()) == size) return text;
  return absl::NotFoundError(absl::StrCat("tls ", what, " '", path, "' became shorter"));
}

// Returns the files of the directory by name, without hidden ones.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator next(directory, error), end; !error && next != end;
       next.increment(error)) {
    std::error_code gone;
    const std::string name = next->path().filename();
    if (name.front() != '.' && next->is_regular_file(gone)) files.push_back(next->path());
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("tls crl_dir '", directory, "' cannot be read: ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

using Cas = std::vector<Certificate>;

absl::StatusOr<Cas> ReadCas(const std::string& path) {
  KAON_ASSIGN_OR_RETURN(const std::string text, ReadFile("ca_file", path));
  Cas cas;
  const Bio bio = BioOf(text);
  while (X509* ca = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) cas.emplace_back(ca);
  return cas;
}

// While a CA is replaced, two may have the same name.
bool IsSignedBy(X509_CRL* list, const Cas& cas) {
  return std::any_of(cas.begin(), cas.end(), [list](const Certificate& ca) {
    return X509_NAME_cmp(X509_get_subject_name(ca.get()), X509_CRL_get_issuer(list)) == 0 &&
           X509_CRL_verify(list, X509_get0_pubkey(ca.get())) == 1;
  });
}

// Lists of changes, or of certificates of others, would need another reading.
bool IsComplete(const X509_CRL* list) {
  return X509_CRL_get_ext_by_NID(list, NID_delta_crl, -1) < 0 &&
         X509_CRL_get_ext_by_NID(list, NID_issuing_distribution_point, -1) < 0;
}

absl::Status BadCrl(const std::string& path, absl::string_view fault) {
  return absl::FailedPreconditionError(
      absl::StrCat("file '", path, "' of tls crl_dir ", fault,
                   ": it must hold revocation lists in PEM, each signed by a CA of tls.ca_file"));
}

void Describe(const std::string& path, std::string* text) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0) {
    absl::StrAppend(text, path, " gone;");
    return;
  }
  // The time of the inode also changes with its owner and mode.
  absl::StrAppend(text, path, " ", facts.st_ino, " ", facts.st_size, " ", facts.st_mtim.tv_sec, ".",
                  facts.st_mtim.tv_nsec, " ", facts.st_ctim.tv_sec, ".", facts.st_ctim.tv_nsec,
                  ";");
}

// Passes the issuer and serial of each revoked certificate to `revoke`.
absl::Status ReadLists(const std::string& path, const std::string& text, const Cas& cas,
                       const std::function<void(std::string, std::string)>& revoke) {
  const Bio bio = BioOf(text);
  int num_lists = 0;
  while (const RevocationList list{PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr)}) {
    ++num_lists;
    if (!IsSignedBy(list.get(), cas)) return BadCrl(path, "has a list of another issuer");
    if (!IsComplete(list.get())) return BadCrl(path, "has a list that is not complete");
    const ASN1_TIME* const next = X509_CRL_get0_nextUpdate(list.get());
    LOG_IF(WARNING, next != nullptr && X509_cmp_current_time(next) < 0)
        << "revocation list " << path << " is past its next update; it stays in use";
    const std::string issuer = DerOf(X509_CRL_get_issuer(list.get()));
    STACK_OF(X509_REVOKED)* const revoked = X509_CRL_get_REVOKED(list.get());
    for (int i = 0; i < sk_X509_REVOKED_num(revoked); ++i) {
      revoke(issuer, SerialOf(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(revoked, i))));
    }
  }
  if (num_lists == 0) return BadCrl(path, "has no list");
  // After the last list OpenSSL finds no start line. Any other error means damage.
  if (ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE) return absl::OkStatus();
  return BadCrl(path, absl::StrCat("is damaged behind list ", num_lists, " of it"));
}

}  // namespace

std::string Revocations::DeniedFingerprint(const v1::TlsConfig& tls) {
  std::string text;
  if (!tls.deny_file().empty()) Describe(tls.deny_file(), &text);
  return text;
}

std::string Revocations::RevokedFingerprint(const v1::TlsConfig& tls) {
  std::string text;
  if (tls.crl_dir().empty()) return text;
  Describe(tls.ca_file(), &text);
  for (const std::string& file : FilesOf(tls.crl_dir()).value_or(std::vector<std::string>())) {
    Describe(file, &text);
  }
  return text;
}

absl::StatusOr<Revocations> Revocations::ReadDenied(const v1::TlsConfig& tls,
                                                    const std::string& domain) {
  Revocations denied;
  if (tls.deny_file().empty()) return denied;
  KAON_ASSIGN_OR_RETURN(const std::string text, ReadFile("deny_file", tls.deny_file()));
  if (text.empty() || text.back() != '\n') {
    return absl::FailedPreconditionError(
        absl::StrCat("tls deny_file '", tls.deny_file(),
                     "' is empty or does not end with a line feed: is it complete?"
                     " A file that denies nobody has a comment"));
  }
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string where = absl::StrCat("line ", number, " of ", tls.deny_file());
    const absl::StatusOr<proto::Identity> identity = proto::ParseIdentity(line);
    if (absl::string_view digits = line; absl::ConsumePrefix(&digits, "serial:")) {
      std::string serial = absl::AsciiStrToUpper(digits);
      serial.erase(0, std::min(serial.find_first_not_of('0'), serial.size()));
      if (!serial.empty() && serial.find_first_not_of("0123456789ABCDEF") == std::string::npos) {
        denied.serials_.emplace(std::move(serial), where);
        continue;
      }
    } else if (identity.ok() && identity->domain == domain) {
      denied.identities_.emplace(line, where);
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(where, " '", proto::Excerpt(line),
                     "' is neither an identity of this trust domain, such as spiffe://", domain,
                     "/kaon/worker/gpt/0, nor serial:HEX"));
  }
  return denied;
}

absl::StatusOr<Revocations> Revocations::ReadRevoked(const v1::TlsConfig& tls) {
  const ErrorMark mark;
  Revocations revoked;
  if (tls.crl_dir().empty()) return revoked;
  KAON_ASSIGN_OR_RETURN(const Cas cas, ReadCas(tls.ca_file()));
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(tls.crl_dir()));
  if (files.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "tls crl_dir '", tls.crl_dir(),
        "' has no file: is its disk mounted? A CA that revoked nobody has an empty list; to do "
        "without lists, remove crl_dir"));
  }
  for (const std::string& path : files) {
    KAON_ASSIGN_OR_RETURN(const std::string text, ReadFile("crl_dir's file", path));
    KAON_RETURN_IF_ERROR(ReadLists(path, text, cas, [&](std::string issuer, std::string serial) {
      revoked.revoked_.emplace(std::pair(std::move(issuer), std::move(serial)), path);
    }));
  }
  return revoked;
}

std::string Revocations::Refuses(const PeerCertificate& certificate) const {
  if (const auto found = serials_.find(certificate.serial); found != serials_.end()) {
    return found->second;
  }
  const auto revoked = revoked_.find({certificate.issuer, certificate.serial});
  if (revoked != revoked_.end()) return absl::StrCat("revocation list ", revoked->second);
  // An identity, and each one above it.
  for (absl::string_view uri = certificate.uri; !uri.empty();) {
    const auto found = identities_.find(std::string(uri));
    if (found != identities_.end()) return found->second;
    const size_t slash = uri.rfind('/');
    uri = slash == absl::string_view::npos ? "" : uri.substr(0, slash);
  }
  return "";
}

}  // namespace kaon::auth
