#include "tests/simulation/shard_node.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace kaon::simulation {

ShardNode::ShardNode(World& world, int index) : world_(world), index_(index) {
  kernels::BackendOptions options;
  options.gemm = "reference";
  auto backend = kernels::CreateBackend(options);
  CHECK(backend.ok()) << backend.status();
  backend_ = std::move(*backend);
  Start();
}

ShardNode::~ShardNode() = default;

void ShardNode::Start() {
  ++life_;
  history_.clear();
  core_.reset();
  store_.reset();
  tier_ = std::make_unique<tier::HostTier>(1 << 20);
  store_ = std::make_unique<tier::TieredStore>(*tier_);
  shard::ShardCore::Options options;
  options.store = store_.get();
  options.backend = backend_.get();
  // One chunk of the largest size per worker, the least a shard may have.
  options.staging_bytes = uint64_t{1} << 22;
  options.on_folded = [this, life = life_](uint64_t generation) {
    world_.queue().After(absl::Microseconds(50), [this, life, generation] {
      if (life != life_) return;
      core_->OnFolded(generation);
      Drain();
    });
  };
  options.append_gradient = [](const journal::GradientSlice&) {};
  core_ = std::make_unique<shard::ShardCore>(std::move(options));
}

void ShardNode::Forget() {
  world_.Trace(absl::StrCat("s", index_, " forgets"));
  streams_.clear();
  Start();
}

shard::StreamId ShardNode::OpenStream(OnMessage on_message) {
  const shard::StreamId stream = next_stream_++;
  streams_[stream] = std::move(on_message);
  return stream;
}

void ShardNode::CloseStream(shard::StreamId stream) {
  if (streams_.erase(stream) == 0) return;
  core_->OnStreamClosed(stream);
  Drain();
}

void ShardNode::Deliver(shard::StreamId stream, const v1::CoordinatorToShard& message) {
  if (streams_.count(stream) == 0) return;
  core_->OnControl(stream, message, world_.now());
  Drain();
}

std::vector<float> ShardNode::Weights(uint32_t parameter_id) {
  const absl::Span<const float> weights = core_->publisher().current(parameter_id);
  return {weights.begin(), weights.end()};
}

void ShardNode::Pull(uint32_t parameter_id, uint64_t step,
                     std::function<void(const std::vector<float>&)> on_read) {
  shard::ParameterPublisher& publisher = core_->publisher();
  const auto waiter = publisher.Await(parameter_id, step, [this, parameter_id, step, on_read] {
    world_.queue().After(absl::ZeroDuration(), [this, parameter_id, step, on_read] {
      Pull(parameter_id, step, on_read);
    });
  });
  if (!waiter.ok() || *waiter != 0) return;
  std::vector<float> weights(publisher.num_elements(parameter_id));
  if (publisher
          .Read(parameter_id, step, 0, kernels::DType::kFloat32, weights.size(),
                reinterpret_cast<std::byte*>(weights.data()))
          .ok()) {
    on_read(weights);
  }
}

absl::StatusOr<v1::StepRecord> ShardNode::ReadHistory(uint64_t position) const {
  const auto found = history_.find(position);
  if (found == history_.end()) return absl::OutOfRangeError(absl::StrCat("position ", position));
  return found->second;
}

void ShardNode::Drain() {
  for (shard::ShardOutput& output : core_->TakeOutputs()) {
    if (const auto* send = std::get_if<shard::SendToCoordinator>(&output)) {
      world_.invariants().OnShardSends(index_, send->message);
      const int copies = world_.Lost() ? 0 : (world_.Doubled() ? 2 : 1);
      for (int i = 0; i < copies; ++i) {
        world_.queue().After(world_.Latency(), [this, send = *send] {
          const auto found = streams_.find(send.stream);
          if (found != streams_.end()) found->second(send.stream, send.message);
        });
      }
    } else if (const auto* append = std::get_if<shard::AppendJournal>(&output)) {
      if (const auto* decided = std::get_if<journal::DecisionRecord>(&append->record)) {
        history_[decided->record.plan().position()] = decided->record;
      }
      const absl::Duration write = world_.Between(absl::Microseconds(50), absl::Milliseconds(20));
      last_durable_ = std::max(last_durable_, world_.now() + write);
      world_.queue().At(last_durable_, [this, token = append->token, life = life_] {
        if (life != life_) return;
        core_->OnDurable(token);
        Drain();
      });
    } else {
      streams_.erase(std::get<shard::EndStream>(output).stream);
    }
  }
  world_.invariants().AfterShardEvent(index_);
}

}  // namespace kaon::simulation
