#include "client/transport/laned_shard_channel.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "client/transport/laned_push.h"
#include "kernels/mutex.h"

namespace kaon::client {
namespace {

uint64_t BytesOf(const MutableTensorView& target) {
  return target.num_elements * SizeOf(target.dtype);
}

// Cuts a pull into at most `most` parts. Each parameter goes to the part that has the fewest bytes
// so far. So every part follows the order of the request, in which a shard finishes its parameters.
std::vector<PullOptions> Divide(PullOptions pull, size_t most, uint64_t least_bytes) {
  uint64_t bytes = 0;
  for (const MutableTensorView& target : pull.targets) bytes += BytesOf(target);
  const size_t parts = std::min(
      {most, pull.targets.size(), static_cast<size_t>(std::max<uint64_t>(bytes / least_bytes, 1))});
  std::vector<PullOptions> divided;
  if (parts <= 1) {
    divided.push_back(std::move(pull));
    return divided;
  }
  v1::PullRequest request = pull.request;
  request.clear_parameter_ids();
  std::vector<uint64_t> bytes_of_part(parts);
  divided.resize(parts);
  for (PullOptions& part : divided) {
    part.request = request;
    part.timeout = pull.timeout;
    part.on_bytes = pull.on_bytes;
    part.on_infinite = pull.on_infinite;
  }
  for (size_t i = 0; i < pull.targets.size(); ++i) {
    const size_t part = static_cast<size_t>(
        std::min_element(bytes_of_part.begin(), bytes_of_part.end()) - bytes_of_part.begin());
    bytes_of_part[part] += BytesOf(pull.targets[i]);
    divided[part].request.add_parameter_ids(pull.request.parameter_ids(static_cast<int>(i)));
    divided[part].targets.push_back(pull.targets[i]);
  }
  return divided;
}

// Joins the parts of one pull, which share it until they are done. It is done when all parts are.
// The first failure becomes its result and cancels the other parts.
class LanedPull : public PullStream, public std::enable_shared_from_this<LanedPull> {
 public:
  LanedPull(size_t parts, std::function<void(const absl::Status&)> done)
      : done_(std::move(done)), parts_(parts), under_way_(parts) {}

  // Returns the callback of a part; call it before the part can be done.
  std::function<void(const absl::Status&)> DoneOf(size_t part) {
    return [self = shared_from_this(), part](const absl::Status& status) {
      self->OnPartDone(part, status);
    };
  }

  // Adds the stream of a part; the part may be done already.
  void Add(size_t part, std::shared_ptr<PullStream> stream) {
    bool cancel = false;
    {
      MutexLock lock(mu_);
      if (parts_[part].done) return;
      cancel = cancelled_ || !status_.ok();
      parts_[part].stream = stream;
    }
    if (cancel) stream->Cancel();
  }

  void Cancel() override {
    std::vector<std::shared_ptr<PullStream>> streams;
    {
      MutexLock lock(mu_);
      cancelled_ = true;
      streams = StreamsLocked();
    }
    for (const std::shared_ptr<PullStream>& stream : streams) stream->Cancel();
  }

 private:
  struct Part {
    std::shared_ptr<PullStream> stream;
    bool done = false;
  };

  std::vector<std::shared_ptr<PullStream>> StreamsLocked() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<std::shared_ptr<PullStream>> streams;
    for (const Part& part : parts_) {
      if (part.stream != nullptr) streams.push_back(part.stream);
    }
    return streams;
  }

  void OnPartDone(size_t part, const absl::Status& status) {
    std::vector<std::shared_ptr<PullStream>> others;
    std::shared_ptr<PullStream> ended;
    bool last = false;
    absl::Status result;
    {
      MutexLock lock(mu_);
      parts_[part].done = true;
      ended = std::move(parts_[part].stream);
      if (status_.ok() && !status.ok()) {
        status_ = status;
        others = StreamsLocked();
      }
      last = --under_way_ == 0;
      result = status_;
    }
    for (const std::shared_ptr<PullStream>& stream : others) stream->Cancel();
    if (last) done_(result);
  }

  const std::function<void(const absl::Status&)> done_;
  Mutex mu_;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mu_);
  size_t under_way_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

class LanedShardChannel : public ShardChannel {
 public:
  LanedShardChannel(std::vector<std::shared_ptr<ShardChannel>> lanes, uint64_t least_lane_bytes)
      : lanes_(std::move(lanes)), least_lane_bytes_(least_lane_bytes) {}

  std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                   std::shared_ptr<PushSource> source) override {
    if (lanes_.size() == 1) return lanes_[0]->Push(open, std::move(source));
    const auto push =
        std::make_shared<LanedPush>(lanes_, least_lane_bytes_, open, std::move(source));
    push->Start();
    return push;
  }

  std::shared_ptr<PullStream> Pull(PullOptions options) override {
    std::function<void(const absl::Status&)> done = options.done;
    std::vector<PullOptions> parts = Divide(std::move(options), lanes_.size(), least_lane_bytes_);
    if (parts.size() == 1) return lanes_[0]->Pull(std::move(parts[0]));
    const auto pull = std::make_shared<LanedPull>(parts.size(), std::move(done));
    for (size_t part = 0; part < parts.size(); ++part) {
      parts[part].done = pull->DoneOf(part);
      pull->Add(part, lanes_[part]->Pull(std::move(parts[part])));
    }
    return pull;
  }

 private:
  const std::vector<std::shared_ptr<ShardChannel>> lanes_;
  const uint64_t least_lane_bytes_;
};

}  // namespace

std::shared_ptr<ShardChannel> CreateLanedShardChannel(
    std::vector<std::shared_ptr<ShardChannel>> lanes, uint64_t least_lane_bytes) {
  return std::make_shared<LanedShardChannel>(std::move(lanes), least_lane_bytes);
}

}  // namespace kaon::client
