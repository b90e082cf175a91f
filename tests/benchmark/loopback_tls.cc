#include "tests/benchmark/loopback_tls.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/benchmark/loopback_tcp.h"

namespace kaon::benchmark {

namespace {

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, FreeContext>;

Context MakeContext(const SSL_METHOD* method, const std::string& certificates,
                    const std::string& name) {
  Context context(SSL_CTX_new(method));
  CHECK(context != nullptr);
  const std::string path = certificates + "/" + name;
  CHECK_EQ(
      SSL_CTX_load_verify_locations(context.get(), (certificates + "/ca.crt").c_str(), nullptr), 1)
      << certificates;
  CHECK_EQ(SSL_CTX_use_certificate_file(context.get(), (path + ".crt").c_str(), SSL_FILETYPE_PEM),
           1)
      << path;
  CHECK_EQ(SSL_CTX_use_PrivateKey_file(context.get(), (path + ".key").c_str(), SSL_FILETYPE_PEM), 1)
      << path;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return context;
}

void Send(SSL* ssl, const std::vector<char>& bytes, uint64_t chunk_bytes) {
  for (uint64_t sent = 0; sent < bytes.size();) {
    const uint64_t count = std::min<uint64_t>(chunk_bytes, bytes.size() - sent);
    const int done = SSL_write(ssl, bytes.data() + sent, static_cast<int>(count));
    CHECK_GT(done, 0) << "SSL_write";
    sent += done;
  }
}

void Receive(SSL* ssl, uint64_t chunk_bytes, std::vector<char>& to) {
  for (uint64_t received = 0; received < to.size();) {
    const uint64_t most = std::min<uint64_t>(chunk_bytes, to.size() - received);
    const int done = SSL_read(ssl, to.data() + received, static_cast<int>(most));
    CHECK_GT(done, 0) << "SSL_read";
    received += done;
  }
}

}  // namespace

LoopbackTls::LoopbackTls(int connections, uint64_t bytes, const std::string& certificates) {
  const Context client = MakeContext(TLS_client_method(), certificates, "worker-0");
  const Context server = MakeContext(TLS_server_method(), certificates, "shard");
  for (const auto& [sender, receiver] : ConnectOverLoopback(connections)) {
    auto connection = std::make_unique<Connection>();
    connection->sender_fd = sender;
    connection->receiver_fd = receiver;
    connection->sender.reset(SSL_new(client.get()));
    connection->receiver.reset(SSL_new(server.get()));
    CHECK_EQ(SSL_set_fd(connection->sender.get(), sender), 1);
    CHECK_EQ(SSL_set_fd(connection->receiver.get(), receiver), 1);
    std::thread accepting([&] { CHECK_EQ(SSL_accept(connection->receiver.get()), 1); });
    CHECK_EQ(SSL_connect(connection->sender.get()), 1);
    accepting.join();
    cipher_ = std::string(SSL_get_version(connection->sender.get())) + " " +
              SSL_get_cipher_name(connection->sender.get());
    connection->from.assign(bytes, 'x');
    connection->to.assign(bytes, '.');
    connections_.push_back(std::move(connection));
  }
}

LoopbackTls::~LoopbackTls() {
  for (const auto& connection : connections_) {
    close(connection->sender_fd);
    close(connection->receiver_fd);
  }
}

void LoopbackTls::Transfer(uint64_t chunk_bytes) {
  std::vector<std::thread> threads;
  for (const auto& connection : connections_) {
    threads.emplace_back([&] { Send(connection->sender.get(), connection->from, chunk_bytes); });
    threads.emplace_back([&] { Receive(connection->receiver.get(), chunk_bytes, connection->to); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kaon::benchmark
