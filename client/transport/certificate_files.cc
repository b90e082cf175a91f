#include "client/transport/certificate_files.h"

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::client {

namespace {

// Seconds between checks of the files.
constexpr unsigned kRefreshSeconds = 2;

}  // namespace

absl::Status CheckReadable(absl::string_view what, const std::string& path) {
  std::ifstream file(path);
  if (file.good()) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("tls ", what, " file '", proto::OneLine(path), "' cannot be read"));
}

absl::StatusOr<bool> AreNamed(const kaon::TlsFiles& files) {
  const int named = !files.ca.empty() + !files.certificate.empty() + !files.private_key.empty();
  if (named == 0 || named == 3) return named == 3;
  return absl::InvalidArgumentError(absl::StrCat(
      "tls: ", named, " of the files ca, certificate and private key named, expecting 3 or 0"));
}

absl::StatusOr<std::shared_ptr<grpc::experimental::CertificateProviderInterface>> WatchFiles(
    const kaon::TlsFiles& files) {
  KAON_RETURN_IF_ERROR(CheckReadable("ca", files.ca));
  KAON_RETURN_IF_ERROR(CheckReadable("certificate", files.certificate));
  KAON_RETURN_IF_ERROR(CheckReadable("private key", files.private_key));
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.private_key, files.certificate, files.ca, kRefreshSeconds);
}

}  // namespace kaon::client
