// Settings of a server's HTTP listener, and the rule of who may read it. On loopback metrics need
// no credential. Elsewhere the server has TLS, and every caller has a token. Any thread.
#ifndef KAON_SERVER_MONITOR_METRICS_HTTP_SETTINGS_H_
#define KAON_SERVER_MONITOR_METRICS_HTTP_SETTINGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/config.pb.h"
#include "server/monitor/metrics/http_server.h"

namespace kaon::metrics {

struct HttpSettings {
  // host:port; empty: no listener.
  std::string address;
  // Empty: no token file.
  std::string token_file;
  // Empty: none.
  std::string port_file;
  // Certificate of the server; used unless `address` is loopback.
  v1::TlsConfig tls;
};

// Returns the settings of a ShardConfig or a CoordinatorConfig.
template <typename Config>
HttpSettings HttpSettingsOf(const Config& config) {
  return {config.metrics_address(), config.metrics_token_file(), config.metrics_port_file(),
          config.tls()};
}

// Checks the settings as a start would, without opening the port.
//   INVALID_ARGUMENT     the address is not host:port, or missing while a file is named
//   FAILED_PRECONDITION  the address is not loopback and there is no token or no TLS; the token
//                        file cannot be used. The message says what to do
absl::Status CheckHttpSettings(const HttpSettings& settings);

// Returns the options of a server without routes. The settings have passed CheckHttpSettings. The
// token is that of the file, if one is named.
absl::StatusOr<HttpOptions> HttpOptionsOf(const HttpSettings& settings);

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_HTTP_SETTINGS_H_
