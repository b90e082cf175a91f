#include "client/step_pusher.h"

#include <algorithm>
#include <set>
#include <utility>

#include "client/transport/event_loop.h"
#include "client/wire/public_status.h"
#include "proto/ballot.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

// Connects one stream to the pusher.
class StepPusher::Source : public PushSource {
 public:
  Source(std::shared_ptr<StepPusher> pusher, uint32_t shard, uint64_t generation)
      : pusher_(std::move(pusher)), shard_(shard), generation_(generation) {}

  absl::Status OnOpened(const v1::PushOpened& opened) override {
    return pusher_->OnOpened(shard_, generation_, opened);
  }
  void OnCredit(uint64_t bytes) override { pusher_->OnCredit(shard_, generation_, bytes); }
  PushMessage Next() override { return pusher_->Next(shard_, generation_); }
  void OnDone(const absl::Status& status) override { pusher_->OnDone(shard_, generation_, status); }

 private:
  // Shared, because a stream may outlive the step.
  const std::shared_ptr<StepPusher> pusher_;
  const uint32_t shard_;
  const uint64_t generation_;
};

StepPusher::StepPusher(StepPusherOptions options)
    : options_(std::move(options)), lease_(std::make_shared<Lease>()) {
  for (uint32_t i = 0; i < options_.num_shards; ++i) shards_.emplace_back(proto::kMaxChunkBytes);
}

void StepPusher::Afterwards::Run() {
  for (const Promise<Done>& promise : accepted) promise.Set(Done());
  for (const std::shared_ptr<PushStream>& stream : resume) stream->Resume();
}

void StepPusher::Push(uint32_t shard, ContributionKey key, const TensorView& tensor,
                      const Promise<Done>& accepted) {
  Afterwards after;
  absl::Status closed_with;
  {
    MutexLock lock(mu_);
    if (closed_) {
      closed_with = outcome_;
      if (outcome_.ok()) after.accepted.push_back(accepted);
    } else {
      Shard& to = shards_[shard];
      unaccepted_.emplace(key, Unaccepted{shard, accepted, EventLoop::Now()});
      to.queue.Add(key, tensor);
      TakeAcceptedLocked(to, after);
      if (to.stream != nullptr) after.resume.push_back(to.stream);
    }
  }
  if (!closed_with.ok()) accepted.Set(ToPublic(closed_with));
  after.Run();
}

void StepPusher::Finish(std::vector<v1::PushFinish> by_shard) {
  Afterwards after;
  {
    MutexLock lock(mu_);
    if (closed_) return;
    finish_ = std::move(by_shard);
    for (const Shard& shard : shards_) {
      if (shard.stream != nullptr) after.resume.push_back(shard.stream);
    }
  }
  after.Run();
}

void StepPusher::StartStream(const StartPush& start, ShardChannel& channel,
                             std::function<void(const absl::Status&)> done) {
  const uint32_t shard = start.shard;
  uint64_t generation = 0;
  std::shared_ptr<PushStream> replaced;
  {
    MutexLock lock(mu_);
    if (closed_) return;
    Shard& to = shards_[shard];
    replaced = DetachStreamLocked(to);
    generation = to.generation;
    to.done = std::move(done);
    if (to.round != start.round || proto::Compare(to.ballot, start.ballot) != 0) {
      to.queue.BeginRound();
      to.ballot = start.ballot;
      to.round = start.round;
    }
  }
  if (replaced != nullptr) replaced->Cancel();
  v1::PushOpen open;
  open.set_job(options_.job);
  open.set_timeline(options_.timeline);
  open.set_step(options_.step);
  open.set_rank(options_.rank);
  *open.mutable_attempt() = start.attempt;
  *open.mutable_ballot() = start.ballot;
  open.set_round(start.round);
  const std::shared_ptr<PushStream> stream =
      channel.Push(open, std::make_shared<Source>(shared_from_this(), shard, generation));
  bool current = false;
  {
    MutexLock lock(mu_);
    // The stream may have ended already, or have been replaced.
    current = IsCurrentLocked(shard, generation) && shards_[shard].done != nullptr;
    if (current) shards_[shard].stream = stream;
  }
  // Contributions queued before the stream was stored could not resume it.
  if (current) {
    stream->Resume();
  } else {
    stream->Cancel();
  }
}

void StepPusher::CancelStream(uint32_t shard) {
  std::shared_ptr<PushStream> stream;
  {
    MutexLock lock(mu_);
    stream = DetachStreamLocked(shards_[shard]);
  }
  if (stream != nullptr) stream->Cancel();
}

absl::Time StepPusher::OldestUnaccepted() const {
  MutexLock lock(mu_);
  absl::Time oldest = absl::InfiniteFuture();
  for (const auto& [key, one] : unaccepted_) oldest = std::min(oldest, one.pushed);
  return oldest;
}

std::vector<uint32_t> StepPusher::LackingShards() const {
  MutexLock lock(mu_);
  std::set<uint32_t> lacking;
  for (const auto& [key, one] : unaccepted_) lacking.insert(one.shard);
  for (uint32_t shard = 0; shard < finish_.size(); ++shard) lacking.insert(shard);
  return {lacking.begin(), lacking.end()};
}

