// The certificate files behind a port's credentials, a caller's or a server's: all three or none,
// readable, and read again when they change. Pure functions but for the files; any thread.
#ifndef KAON_CLIENT_TRANSPORT_CERTIFICATE_FILES_H_
#define KAON_CLIENT_TRANSPORT_CERTIFICATE_FILES_H_

#include <grpcpp/security/tls_certificate_provider.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/kaon/client.h"

namespace kaon::client {

// Whether the three files are named. INVALID_ARGUMENT when only some are.
absl::StatusOr<bool> AreNamed(const kaon::TlsFiles& files);

// NOT_FOUND names the file and `what` it holds, unless it can be opened.
absl::Status CheckReadable(absl::string_view what, const std::string& path);

// Looks at the files every few seconds; shared by the credentials made of it. NOT_FOUND names a
// file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::experimental::CertificateProviderInterface>> WatchFiles(
    const kaon::TlsFiles& files);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CERTIFICATE_FILES_H_
