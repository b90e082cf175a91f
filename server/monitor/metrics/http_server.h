// A small HTTP server that only reads, on libmicrohttpd, for metrics and the status page. It bounds
// connections, the size of a request and the time of a silent peer. It answers GET and HEAD only.
// Owned by one server; Start and Stop from one thread. Handlers run on the connections' threads.
#ifndef KAON_SERVER_MONITOR_METRICS_HTTP_SERVER_H_
#define KAON_SERVER_MONITOR_METRICS_HTTP_SERVER_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct MHD_Connection;
struct MHD_Daemon;

namespace kaon::metrics {

struct HttpRequest {
  std::string path;
  // Decoded arguments of the query.
  std::map<std::string, std::string> query;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  // If set, replaces `body`. Returns the next bytes to send, and waits for at most a second; an
  // empty string ends the response.
  std::function<std::string()> stream;
};

struct HttpRoute {
  std::string path;
  // False: a peer of this machine needs no token. It counts on a loopback address only.
  bool always_needs_token = true;
  std::function<HttpResponse(const HttpRequest& request)> answer;
};

struct HttpOptions {
  // host:port; port 0 = any.
  std::string address;
  // Required of callers, as `Authorization: Bearer TOKEN`, as `?token=TOKEN` or as the cookie that
  // the latter sets. If empty, routes that always need a token are closed.
  std::string token;
  // PEM files; both empty: plain HTTP.
  std::string certificate_file;
  std::string private_key_file;
  std::vector<HttpRoute> routes;
};

// Upper bound on the descriptors that a server uses.
inline constexpr size_t kHttpDescriptors = 72;

class HttpServer {
 public:
  // FAILED_PRECONDITION naming the address if it cannot be used, or the file if TLS cannot.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options);
  // Calls Stop.
  ~HttpServer();

  int port() const { return port_; }
  // Uses the certificate files from now on, if they have changed. Open connections end then. Keeps
  // what it has while the files cannot be read or do not match.
  void RereadCertificates();
  // Ends all connections; a handler may take as long as it waits. Idempotent.
  void Stop();
  // Any thread.
  bool stopping() const { return stopping_; }

  // Answers the request of a connection. libmicrohttpd calls it through a function of C.
  int Answer(MHD_Connection* connection, const char* url, const char* method);
  // Tells that a stream ended.
  void EndStream() { --streams_; }

 private:
  explicit HttpServer(HttpOptions options) : options_(std::move(options)) {}
  absl::Status Listen();
  absl::Status Run();
  // Returns the route of a request, or the response to one that may not have it.
  std::pair<const HttpRoute*, HttpResponse> Admit(MHD_Connection* connection,
                                                  const HttpRequest& request) const;
  int Send(MHD_Connection* connection, HttpResponse response);

  const HttpOptions options_;
  bool loopback_ = false;
  int port_ = 0;
  int socket_ = -1;
  // PEM texts that the daemon runs with.
  std::string certificate_;
  std::string private_key_;
  // PEM texts, joined, that were read since and are of no use.
  std::string refused_;
  MHD_Daemon* daemon_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<int> streams_{0};
};

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_HTTP_SERVER_H_
