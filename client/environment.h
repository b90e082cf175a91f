// Names of the environment variables and files by which kaonctl, kaon-train and trainers find a
// cluster. Reads the environment and the file coordinator.port; any thread, unless another one
// changes the environment.
#ifndef KAON_CLIENT_ENVIRONMENT_H_
#define KAON_CLIENT_ENVIRONMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/kaon/client_options.h"

namespace kaon::client {

// Directory of a cluster on this machine, made by deploy/local_cluster.sh.
inline constexpr char kDirectoryVariable[] = "KAON_DIR";
inline constexpr char kEndpointsVariable[] = "KAON_ENDPOINTS";
inline constexpr char kTlsDirectoryVariable[] = "KAON_TLS_DIR";
inline constexpr char kCaVariable[] = "KAON_CA";
inline constexpr char kCertificateVariable[] = "KAON_CERT";
inline constexpr char kPrivateKeyVariable[] = "KAON_KEY";
inline constexpr char kRankVariable[] = "KAON_RANK";
inline constexpr char kNcclVariable[] = "KAON_NCCL";

// Returns the value of a variable; "" if it is not set.
std::string FromEnvironment(const char* variable);

// Returns the address of the coordinator of the cluster in `directory`. NOT_FOUND if its
// coordinator.port cannot be read.
absl::StatusOr<std::string> EndpointIn(const std::string& directory);

// Returns the name of a worker's certificate in `directory`: worker-`rank`; or worker, for any
// rank, if `rank` is empty or only worker.crt is there.
std::string WorkerNameIn(const std::string& directory, const std::string& rank);

// Fills each path that is empty: ca.crt, `name`.crt and `name`.key in `directory`.
void FillTlsFiles(const std::string& directory, const std::string& name, kaon::TlsFiles& files);

}  // namespace kaon::client

#endif  // KAON_CLIENT_ENVIRONMENT_H_
