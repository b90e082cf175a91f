#include "tests/testing/in_process_cluster.h"

#include <glog/logging.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/transport/shm_endpoint.h"

namespace kaon::testing {

InProcessCluster::InProcessCluster(int num_shards, std::string checkpoint_dir,
                                   uint32_t shm_sessions, std::string traces_address)
    : checkpoint_dir_(std::move(checkpoint_dir)),
      shm_sessions_(shm_sessions),
      traces_address_(std::move(traces_address)) {
  for (int i = 0; i < num_shards; ++i) {
    std::string directory = absl::StrCat(::testing::TempDir(), "/kaon-shard-XXXXXX");
    CHECK(mkdtemp(directory.data()) != nullptr) << directory;
    shards_.push_back({directory, 0, nullptr});
    StartShard(i);
  }
  StartCoordinator(0);
}

InProcessCluster::~InProcessCluster() {
  coordinator_->Shutdown();
  for (Shard& shard : shards_) {
    if (shard.server != nullptr) shard.server->Shutdown();
  }
}

void InProcessCluster::StopShard(int shard) { shards_[shard].server.reset(); }

void InProcessCluster::StartShard(int shard) {
  Shard& started = shards_[shard];
  v1::ShardConfig config;
  config.set_listen(absl::StrCat("127.0.0.1:", started.port));
  config.set_data_dir(started.directory);
  config.set_gemm("reference");
  config.set_host_memory_bytes((uint64_t{64} << 20) + shm_sessions_ * shard::kShmSessionBytes);
  config.set_shm_sessions(shm_sessions_);
  config.set_checkpoint_dir(checkpoint_dir_);
  auto server = shard::ShardServer::Start(config);
  CHECK(server.ok()) << server.status();
  started.server = *std::move(server);
  started.port = started.server->port();
}

void InProcessCluster::StartCoordinator(int port) {
  v1::CoordinatorConfig config;
  config.set_listen(absl::StrCat("127.0.0.1:", port));
  for (int i = 0; i < static_cast<int>(shards_.size()); ++i) config.add_shards(shard_address(i));
  config.set_heartbeat_ms(50);
  config.set_takeover_ms(300);
  config.set_checkpoint_dir(checkpoint_dir_);
  config.set_traces_address(traces_address_);
  auto coordinator = coordinator::CoordinatorServer::Start(config);
  CHECK(coordinator.ok()) << coordinator.status();
  coordinator_ = *std::move(coordinator);
  coordinator_port_ = coordinator_->port();
}

void InProcessCluster::ReplaceCoordinator() {
  coordinator_->Shutdown();
  coordinator_.reset();
  StartCoordinator(coordinator_port_);
}

std::string InProcessCluster::coordinator_address() const {
  return absl::StrCat("127.0.0.1:", coordinator_port_);
}

std::string InProcessCluster::shard_address(int shard) const {
  return absl::StrCat("127.0.0.1:", shards_[shard].port);
}

Client InProcessCluster::Connect(ClientOptions options) const {
  options.coordinators = {coordinator_address()};
  options.call_deadline = std::chrono::milliseconds(60000);
  options.step_deadline = std::chrono::milliseconds(120000);
  auto client = Client::Connect(options);
  CHECK(client.ok()) << client.status().ToString();
  return std::move(client).value();
}

}  // namespace kaon::testing
