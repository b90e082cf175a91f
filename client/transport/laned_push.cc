#include "client/transport/laned_push.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace kaon::client {

// Source of one lane's stream. Shares the push until the stream is done.
class LanedPush::LaneSource : public PushSource {
 public:
  LaneSource(std::shared_ptr<LanedPush> push, size_t lane) : push_(std::move(push)), lane_(lane) {}

  absl::Status OnOpened(const v1::PushOpened& opened) override {
    return push_->OnOpened(lane_, opened);
  }
  void OnCredit(uint64_t bytes) override { push_->source_->OnCredit(bytes); }
  PushMessage Next() override { return push_->Next(lane_); }
  void OnDone(const absl::Status& status) override {
    lane_ == 0 ? push_->OnDone(status) : push_->OnLaneDone(lane_, status);
  }

 private:
  const std::shared_ptr<LanedPush> push_;
  const size_t lane_;
};

LanedPush::LanedPush(std::vector<std::shared_ptr<ShardChannel>> channels, uint64_t least_lane_bytes,
                     const v1::PushOpen& open, std::shared_ptr<PushSource> source)
    : channels_(std::move(channels)),
      least_lane_bytes_(least_lane_bytes),
      open_(open),
      source_(std::move(source)),
      lanes_(channels_.size()) {}

void LanedPush::Start() { Open(0, open_); }

void LanedPush::Open(size_t lane, const v1::PushOpen& open) {
  const std::shared_ptr<PushStream> stream =
      channels_[lane]->Push(open, std::make_shared<LaneSource>(shared_from_this(), lane));
  bool cancel = false;
  {
    MutexLock lock(mu_);
    if (lanes_[lane].done) return;
    cancel = cancelled_ || over_;
    if (!over_) lanes_[lane].stream = stream;
  }
  // A Resume or Cancel of the push that came earlier did not reach this stream.
  cancel ? stream->Cancel() : stream->Resume();
}

void LanedPush::OpenLanes() {
  v1::PushOpen open = open_;
  {
    MutexLock lock(mu_);
    open.set_lane_of(push_);
  }
  for (size_t lane = 1; lane < channels_.size(); ++lane) Open(lane, open);
}

std::vector<std::shared_ptr<PushStream>> LanedPush::StreamsLocked() const {
  std::vector<std::shared_ptr<PushStream>> streams;
  for (const Lane& lane : lanes_) {
    if (lane.stream != nullptr) streams.push_back(lane.stream);
  }
  return streams;
}

void LanedPush::Resume() {
  std::vector<std::shared_ptr<PushStream>> streams;
  {
    MutexLock lock(mu_);
    streams = StreamsLocked();
  }
  for (const std::shared_ptr<PushStream>& stream : streams) stream->Resume();
}

void LanedPush::Cancel() {
  std::vector<std::shared_ptr<PushStream>> streams;
  {
    MutexLock lock(mu_);
    cancelled_ = true;
    streams = StreamsLocked();
  }
  for (const std::shared_ptr<PushStream>& stream : streams) stream->Cancel();
}

absl::Status LanedPush::OnOpened(size_t lane, const v1::PushOpened& opened) {
  if (lane == 0) {
    const absl::Status status = source_->OnOpened(opened);
    if (!status.ok()) return status;
  }
  MutexLock lock(mu_);
  lanes_[lane].opened = true;
  if (lane == 0) push_ = opened.push();
  return absl::OkStatus();
}

PushMessage LanedPush::Next(size_t lane) {
  PushMessage message;
  bool open_lanes = false;
  std::vector<std::shared_ptr<PushStream>> resume;
  {
    MutexLock lock(mu_);
    if (over_ || (lane > 0 && !lanes_[lane].opened)) return std::monostate();
    message = TakeLocked(lane, &resume);
    open_lanes = push_ > 0 && bytes_ > least_lane_bytes_ && !finishing_ && !lanes_started_;
    lanes_started_ = lanes_started_ || open_lanes;
  }
  if (open_lanes) OpenLanes();
  for (const std::shared_ptr<PushStream>& stream : resume) stream->Resume();
  return message;
}

