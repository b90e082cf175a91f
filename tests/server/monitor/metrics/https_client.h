// A blocking HTTPS client of a port on loopback, for tests. It trusts any certificate. One thread.
#ifndef KAON_TESTS_SERVER_MONITOR_METRICS_HTTPS_CLIENT_H_
#define KAON_TESTS_SERVER_MONITOR_METRICS_HTTPS_CLIENT_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/monitor/metrics/http_client.h"

namespace kaon::metrics {

struct HttpsAnswer {
  // Empty if the handshake failed.
  std::string response;
  // Subject of the server's certificate: "/O=Kaon/CN=shard".
  std::string subject;
};

// Fetches with a version of TLS up to `newest`; 0 = any. Old versions are offered even where
// OpenSSL's defaults forbid them.
inline HttpsAnswer FetchSecurely(int port, const std::string& target, int newest = 0) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  SSL_CTX_set_cipher_list(context.get(), "ALL:@SECLEVEL=0");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), newest);
  HttpConnection connection(port);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_fd(ssl.get(), connection.socket());
  HttpsAnswer answer;
  if (!connection.connected()) return answer;
  if (SSL_connect(ssl.get()) != 1) return answer;
  const std::unique_ptr<X509, void (*)(X509*)> certificate(SSL_get1_peer_certificate(ssl.get()),
                                                           X509_free);
  char subject[256] = "";
  X509_NAME_oneline(X509_get_subject_name(certificate.get()), subject, sizeof(subject));
  answer.subject = subject;
  const std::string request =
      absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  SSL_write(ssl.get(), request.data(), static_cast<int>(request.size()));
  char bytes[4096];
  for (int read = 0; (read = SSL_read(ssl.get(), bytes, sizeof(bytes))) > 0;) {
    answer.response.append(bytes, static_cast<size_t>(read));
  }
  return answer;
}

}  // namespace kaon::metrics

#endif  // KAON_TESTS_SERVER_MONITOR_METRICS_HTTPS_CLIENT_H_
