#include "tests/benchmark/loopback_job.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/dtype.h"
#include "kernels/steady_clock.h"
#include "proto/descriptor.h"

namespace kaon::benchmark {

namespace {

template <typename T>
T ValueOf(Result<T> result) {
  CHECK(result.ok()) << result.status().ToString();
  return std::move(result).value();
}

std::string NewDirectory() {
  std::string path = (std::filesystem::temp_directory_path() / "kaon-bench-XXXXXX").string();
  PCHECK(mkdtemp(path.data()) != nullptr) << path;
  return path;
}

v1::TlsConfig TlsOf(const std::string& certificates, const std::string& name) {
  v1::TlsConfig tls;
  if (certificates.empty()) return tls;
  tls.set_ca_file(certificates + "/ca.crt");
  tls.set_certificate_file(absl::StrCat(certificates, "/", name, ".crt"));
  tls.set_private_key_file(absl::StrCat(certificates, "/", name, ".key"));
  return tls;
}

constexpr char kToken[] = "token-of-the-benchmark";

// The file may be read by its owner alone.
void WriteToken(const std::string& path) {
  const proto::Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  PCHECK(write(file.get(), kToken, sizeof(kToken) - 1) == sizeof(kToken) - 1) << path;
}

// Returns gradient values of dtype `wire`.
std::vector<std::byte> Values(uint64_t n, DType wire) {
  std::vector<float> values(n);
  for (uint64_t i = 0; i < n; ++i) {
    values[i] = 1e-3f * (static_cast<float>((i * 2654435761u) >> 16 & 1023) - 511.5f);
  }
  const auto dtype =
      wire == DType::kBFloat16 ? kernels::DType::kBFloat16 : kernels::DType::kFloat32;
  std::vector<std::byte> bytes(n * kernels::SizeOf(dtype));
  kernels::FromFloat(dtype, values, bytes.data());
  return bytes;
}

}  // namespace

LoopbackServers::LoopbackServers(const LoopbackOptions& options)
    : transport_(options.shm_sessions > 0 ? Transport::kShm : Transport::kGrpc),
      certificates_(options.certificates),
      directory_(NewDirectory()) {
  const std::string token_file = directory_ + "/token";
  if (options.watched) WriteToken(token_file);
  v1::CoordinatorConfig coordinator;
  coordinator.set_listen("127.0.0.1:0");
  if (options.watched) {
    coordinator.set_metrics_address("127.0.0.1:0");
    coordinator.set_metrics_token_file(token_file);
  }
  *coordinator.mutable_tls() = TlsOf(certificates_, "coordinator");
  for (int i = 0; i < options.shards; ++i) {
    v1::ShardConfig shard;
    shard.set_listen("127.0.0.1:0");
    *shard.mutable_tls() = TlsOf(certificates_, "shard");
    shard.set_data_dir(absl::StrCat(directory_, "/shard-", i));
    shard.set_durability(options.durability);
    shard.set_host_memory_bytes(options.host_memory_bytes);
    if (!options.device.empty()) shard.set_device(options.device);
    shard.set_threads(options.threads);
    shard.set_shm_sessions(options.shm_sessions);
    if (options.watched) shard.set_metrics_address("127.0.0.1:0");
    auto started = shard::ShardServer::Start(shard);
    CHECK(started.ok()) << started.status();
    coordinator.add_shards(absl::StrCat("127.0.0.1:", (*started)->port()));
    metrics_ports_.push_back((*started)->metrics_port());
    shards_.push_back(*std::move(started));
  }
  auto started = coordinator::CoordinatorServer::Start(coordinator);
  CHECK(started.ok()) << started.status();
  coordinator_ = *std::move(started);
  metrics_ports_.push_back(coordinator_->metrics_port());
}

void LoopbackServers::Watch() {
  watcher_ = std::make_unique<Watcher>(metrics_ports_, coordinator_->metrics_port(), kToken);
}

LoopbackServers::~LoopbackServers() {
  watcher_.reset();
  coordinator_->Shutdown();
  for (const auto& shard : shards_) shard->Shutdown();
  std::filesystem::remove_all(directory_);
}

Client LoopbackServers::Connect(uint32_t rank) const {
  ClientOptions options;
  if (!certificates_.empty()) {
    const std::string worker = absl::StrCat(certificates_, "/worker-", rank);
    options.tls = {certificates_ + "/ca.crt", worker + ".crt", worker + ".key"};
  }
  options.coordinators = {absl::StrCat("127.0.0.1:", coordinator_->port())};
  options.transport = transport_;
  return ValueOf(Client::Connect(options));
}

LoopbackTrainer::LoopbackTrainer(const LoopbackServers& servers, const JobDefinition& definition,
                                 uint32_t rank, DType wire)
    : client_(servers.Connect(rank)),
      job_(ValueOf(client_.Register(definition))),
      worker_(ValueOf(job_.Join(rank))),
      wire_(wire) {
  for (const ParameterSpec& parameter : definition.parameters) {
    sizes_.push_back(std::accumulate(parameter.shape.begin(), parameter.shape.end(), uint64_t{1},
                                     std::multiplies<>()));
    gradients_.push_back(Values(sizes_.back(), wire));
    weights_.push_back(gradients_.back());
  }
  if (rank == 0 && !job_.description().weights_loaded) LoadWeights();
}

void LoopbackTrainer::LoadWeights() {
  // Masters are loaded as fp32, whatever dtype is pulled.
  std::vector<std::vector<std::byte>> masters;
  std::vector<TensorView> views;
  for (const uint64_t n : sizes_) masters.push_back(Values(n, DType::kFloat32));
  for (size_t id = 0; id < sizes_.size(); ++id) {
    views.push_back({masters[id].data(), sizes_[id], DType::kFloat32});
  }
  ValueOf(worker_.LoadWeights(views).Get());
}

void LoopbackTrainer::Push(absl::Duration backward) {
  if (next_ == 0) next_ = ValueOf(job_.Refresh()).applied_step + 1;
  BeginOptions begin;
  begin.step = next_;
  step_ = std::make_unique<Step>(ValueOf(worker_.Begin(begin)));
  std::vector<Future<Done>> accepted;
  const absl::Time start = SteadyNow();
  for (uint32_t id = 0; id < sizes_.size(); ++id) {
    const absl::Time ready = start + backward * (id + 1) / sizes_.size();
    absl::SleepFor(std::max(absl::ZeroDuration(), ready - SteadyNow()));
    accepted.push_back(step_->Push(id, {gradients_[id].data(), sizes_[id], wire_}));
  }
  for (Future<Done>& one : accepted) ValueOf(one.Get());
}

void LoopbackTrainer::Finish() {
  const StepRecord record = ValueOf(step_->Finish().Get());
  CHECK(record.applied) << record.reason;
  step_.reset();
  ++next_;
}

void LoopbackTrainer::Pull() {
  std::vector<PullTarget> targets;
  for (uint32_t id = 0; id < weights_.size(); ++id) {
    targets.push_back({id, {weights_[id].data(), sizes_[id], wire_}});
  }
  ValueOf(job_.Pull(next_ - 1, std::move(targets)).Get());
}

LoopbackTrainers MakeTrainers(const LoopbackServers& servers, const JobDefinition& definition,
                              DType wire) {
  LoopbackTrainers trainers;
  for (uint32_t rank = 0; rank < definition.world_size; ++rank) {
    trainers.push_back(std::make_unique<LoopbackTrainer>(servers, definition, rank, wire));
  }
  return trainers;
}

double SecondsOfAll(LoopbackTrainers& trainers, const std::function<void(LoopbackTrainer&)>& work) {
  const absl::Time start = SteadyNow();
  std::vector<std::thread> threads;
  for (size_t i = 1; i < trainers.size(); ++i) {
    threads.emplace_back([&work, &trainer = *trainers[i]] { work(trainer); });
  }
  work(*trainers[0]);
  for (std::thread& thread : threads) thread.join();
  return absl::ToDoubleSeconds(SteadyNow() - start);
}

}  // namespace kaon::benchmark
