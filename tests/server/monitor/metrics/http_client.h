// A blocking HTTP client of a port on loopback, for tests. One thread.
#ifndef KAON_TESTS_SERVER_MONITOR_METRICS_HTTP_CLIENT_H_
#define KAON_TESTS_SERVER_MONITOR_METRICS_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace kaon::metrics {

// A connection; it ends with the object.
class HttpConnection {
 public:
  // `from` is the loopback address that the server sees.
  explicit HttpConnection(int port, const std::string& from = "127.0.0.1")
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = inet_addr(from.c_str());
    bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof(own));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~HttpConnection() { close(socket_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  bool connected() const { return connected_; }
  int socket() const { return socket_; }
  void Send(const std::string& text) { send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Reads until the text ends with `end`, or to the end of the connection.
  std::string ReadUntil(const std::string& end) {
    std::string text;
    char bytes[4096];
    // Byte by byte if more may follow `end`.
    const size_t most = end.empty() ? sizeof(bytes) : 1;
    for (ssize_t count = 0; (count = recv(socket_, bytes, most, 0)) > 0;) {
      text.append(bytes, static_cast<size_t>(count));
      if (!end.empty() && text.size() >= end.size() &&
          text.compare(text.size() - end.size(), end.size(), end) == 0) {
        break;
      }
    }
    return text;
  }

 private:
  const int socket_;
  bool connected_ = false;
};

// Returns the whole response, headers included. `more` are header lines, each with its "\r\n".
inline std::string Fetch(int port, const std::string& target, const std::string& more = "",
                         const std::string& method = "GET", const std::string& host = "127.0.0.1") {
  HttpConnection connection(port);
  connection.Send(absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: ", host,
                               "\r\nConnection: close\r\n", more, "\r\n"));
  return connection.ReadUntil("");
}

// Returns the status of a response; 0 if it is none.
inline int StatusOf(const std::string& response) {
  return response.rfind("HTTP/1.1 ", 0) == 0 ? std::stoi(response.substr(9)) : 0;
}

}  // namespace kaon::metrics

#endif  // KAON_TESTS_SERVER_MONITOR_METRICS_HTTP_CLIENT_H_