void StepPusher::Close(const absl::Status& outcome, std::function<void()> on_free) {
  std::vector<std::shared_ptr<PushStream>> streams;
  std::map<ContributionKey, Unaccepted> unaccepted;
  std::shared_ptr<Lease> lease;
  {
    MutexLock lock(mu_);
    if (closed_) return;
    closed_ = true;
    outcome_ = outcome;
    for (Shard& shard : shards_) streams.push_back(DetachStreamLocked(shard));
    unaccepted.swap(unaccepted_);
    lease.swap(lease_);
  }
  lease->on_free = std::move(on_free);
  for (const std::shared_ptr<PushStream>& stream : streams) {
    if (stream != nullptr) stream->Cancel();
  }
  for (const auto& [key, one] : unaccepted) {
    if (outcome.ok()) {
      one.promise.Set(Done());
    } else {
      one.promise.Set(ToPublic(outcome));
    }
  }
}

absl::Status StepPusher::OnOpened(uint32_t shard, uint64_t generation,
                                  const v1::PushOpened& opened) {
  std::vector<ReceivedElements> received;
  for (const v1::ReceivedChunks& chunks : opened.received()) {
    received.push_back({{chunks.parameter_id(), chunks.micro_batch()}, chunks.num_elements()});
  }
  Afterwards after;
  {
    MutexLock lock(mu_);
    if (!IsCurrentLocked(shard, generation)) return absl::CancelledError("replaced");
    const absl::Status status = shards_[shard].queue.Open(opened.credit_bytes(), received);
    if (!status.ok()) return status;
    TakeAcceptedLocked(shards_[shard], after);
  }
  after.Run();
  return absl::OkStatus();
}

void StepPusher::OnCredit(uint32_t shard, uint64_t generation, uint64_t bytes) {
  Afterwards after;
  {
    MutexLock lock(mu_);
    if (!IsCurrentLocked(shard, generation)) return;
    shards_[shard].queue.AddCredit(bytes);
    TakeAcceptedLocked(shards_[shard], after);
    ResumeStarvedLocked(after);
  }
  after.Run();
}

PushMessage StepPusher::Next(uint32_t shard, uint64_t generation) {
  MutexLock lock(mu_);
  if (!IsCurrentLocked(shard, generation)) return std::monostate();
  Shard& from = shards_[shard];
  std::vector<ChunkToSend> chunks = from.queue.Next(BudgetLocked());
  if (!chunks.empty()) {
    for (const ChunkToSend& chunk : chunks) options_.counters->push_bytes += chunk.payload.size();
    return LeasedChunks{std::move(chunks), lease_};
  }
  from.starved = from.queue.open() && !from.queue.all_sent();
  if (finish_.empty() || from.finish_sent || !from.queue.all_sent()) return std::monostate();
  from.finish_sent = true;
  return finish_[shard];
}

void StepPusher::OnDone(uint32_t shard, uint64_t generation, const absl::Status& status) {
  Afterwards after;
  std::function<void(const absl::Status&)> done;
  std::shared_ptr<PushStream> ended;
  {
    MutexLock lock(mu_);
    if (!IsCurrentLocked(shard, generation)) return;
    Shard& from = shards_[shard];
    // A confirmed finish also returns all credit.
    if (status.ok()) from.queue.AddCredit(from.queue.in_flight_bytes());
    TakeAcceptedLocked(from, after);
    done = std::move(from.done);
    ended = DetachStreamLocked(from);
    ResumeStarvedLocked(after);
  }
  after.Run();
  if (done) done(status);
}

bool StepPusher::IsCurrentLocked(uint32_t shard, uint64_t generation) const {
  return !closed_ && shards_[shard].generation == generation;
}

uint64_t StepPusher::BudgetLocked() const {
  uint64_t in_flight = 0;
  for (const Shard& shard : shards_) in_flight += shard.queue.in_flight_bytes();
  return in_flight >= options_.max_bytes_in_flight ? 0 : options_.max_bytes_in_flight - in_flight;
}

void StepPusher::ResumeStarvedLocked(Afterwards& after) {
  for (Shard& shard : shards_) {
    if (!std::exchange(shard.starved, false) || shard.stream == nullptr) continue;
    after.resume.push_back(shard.stream);
  }
}

void StepPusher::TakeAcceptedLocked(Shard& shard, Afterwards& after) {
  for (const ContributionKey& key : shard.queue.TakeAccepted()) {
    const auto one = unaccepted_.find(key);
    if (one == unaccepted_.end()) continue;
    after.accepted.push_back(one->second.promise);
    unaccepted_.erase(one);
  }
}

std::shared_ptr<PushStream> StepPusher::DetachStreamLocked(Shard& shard) {
  ++shard.generation;
  shard.queue.Close();
  shard.done = nullptr;
  shard.finish_sent = false;
  shard.starved = false;
  return std::move(shard.stream);
}

}  // namespace kaon::client
