#include "server/monitor/metrics/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <microhttpd.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/transport/loopback.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::metrics {

namespace {

constexpr unsigned kMaxConnections = 64;
// One peer that sends its headers byte by byte leaves the other half.
constexpr unsigned kConnectionsOfAddress = 32;
// Leaves room for a scrape while pages are open.
constexpr int kMaxStreams = 24;
// Bounds the request line, its headers, and buffers of the response.
constexpr size_t kConnectionBytes = 32 << 10;
constexpr unsigned kSilenceSeconds = 15;
constexpr int kBacklog = 64;
constexpr size_t kStreamBlock = 16 << 10;
// GnuTLS' defaults allow TLS 1.0 and 1.1.
constexpr char kTlsVersions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
// Browsers send a cookie to every port of a host, so that its name has the port.
std::string CookieName(int port) { return absl::StrCat("kaon_token_", port); }

// A browser stores cookies in the clear. The value opens the pages of one port, and does not tell
// the token.
std::string CookieValue(const std::string& token, int port) {
  if (token.empty()) return "";
  const std::string name = CookieName(port);
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
       reinterpret_cast<const unsigned char*>(name.data()), name.size(), code, &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(code), static_cast<size_t>(size)));
}

std::string PercentEncoded(const std::string& text) {
  std::string encoded;
  for (const char letter : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(letter)) ||
        absl::StrContains("-._~", letter)) {
      encoded += letter;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(letter));
    }
  }
  return encoded;
}

// The address of a request without its token.
std::string WithoutToken(const HttpRequest& request) {
  std::string address = request.path;
  char before = '?';
  for (const auto& [name, value] : request.query) {
    if (name == "token") continue;
    absl::StrAppend(&address, std::string(1, std::exchange(before, '&')), PercentEncoded(name), "=",
                    PercentEncoded(value));
  }
  return address;
}

absl::Status Refused(const std::string& address, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("metrics_address is \"", proto::Excerpt(address), "\": ", why));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::FailedPreconditionError(
        absl::StrCat("metrics_address needs '", proto::OneLine(path), "', which cannot be read"));
  }
  return text.str();
}

// Returns whether the first certificate of a PEM text belongs to the private key of another.
bool Match(const std::string& certificate, const std::string& key) {
  const auto open = [](const std::string& text) {
    return std::unique_ptr<BIO, int (*)(BIO*)>(
        BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  };
  const std::unique_ptr<X509, void (*)(X509*)> x509(
      PEM_read_bio_X509(open(certificate).get(), nullptr, nullptr, nullptr), X509_free);
  // An encrypted key has no password here, and must not ask a terminal for one.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> private_key(
      PEM_read_bio_PrivateKey(open(key).get(), nullptr, no_password, nullptr), EVP_PKEY_free);
  const bool match = x509 != nullptr && private_key != nullptr &&
                     X509_check_private_key(x509.get(), private_key.get()) == 1;
  ERR_clear_error();
  return match;
}

