// Measures the best that a TLS stream over loopback can do: OpenSSL's own stream, mutually
// authenticated. Each connection has one thread that encrypts and one that decrypts. This is the
// limit of the benchmarks `push_tls` and `pull_tls`. One thread calls.
#ifndef KAON_TESTS_BENCHMARK_LOOPBACK_TLS_H_
#define KAON_TESTS_BENCHMARK_LOOPBACK_TLS_H_

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kaon::benchmark {

class LoopbackTls {
 public:
  // Opens `connections`; each moves `bytes` per Transfer. `certificates` is the output directory of
  // deploy/certificates.sh. CHECKs that the machine has sockets.
  LoopbackTls(int connections, uint64_t bytes, const std::string& certificates);
  ~LoopbackTls();

  // Sends on every connection in pieces of `chunk_bytes`; returns once the last byte is decrypted.
  void Transfer(uint64_t chunk_bytes);

  // Returns the cipher of the connections: "TLSv1.3 TLS_AES_256_GCM_SHA384".
  const std::string& cipher() const { return cipher_; }

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  struct Connection {
    int sender_fd = -1;
    int receiver_fd = -1;
    std::unique_ptr<SSL, FreeSsl> sender;
    std::unique_ptr<SSL, FreeSsl> receiver;
    std::vector<char> from;
    std::vector<char> to;
  };

  std::string cipher_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_LOOPBACK_TLS_H_
