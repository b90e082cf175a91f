#include "server/monitor/metrics/http_settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/transport/loopback.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/config/check_directory.h"

namespace kaon::metrics {

namespace {

constexpr size_t kLeastTokenBytes = 16;
constexpr size_t kMostTokenBytes = 256;
constexpr char kMakeToken[] = "(umask 077; openssl rand -hex 24 > FILE)";

// The token goes into a header, a cookie and a query unescaped.
bool IsTokenCharacter(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; }

absl::Status Fault(const std::string& path, absl::string_view fault) {
  return absl::FailedPreconditionError(
      absl::StrCat("metrics_token_file '", proto::OneLine(path), "' ", fault));
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0 || access(path.c_str(), R_OK) != 0) {
    return Fault(path, absl::StrCat("cannot be read; make it by ", kMakeToken));
  }
  const mode_t allowed = facts.st_uid == 0 ? 0740 : 0700;
  if ((facts.st_mode & 0777 & ~allowed) != 0) {
    return Fault(path, absl::StrFormat("has mode %04o, must be 0600, or 0640 if root owns it",
                                       facts.st_mode & 07777));
  }
  std::ifstream file(path);
  std::string token(kMostTokenBytes + 2, '\0');
  file.read(token.data(), token.size());
  token.resize(file.gcount());
  absl::StripTrailingAsciiWhitespace(&token);
  if (token.size() < kLeastTokenBytes || token.size() > kMostTokenBytes ||
      !std::all_of(token.begin(), token.end(), IsTokenCharacter)) {
    return Fault(path, absl::StrCat("must hold ", kLeastTokenBytes, " .. ", kMostTokenBytes,
                                    " letters, digits, - or _; make it by ", kMakeToken));
  }
  return token;
}

}  // namespace

absl::Status CheckHttpSettings(const HttpSettings& settings) {
  if (settings.address.empty()) {
    if (settings.token_file.empty() && settings.port_file.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("metrics_address is empty, must be host:port with ",
                     settings.token_file.empty() ? "metrics_port_file" : "metrics_token_file"));
  }
  const std::string shown = absl::StrCat("metrics_address is \"", proto::Excerpt(settings.address));
  if (client::HostOf(settings.address).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(shown, "\", must be host:port"));
  }
  if (!client::IsLoopback(settings.address)) {
    if (settings.token_file.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          shown, "\", which other machines reach: set metrics_token_file to a file with a token, ",
          kMakeToken, ", or use 127.0.0.1"));
    }
    if (settings.tls.certificate_file().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(shown, "\", which other machines reach: set tls, or use 127.0.0.1"));
    }
  }
  KAON_RETURN_IF_ERROR(config::CheckDirectoryOf("metrics_port_file", settings.port_file));
  return HttpOptionsOf(settings).status();
}

absl::StatusOr<HttpOptions> HttpOptionsOf(const HttpSettings& settings) {
  HttpOptions options;
  options.address = settings.address;
  if (!settings.token_file.empty()) {
    KAON_ASSIGN_OR_RETURN(options.token, ReadToken(settings.token_file));
  }
  if (!client::IsLoopback(settings.address)) {
    options.certificate_file = settings.tls.certificate_file();
    options.private_key_file = settings.tls.private_key_file();
  }
  return options;
}

}  // namespace kaon::metrics
