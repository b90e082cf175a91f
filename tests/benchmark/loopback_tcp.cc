#include "tests/benchmark/loopback_tcp.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace kaon::benchmark {

namespace {

int NewSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  PCHECK(fd >= 0) << "socket";
  // The machine's default may pace itself by a bandwidth that it must measure first. A machine
  // without this algorithm keeps its own.
  static_cast<void>(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5));
  const int buffer = 512 << 10;
  PCHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)) == 0) << "SO_SNDBUF";
  return fd;
}

void Send(int fd, const std::vector<char>& bytes, uint64_t chunk_bytes) {
  for (uint64_t sent = 0; sent < bytes.size();) {
    const uint64_t count = std::min<uint64_t>(chunk_bytes, bytes.size() - sent);
    const ssize_t done = send(fd, bytes.data() + sent, count, 0);
    PCHECK(done > 0) << "send";
    sent += done;
  }
}

// Receives into a buffer that stays in the cache, and copies from it to the final place.
void Receive(int fd, uint64_t chunk_bytes, std::vector<char>& to) {
  std::vector<char> buffer(std::min<uint64_t>(chunk_bytes, 256 << 10));
  for (uint64_t received = 0; received < to.size();) {
    const ssize_t count =
        recv(fd, buffer.data(), std::min<uint64_t>(buffer.size(), to.size() - received), 0);
    PCHECK(count > 0) << "recv";
    std::memcpy(to.data() + received, buffer.data(), count);
    received += count;
  }
}

}  // namespace

std::vector<std::pair<int, int>> ConnectOverLoopback(int connections) {
  const int listener = NewSocket();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  PCHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0) << "bind";
  PCHECK(listen(listener, connections) == 0) << "listen";
  PCHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < connections; ++i) {
    const int sender = NewSocket();
    PCHECK(connect(sender, reinterpret_cast<sockaddr*>(&address), size) == 0) << "connect";
    const int receiver = accept(listener, nullptr, nullptr);
    PCHECK(receiver >= 0) << "accept";
    pairs.emplace_back(sender, receiver);
  }
  close(listener);
  return pairs;
}

LoopbackTcp::LoopbackTcp(int connections, uint64_t bytes) {
  for (const auto& [sender, receiver] : ConnectOverLoopback(connections)) {
    auto connection = std::make_unique<Connection>();
    connection->sender = sender;
    connection->receiver = receiver;
    connection->from.assign(bytes, 'x');
    connection->to.assign(bytes, '.');
    connections_.push_back(std::move(connection));
  }
}

LoopbackTcp::~LoopbackTcp() {
  for (const auto& connection : connections_) {
    close(connection->sender);
    close(connection->receiver);
  }
}

void LoopbackTcp::Transfer(uint64_t chunk_bytes) {
  std::vector<std::thread> threads;
  for (const auto& connection : connections_) {
    threads.emplace_back([&] { Send(connection->sender, connection->from, chunk_bytes); });
    threads.emplace_back([&] { Receive(connection->receiver, chunk_bytes, connection->to); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kaon::benchmark
