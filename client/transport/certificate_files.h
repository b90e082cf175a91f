// Reads the certificate files behind the credentials of a caller or a server, and reads them again
// when they change. All three files are named, or none. Pure functions except for the files; any
// thread.
#ifndef KAON_CLIENT_TRANSPORT_CERTIFICATE_FILES_H_
#define KAON_CLIENT_TRANSPORT_CERTIFICATE_FILES_H_

#include <grpcpp/security/tls_certificate_provider.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/kaon/client_options.h"

namespace kaon::client {

// Returns whether the three files are named; INVALID_ARGUMENT if only some are.
absl::StatusOr<bool> AreNamed(const kaon::TlsFiles& files);

// Returns NOT_FOUND if the file cannot be opened; the error names it and `what` it holds.
absl::Status CheckReadable(absl::string_view what, const std::string& path);

// Watches the files and reads them again within seconds of a change. The credentials made from the
// result share it. NOT_FOUND names a file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::experimental::CertificateProviderInterface>> WatchFiles(
    const kaon::TlsFiles& files);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CERTIFICATE_FILES_H_