// Takes as long for any guess of that length.
bool IsEqual(absl::string_view a, absl::string_view b) {
  return !b.empty() && a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::string_view OrEmpty(const char* text) { return text == nullptr ? "" : text; }

// A page of another site must not read this server through a name that resolves to this machine.
bool IsLocalHost(absl::string_view host) {
  if (!absl::StrContains(host, ':') || absl::EndsWith(host, "]")) {
    return client::IsLoopback(absl::StrCat(host, ":1"));
  }
  return client::IsLoopback(host);
}

MHD_Result OnRequest(void* server, MHD_Connection* connection, const char* url, const char* method,
                     const char*, const char*, size_t* upload_bytes, void** state) {
  const absl::string_view verb(method);
  // The first call has the headers alone. A method that is refused is refused then.
  if (*state == nullptr && (verb == "GET" || verb == "HEAD")) {
    *state = server;
    return MHD_YES;
  }
  // No request has a body.
  if (*upload_bytes > 0) return MHD_NO;
  return static_cast<MHD_Result>(static_cast<HttpServer*>(server)->Answer(connection, url, method));
}

MHD_Result AddArgument(void* query, MHD_ValueKind, const char* key, const char* value) {
  (*static_cast<std::map<std::string, std::string>*>(query))[key] = std::string(OrEmpty(value));
  return MHD_YES;
}

struct Stream {
  HttpServer* server = nullptr;
  std::function<std::string()> next;
  std::string rest;
};

ssize_t ReadStream(void* state, uint64_t, char* to, size_t most) {
  Stream& stream = *static_cast<Stream*>(state);
  if (stream.rest.empty() && !stream.server->stopping()) stream.rest = stream.next();
  if (stream.rest.empty()) return MHD_CONTENT_READER_END_OF_STREAM;
  const size_t size = std::min(most, stream.rest.size());
  std::memcpy(to, stream.rest.data(), size);
  stream.rest.erase(0, size);
  return static_cast<ssize_t>(size);
}

void FreeStream(void* state) {
  const std::unique_ptr<Stream> stream(static_cast<Stream*>(state));
  stream->server->EndStream();
}

HttpResponse Error(int status, absl::string_view text) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrCat(text, "\n");
  if (status == MHD_HTTP_UNAUTHORIZED) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(options)));
  server->loopback_ = client::IsLoopback(server->options_.address);
  if (!server->options_.certificate_file.empty()) {
    KAON_ASSIGN_OR_RETURN(server->certificate_, ReadFile(server->options_.certificate_file));
    KAON_ASSIGN_OR_RETURN(server->private_key_, ReadFile(server->options_.private_key_file));
    if (!Match(server->certificate_, server->private_key_)) {
      return Refused(server->options_.address,
                     "certificate_file and private_key_file do not match");
    }
  }
  KAON_RETURN_IF_ERROR(server->Listen());
  KAON_RETURN_IF_ERROR(server->Run());
  return server;
}

absl::Status HttpServer::Listen() {
  const std::string& address = options_.address;
  const std::string host(client::HostOf(address));
  const std::string port = address.substr(address.rfind(':') + 1);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Refused(address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  socket_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (socket_ < 0 || bind(socket_, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket_, kBacklog) != 0) {
    return Refused(address, std::strerror(errno));
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &size);
  // The port is at the same place in both families.
  port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return absl::OkStatus();
}

absl::Status HttpServer::Run() {
  unsigned flags =
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ITC;
  std::vector<MHD_OptionItem> more;
  if (!certificate_.empty()) {
    flags |= MHD_USE_TLS;
    more.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, certificate_.data()});
    more.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, private_key_.data()});
    more.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsVersions)});
  }
  more.push_back({MHD_OPTION_END, 0, nullptr});
  // libmicrohttpd closes what it is given, also if it does not start.
  const int listening = fcntl(socket_, F_DUPFD_CLOEXEC, 0);
  if (listening < 0) return Refused(options_.address, std::strerror(errno));
  daemon_ = MHD_start_daemon(flags, 0, nullptr, nullptr, OnRequest, this, MHD_OPTION_LISTEN_SOCKET,
                             listening, MHD_OPTION_CONNECTION_LIMIT, kMaxConnections,
                             MHD_OPTION_PER_IP_CONNECTION_LIMIT, kConnectionsOfAddress,
                             MHD_OPTION_CONNECTION_TIMEOUT, kSilenceSeconds,
                             MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_ARRAY,
                             more.data(), MHD_OPTION_END);
  if (daemon_ != nullptr) return absl::OkStatus();
  return Refused(options_.address, certificate_.empty()
                                       ? "libmicrohttpd does not start"
                                       : "libmicrohttpd does not start with the tls files");
}

void HttpServer::RereadCertificates() {
  if (certificate_.empty()) return;
  absl::StatusOr<std::string> certificate = ReadFile(options_.certificate_file);
  absl::StatusOr<std::string> key = ReadFile(options_.private_key_file);
  if (!certificate.ok() || !key.ok()) return;
  const bool is_new = *certificate != certificate_ || *key != private_key_;
  // One of the two files may come later. The old pair is served until then.
  const std::string pair = absl::StrCat(*certificate, *key);
  if ((!is_new && daemon_ != nullptr) || pair == refused_) return;
  refused_ = pair;
  if (!Match(*certificate, *key)) {
    LOG(WARNING) << "the certificate and the private key of metrics do not match: the old ones "
                    "are served";
    return;
  }
  if (daemon_ != nullptr) {
    stopping_ = true;
    MHD_stop_daemon(daemon_);
    stopping_ = false;
    daemon_ = nullptr;
  }
  certificate_.swap(*certificate);
  private_key_.swap(*key);
  absl::Status started = Run();
  if (started.ok()) {
    refused_.clear();
    return;
  }
  LOG(ERROR) << started.message();
  certificate_.swap(*certificate);
  private_key_.swap(*key);
  started = Run();
  if (started.ok()) return;
  // The next call tries both again.
  refused_.clear();
  LOG(ERROR) << started.message();
}

