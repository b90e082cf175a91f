// A server with every kaon.v1 service behind the production credentials and limits, for tests of
// the rights of callers. Its handlers answer UNIMPLEMENTED; DescribeShard answers OK and counts.
// Calls from any thread; built and destroyed by one thread.
#ifndef KAON_TESTS_SERVER_AUTH_SECURED_SERVER_H_
#define KAON_TESTS_SERVER_AUTH_SECURED_SERVER_H_

#include <grpcpp/channel.h>
#include <grpcpp/server.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "kaon/v1/admin.grpc.pb.h"
#include "kaon/v1/config.pb.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "kernels/mutex.h"
#include "proto/identity.h"
#include "server/auth/call_limits.h"
#include "server/listener/listener.h"
#include "server/monitor/event_counts.h"

namespace kaon::testing {

class SecuredServer {
 public:
  // An empty `tls` means plaintext. A connection may have `calls` open.
  explicit SecuredServer(const v1::TlsConfig& tls, const std::string& listen = "127.0.0.1:0",
                         size_t calls = auth::CallLimits::kCallsOfConnection);
  ~SecuredServer();

  std::string address(const std::string& host = "127.0.0.1") const;
  int described() const { return shard_control_.calls; }
  listener::Listener& listener() { return *listener_; }
  // Returns the number of calls that presented a certificate.
  int arrived() const { return arrived_; }
  // Returns the identity that was last rejected before any handler, and the reason.
  std::string last_refused() const;
  // Returns the identity of the last caller of DescribeShard.
  const proto::Identity& last_peer() const { return shard_control_.last_peer; }
  // Returns the address of the other end of that caller's connection.
  const std::string& last_connection() const { return shard_control_.last_connection; }

 private:
  struct ShardControl : public v1::ShardControl::CallbackService {
    grpc::ServerUnaryReactor* DescribeShard(grpc::CallbackServerContext* context,
                                            const v1::DescribeShardRequest* request,
                                            v1::DescribeShardResponse* response) override;
    std::atomic<int> calls = 0;
    proto::Identity last_peer;
    std::string last_connection;
  };

  mutable Mutex mu_;
  std::string last_refused_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> arrived_ = 0;

  v1::ShardData::Service shard_data_;
  ShardControl shard_control_;
  v1::Coordinator::Service coordinator_;
  v1::Admin::Service admin_;
  monitor::EventCounts counts_;
  std::unique_ptr<listener::Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

// Calls `method` with an empty request and returns the status it ends with.
grpc::Status CallEmpty(const std::shared_ptr<grpc::Channel>& channel, const std::string& method);

}  // namespace kaon::testing

#endif  // KAON_TESTS_SERVER_AUTH_SECURED_SERVER_H_
