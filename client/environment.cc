#include "client/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/text.h"

namespace kaon::client {

std::string FromEnvironment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> EndpointIn(const std::string& directory) {
  const std::string path = directory + "/coordinator.port";
  std::ifstream file(path);
  int port = 0;
  if (!(file >> port)) {
    return absl::NotFoundError(absl::StrCat("no port in '", proto::OneLine(path), "'"));
  }
  return absl::StrCat("127.0.0.1:", port);
}

std::string WorkerNameIn(const std::string& directory, const std::string& rank) {
  const std::string any_rank = "worker";
  if (rank.empty()) return any_rank;
  const std::string one_rank = absl::StrCat(any_rank, "-", rank);
  const auto has = [&directory](const std::string& name) {
    return access(absl::StrCat(directory, "/", name, ".crt").c_str(), F_OK) == 0;
  };
  return !has(one_rank) && has(any_rank) ? any_rank : one_rank;
}

void FillTlsFiles(const std::string& directory, const std::string& name, kaon::TlsFiles& files) {
  if (files.ca.empty()) files.ca = directory + "/ca.crt";
  if (files.certificate.empty()) files.certificate = absl::StrCat(directory, "/", name, ".crt");
  if (files.private_key.empty()) files.private_key = absl::StrCat(directory, "/", name, ".key");
}

}  // namespace kaon::client

namespace kaon {

Result<ClientOptions> ClientOptions::FromEnvironment() {
  const std::string directory = client::FromEnvironment(client::kDirectoryVariable);
  ClientOptions options;
  options.coordinators = absl::StrSplit(client::FromEnvironment(client::kEndpointsVariable), ',',
                                        absl::SkipWhitespace());
  if (options.coordinators.empty() && directory.empty()) {
    return Status(
        StatusCode::kInvalidArgument,
        absl::StrCat("neither ", client::kEndpointsVariable, " nor ", client::kDirectoryVariable,
                     " is set: set the first to host:port,... "
                     "of the coordinators"));
  }
  if (options.coordinators.empty()) {
    absl::StatusOr<std::string> endpoint = client::EndpointIn(directory);
    if (!endpoint.ok()) {
      return Status(StatusCode::kNotFound,
                    absl::StrCat(client::kDirectoryVariable, ": ", endpoint.status().message()));
    }
    options.coordinators.push_back(*std::move(endpoint));
  }
  options.tls = {client::FromEnvironment(client::kCaVariable),
                 client::FromEnvironment(client::kCertificateVariable),
                 client::FromEnvironment(client::kPrivateKeyVariable)};
  std::string tls_directory = client::FromEnvironment(client::kTlsDirectoryVariable);
  if (tls_directory.empty() && !directory.empty()) tls_directory = directory + "/tls";
  if (!tls_directory.empty()) {
    const std::string rank = client::FromEnvironment(client::kRankVariable);
    client::FillTlsFiles(tls_directory, client::WorkerNameIn(tls_directory, rank), options.tls);
  }
  options.nccl = client::FromEnvironment(client::kNcclVariable);
  return options;
}

}  // namespace kaon