void HttpServer::Stop() {
  if (stopping_.exchange(true)) return;
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  if (socket_ >= 0) close(socket_);
}

HttpServer::~HttpServer() { Stop(); }

std::pair<const HttpRoute*, HttpResponse> HttpServer::Admit(MHD_Connection* connection,
                                                            const HttpRequest& request) const {
  const auto header = [connection](const char* name) {
    return OrEmpty(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name));
  };
  if (loopback_ && !IsLocalHost(header("Host"))) {
    return {nullptr, Error(MHD_HTTP_FORBIDDEN, "this address is for its own machine")};
  }
  const HttpRoute* route = nullptr;
  for (const HttpRoute& one : options_.routes) {
    if (one.path == request.path) route = &one;
  }
  if (loopback_ && route != nullptr && !route->always_needs_token) return {route, {}};
  absl::string_view bearer = header("Authorization");
  const auto given = request.query.find("token");
  const bool has_header =
      absl::ConsumePrefix(&bearer, "Bearer ") && IsEqual(bearer, options_.token);
  const bool has_cookie = IsEqual(
      OrEmpty(MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, CookieName(port_).c_str())),
      CookieValue(options_.token, port_));
  const bool has_query = given != request.query.end() && IsEqual(given->second, options_.token);
  if (!has_header && !has_cookie && !has_query) {
    return {nullptr, Error(MHD_HTTP_UNAUTHORIZED,
                           "a token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN")};
  }
  if (route == nullptr) return {nullptr, Error(MHD_HTTP_NOT_FOUND, "there is no such page")};
  if (has_header || !has_query) return {route, {}};
  // The link with the token is for people: the address that they see and pass on has none.
  HttpResponse redirect = Error(MHD_HTTP_SEE_OTHER, "");
  redirect.headers = {
      {"Location", WithoutToken(request)},
      {"Set-Cookie", absl::StrCat(CookieName(port_), "=", CookieValue(options_.token, port_),
                                  "; HttpOnly; SameSite=Strict; Path=/",
                                  certificate_.empty() ? "" : "; Secure")}};
  return {nullptr, std::move(redirect)};
}

int HttpServer::Answer(MHD_Connection* connection, const char* url, const char* method) {
  const absl::string_view verb(method);
  if (verb != "GET" && verb != "HEAD") {
    HttpResponse refusal = Error(MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
    refusal.headers = {{"Allow", "GET, HEAD"}};
    return Send(connection, std::move(refusal));
  }
  HttpRequest request;
  request.path = url;
  MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, AddArgument, &request.query);
  auto [route, response] = Admit(connection, request);
  if (route != nullptr) response = route->answer(request);
  if (response.stream && verb == "HEAD") response.stream = nullptr;
  if (response.stream && ++streams_ > kMaxStreams) {
    --streams_;
    response = Error(MHD_HTTP_SERVICE_UNAVAILABLE, "too many pages are open");
    response.headers = {{"Retry-After", "10"}};
  }
  return Send(connection, std::move(response));
}

int HttpServer::Send(MHD_Connection* connection, HttpResponse response) {
  MHD_Response* answer = nullptr;
  if (response.stream) {
    auto stream = std::make_unique<Stream>(Stream{this, std::move(response.stream), ""});
    // FreeStream owns it.
    answer = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kStreamBlock, ReadStream,
                                               stream.release(), FreeStream);
  } else {
    answer = MHD_create_response_from_buffer(response.body.size(), response.body.data(),
                                             MHD_RESPMEM_MUST_COPY);
  }
  response.headers.push_back({"Content-Type", response.content_type});
  response.headers.push_back({"Cache-Control", "no-store"});
  response.headers.push_back({"X-Content-Type-Options", "nosniff"});
  response.headers.push_back({"Referrer-Policy", "no-referrer"});
  for (const auto& [name, value] : response.headers) {
    MHD_add_response_header(answer, name.c_str(), value.c_str());
  }
  const MHD_Result queued = MHD_queue_response(connection, response.status, answer);
  MHD_destroy_response(answer);
  return queued;
}

}  // namespace kaon::metrics