PushMessage LanedPush::TakeLocked(size_t lane, std::vector<std::shared_ptr<PushStream>>* resume) {
  Lane& mine = lanes_[lane];
  while (mine.chunks.empty() && !finishing_) {
    PushMessage message = source_->Next();
    if (auto* finish = std::get_if<v1::PushFinish>(&message)) {
      finish_ = std::move(*finish);
      finishing_ = true;
      *resume = StreamsLocked();
    } else if (auto* chunks = std::get_if<LeasedChunks>(&message)) {
      DivideLocked(*chunks, lane, resume);
    } else {
      return std::monostate();
    }
  }
  if (!mine.chunks.empty()) {
    PushMessage message = std::move(mine.chunks.front());
    mine.chunks.pop_front();
    return message;
  }
  if (lane > 0) {
    if (std::exchange(mine.finish_sent, true)) return std::monostate();
    return v1::PushFinish();
  }
  // The shard must have accepted the chunks of the other lanes first.
  if (!finish_.has_value() || !AreLanesDoneLocked()) return std::monostate();
  mine.finish_sent = true;
  return *std::exchange(finish_, std::nullopt);
}

void LanedPush::DivideLocked(const LeasedChunks& message, size_t asking,
                             std::vector<std::shared_ptr<PushStream>>* resume) {
  std::map<size_t, LeasedChunks> by_lane;
  for (const ChunkToSend& chunk : message.chunks) {
    bytes_ += chunk.payload.size();
    const size_t lane = lane_of_.emplace(chunk.key, asking).first->second;
    by_lane[lane].chunks.push_back(chunk);
  }
  for (auto& [lane, part] : by_lane) {
    part.lease = message.lease;
    lanes_[lane].chunks.push_back(std::move(part));
    if (lane != asking && lanes_[lane].stream != nullptr) resume->push_back(lanes_[lane].stream);
  }
}

bool LanedPush::AreLanesDoneLocked() const {
  return std::all_of(lanes_.begin() + 1, lanes_.end(),
                     [](const Lane& lane) { return !lane.opened || lane.done; });
}

void LanedPush::OnLaneDone(size_t lane, const absl::Status& status) {
  std::shared_ptr<PushStream> ended;
  std::shared_ptr<PushStream> first;
  bool failed = false;
  {
    MutexLock lock(mu_);
    ended = std::move(lanes_[lane].stream);
    lanes_[lane].done = true;
    if (over_) return;
    first = lanes_[0].stream;
    // A lane that was not open before the finish was sent has nothing to send, so its failure does
    // not matter. Nor does the error of a lane after the push was cancelled.
    failed = !status.ok() && lanes_[lane].opened && !lanes_[0].finish_sent && !cancelled_;
    if (failed) failure_ = status;
    cancelled_ = cancelled_ || failed;
  }
  if (first == nullptr) return;
  failed ? first->Cancel() : first->Resume();
}

void LanedPush::OnDone(const absl::Status& status) {
  absl::Status result = status;
  std::vector<Lane> lanes(channels_.size());
  {
    MutexLock lock(mu_);
    over_ = true;
    lanes_[0].done = true;
    // The failure of a lane caused the cancel.
    if (!failure_.ok() && absl::IsCancelled(status)) result = failure_;
    for (size_t i = 0; i < lanes.size(); ++i) {
      lanes[i].stream = std::move(lanes_[i].stream);
      lanes[i].chunks.swap(lanes_[i].chunks);
    }
  }
  for (size_t i = 1; i < lanes.size(); ++i) {
    if (lanes[i].stream != nullptr) lanes[i].stream->Cancel();
  }
  source_->OnDone(result);
}

}  // namespace kaon::client
