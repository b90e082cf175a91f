#include "server/shard/parameters/parameter_publisher.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"
#include "server/config/loss_remedy.h"
#include "server/mutation/mutation.h"

namespace kaon::shard {

namespace {

// Elements that a reader of a disk holds at once.
constexpr uint64_t kReadElements = uint64_t{1} << 18;

}  // namespace

void ParameterPublisher::Serve(const std::string& job, uint64_t timeline,
                               std::vector<Source> sources) {
  MutexLock lock(mu_);
  parameters_.clear();
  for (Source& source : sources) {
    const uint32_t id = source.parameter_id;
    parameters_.emplace(id, std::make_shared<Parameter>(std::move(source)));
  }
  job_ = job;
  timeline_ = timeline;
}

void ParameterPublisher::StopServing(const std::string& job) {
  std::map<uint32_t, std::shared_ptr<Parameter>> gone;
  {
    MutexLock lock(mu_);
    gone.swap(parameters_);
    job_.clear();
    deleted_job_ = job;
    expected_step_.reset();
  }
  for (auto& [id, parameter] : gone) {
    MutexLock parameter_lock(parameter->mu);
    for (Version& version : parameter->versions) {
      version.valid = false;
      while (version.reads > 0) parameter->read.Wait(parameter->mu);
    }
    parameter->pinned.Clear();
    parameter->cache.Clear();
  }
  Wake(std::nullopt);
}

absl::Status ParameterPublisher::NotServedLocked(absl::string_view job) const {
  return config::NotHeld(job, "pulled", job_, deleted_job_);
}

absl::StatusOr<std::shared_ptr<const ParameterPublisher::Parameter>> ParameterPublisher::FindLocked(
    uint32_t parameter_id) const {
  const auto found = parameters_.find(parameter_id);
  if (found != parameters_.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("parameter_id ", parameter_id, " pulled, this shard does not hold it"));
}

absl::Status ParameterPublisher::CheckStepLocked(const Parameter& parameter, uint64_t step,
                                                 bool* readable) const {
  MutexLock parameter_lock(parameter.mu);
  *readable = false;
  bool any_valid = false;
  uint64_t newest = 0;
  for (const Version& version : parameter.versions) {
    if (!version.valid) continue;
    if (version.first_step <= step && step <= version.last_step) {
      *readable = true;
      return absl::OkStatus();
    }
    any_valid = true;
    newest = std::max(newest, version.last_step);
  }
  if (!parameter.pinned.Find(step).memory.empty()) {
    *readable = true;
    return absl::OkStatus();
  }
  if (any_valid && step < newest) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", parameter.source.name, ": version ", step,
                     " pulled, it is gone, the newest is ", newest));
  }
  if (expected_step_ == step) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "parameter ", parameter.source.name, ": version ", step, " pulled, ",
      any_valid ? absl::StrCat("the newest is ", newest) : std::string("there is none yet")));
}

absl::Status ParameterPublisher::CheckPull(const v1::PullRequest& request) const {
  MutexLock lock(mu_);
  KAON_RETURN_IF_ERROR(closed_);
  if (job_.empty() || request.job() != job_) return NotServedLocked(request.job());
  KAON_RETURN_IF_ERROR(CheckTimelineLocked(request.timeline()));
  if (proto::WireSizeOf(request.dtype()) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype ", request.dtype(), " pulled, expecting 1 (fp32), 2 (bf16) or 3 (fp16)"));
  }
  if (request.parameter_ids_size() > kMaxPulledParameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter_ids has ", request.parameter_ids_size(),
                     " entries, expecting at most ", kMaxPulledParameters));
  }
  for (uint32_t id : request.parameter_ids()) {
    KAON_ASSIGN_OR_RETURN(const std::shared_ptr<const Parameter> parameter, FindLocked(id));
    bool readable = false;
    KAON_RETURN_IF_ERROR(CheckStepLocked(*parameter, request.step(), &readable));
  }
  return absl::OkStatus();
}

absl::Status ParameterPublisher::CheckTimelineLocked(uint64_t timeline) const {
  if (job_.empty()) return NotServedLocked("");
  if (timeline == timeline_) return absl::OkStatus();
  const std::string both = absl::StrCat("timeline ", timeline, " pulled, expecting ", timeline_);
  // A shard that lost power may not know yet a timeline that others have begun.
  return timeline > timeline_ ? absl::UnavailableError(both) : absl::FailedPreconditionError(both);
}

absl::Status ParameterPublisher::CheckTimeline(uint64_t timeline) const {
  MutexLock lock(mu_);
  return CheckTimelineLocked(timeline);
}

void ParameterPublisher::Rewind(uint64_t timeline) {
  {
    MutexLock lock(mu_);
    timeline_ = timeline;
    for (auto& [id, parameter] : parameters_) {
      MutexLock parameter_lock(parameter->mu);
      for (Version& version : parameter->versions) version.valid = false;
      parameter->pinned.Clear();
      parameter->cache.Clear();
    }
  }
  Wake(std::nullopt);
}

absl::StatusOr<WaiterId> ParameterPublisher::Await(uint32_t parameter_id, uint64_t step,
                                                   std::function<void()> ready) {
  MutexLock lock(mu_);
  KAON_RETURN_IF_ERROR(closed_);
  KAON_ASSIGN_OR_RETURN(const std::shared_ptr<const Parameter> parameter, FindLocked(parameter_id));
  bool readable = false;
  KAON_RETURN_IF_ERROR(CheckStepLocked(*parameter, step, &readable));
  if (readable) return WaiterId{0};
  const WaiterId waiter = next_waiter_++;
  waiters_.push_back({waiter, parameter_id, std::move(ready)});
  return waiter;
}

bool ParameterPublisher::IsReadable(uint32_t parameter_id, uint64_t step) const {
  MutexLock lock(mu_);
  const auto found = parameters_.find(parameter_id);
  bool readable = false;
  return closed_.ok() && found != parameters_.end() &&
         CheckStepLocked(*found->second, step, &readable).ok() && readable;
}

void ParameterPublisher::Forget(WaiterId waiter) {
  MutexLock lock(mu_);
  waiters_.erase(std::remove_if(waiters_.begin(), waiters_.end(),
                                [waiter](const Waiter& other) { return other.id == waiter; }),
                 waiters_.end());
}

absl::Status ParameterPublisher::Read(uint32_t parameter_id, uint64_t step, uint64_t offset,
                                      kernels::DType dtype, kernels::Region to) const {
  const PhaseTimer timer(phases_, Phase::kPull, nullptr, step);
  std::shared_ptr<const Parameter> parameter;
  {
    MutexLock lock(mu_);
    KAON_ASSIGN_OR_RETURN(parameter, FindLocked(parameter_id));
  }
  const uint64_t num_elements = to.size() / kernels::SizeOf(dtype);
  // The caller may know the size of an earlier job's parameter.
  if (offset > parameter->source.num_elements ||
      num_elements > parameter->source.num_elements - offset) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", parameter->source.name, ": elements ", offset, " .. ",
                     offset + num_elements, " pulled, it has ", parameter->source.num_elements));
  }
  const Range range = {offset, num_elements, dtype, to};
  MutexLock parameter_lock(parameter->mu);
  uint64_t newest = 0;
  for (int i = 0; i < 2; ++i) {
    const Version& version = parameter->versions[i];
    if (!version.valid) continue;
    newest = std::max(newest, version.last_step);
    const bool wanted = step >= version.first_step && step <= version.last_step;
    if (!wanted && !Mutated(Mutation::kAnyVersionRead)) continue;
    const kernels::ConstRegion memory = parameter->Weights(i).memory();
    if (memory.empty() || memory.space() == kernels::Space::kDevice) {
      return CopyUnlocked(*parameter, i, range);
    }
    Copy(nullptr, memory, range);
    return absl::OkStatus();
  }
  if (const StepWeights copy = parameter->pinned.Find(step); !copy.memory.empty()) {
    Copy(Rounded(*parameter, copy, range).get(), copy.memory, range);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("parameter ", parameter->source.name, ": version ", step,
                   " was replaced while it was read, the newest is ", newest));
}

std::shared_ptr<RoundedVersion> ParameterPublisher::Rounded(const Parameter& parameter,
                                                            const StepWeights& from,
                                                            const Range& range) const {
  // The cache is on the host.
  if (pull_cache_ == nullptr || from.memory.space() == kernels::Space::kHost ||
      range.to.space() == kernels::Space::kDevice) {
    return nullptr;
  }
  const bool older_are_read = from.first_step > 0 && parameter.pinned.Holds(0, from.first_step - 1);
  return parameter.cache.Find(backend_, *pull_cache_, from.first_step, range.dtype, older_are_read);
}

void ParameterPublisher::Copy(RoundedVersion* rounded, kernels::ConstRegion weights,
                              const Range& range) const {
  const kernels::ConstRegion floats = weights.SubFloats(range.offset, range.num_elements);
  if (range.to.space() == kernels::Space::kDevice) {
    backend_.Round(floats, range.dtype, range.to);
  } else if (rounded != nullptr) {
    rounded->Read(weights, range.offset, range.num_elements, range.to.data());
  } else {
    backend_.RoundOut(floats, range.dtype, range.to.data());
  }
}

absl::Status ParameterPublisher::CopyUnlocked(const Parameter& parameter, int i,
                                              const Range& range) const {
  const Version& version = parameter.versions[i];
  const kernels::ConstRegion memory = parameter.Weights(i).memory();
  std::shared_ptr<RoundedVersion> rounded;
  if (!memory.empty()) {
    rounded = Rounded(parameter, {version.first_step, version.last_step, memory}, range);
  }
  // BeginWrite waits until nobody reads.
  ++version.reads;
  parameter.mu.Unlock();
  absl::Status status;
  if (memory.empty()) {
    const int read = Mutated(Mutation::kNewestVersionPulled)
                         ? parameter.source.home->newest(parameter.source.unit)
                         : i;
    status = CopyFromDisk(parameter.Weights(read), range);
  } else {
    Copy(rounded.get(), memory, range);
  }
  parameter.mu.Lock();
  rounded.reset();
  if (--version.reads == 0) parameter.read.NotifyAll();
  return status;
}

absl::Status ParameterPublisher::CopyFromDisk(const tier::TensorPlace& weights,
                                              const Range& range) const {
  std::vector<float> piece(std::min(range.num_elements, kReadElements));
  for (uint64_t done = 0; done < range.num_elements; done += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), range.num_elements - done));
    const absl::Span<float> floats = absl::MakeSpan(piece);
    const absl::Status read = weights.home->Read(
        weights.unit, weights.version, 0, (range.offset + done) * sizeof(float),
        {reinterpret_cast<std::byte*>(floats.data()), floats.size() * sizeof(float)});
    // A shard with a broken disk ends, and serves again after its restart.
    if (!read.ok()) return absl::UnavailableError(read.message());
    backend_.RoundOut(kernels::ConstRegion(absl::Span<const float>(floats)), range.dtype,
                      range.to.host_bytes().data() + done * kernels::SizeOf(range.dtype));
  }
  return absl::OkStatus();
}

void ParameterPublisher::TrimCache(const Parameter& parameter) {
  parameter.cache.KeepOnly([&parameter](uint64_t first_step) {
    parameter.mu.AssertHeld();
    for (const Version& version : parameter.versions) {
      if (version.valid && version.first_step == first_step) return true;
    }
    return !parameter.pinned.Find(first_step).memory.empty();
  });
}

ReaderId ParameterPublisher::Pin(const v1::PullRequest& request) {
  MutexLock lock(mu_);
  const ReaderId reader = next_reader_++;
  for (uint32_t id : request.parameter_ids()) {
    const auto found = parameters_.find(id);
    if (found == parameters_.end()) continue;
    MutexLock parameter_lock(found->second->mu);
    found->second->pinned.Add(reader, request.step());
  }
  return reader;
}

void ParameterPublisher::Unpin(ReaderId reader, uint32_t parameter_id) {
  MutexLock lock(mu_);
  const auto found = parameters_.find(parameter_id);
  if (found == parameters_.end()) return;
  MutexLock parameter_lock(found->second->mu);
  found->second->pinned.Remove(reader);
  TrimCache(*found->second);
}

uint64_t ParameterPublisher::num_elements(uint32_t parameter_id) const {
  MutexLock lock(mu_);
  const auto found = parameters_.find(parameter_id);
  return found == parameters_.end() ? 0 : found->second->source.num_elements;
}

void ParameterPublisher::ExpectStep(std::optional<uint64_t> step) {
  {
    MutexLock lock(mu_);
    if (expected_step_ == step) return;
    expected_step_ = step;
  }
  Wake(std::nullopt);
}

absl::StatusOr<tier::UnitReadPin> ParameterPublisher::PinNewest(uint32_t parameter_id) const {
  const Source& source = parameters_.at(parameter_id)->source;
  return source.home->Pin(source.unit);
}

bool ParameterPublisher::HasPrevious(uint32_t parameter_id) const {
  const Parameter& parameter = *parameters_.at(parameter_id);
  const Source& source = parameter.source;
  MutexLock parameter_lock(parameter.mu);
  const int next = source.home->next(source.unit);
  return next != source.home->newest(source.unit) && parameter.versions[next].valid;
}

absl::StatusOr<tier::UnitUpdatePin> ParameterPublisher::BeginWrite(uint32_t parameter_id) {
  Parameter& parameter = *parameters_.at(parameter_id);
  const Source& source = parameter.source;
  {
    MutexLock parameter_lock(parameter.mu);
    Retire(parameter_id, parameter, source.home->next(source.unit));
  }
  return source.home->PinForUpdate(source.unit);
}

void ParameterPublisher::Retire(uint32_t parameter_id, Parameter& parameter, int i) {
  Version& version = parameter.versions[i];
  if (store_ != nullptr && version.valid &&
      parameter.pinned.Holds(version.first_step, version.last_step)) {
    KeepCopy(parameter_id, parameter, i);
  }
  version.valid = false;
  while (version.reads > 0) parameter.read.Wait(parameter.mu);
  TrimCache(parameter);
}

void ParameterPublisher::Move(uint32_t parameter_id, tier::UnitHome* home, tier::UnitId unit) {
  const auto found = parameters_.find(parameter_id);
  // Nothing is served before the registration is applied.
  if (found == parameters_.end()) return;
  Parameter& parameter = *found->second;
  Source& source = parameter.source;
  MutexLock parameter_lock(parameter.mu);
  const int newest = source.home->newest(source.unit);
  if (const int next = source.home->next(source.unit); next != newest) {
    Retire(parameter_id, parameter, next);
  }
  while (parameter.versions[newest].reads > 0) parameter.read.Wait(parameter.mu);
  Version moved = parameter.versions[newest];
  parameter.versions = {};
  source.home = home;
  source.unit = unit;
  parameter.versions[home->newest(unit)] = moved;
}

void ParameterPublisher::KeepCopy(uint32_t parameter_id, Parameter& parameter, int i) {
  const uint64_t first_step = parameter.versions[i].first_step;
  const uint64_t last_step = parameter.versions[i].last_step;
  // Only this thread overwrites the version. Others read it meanwhile.
  parameter.mu.Unlock();
  absl::StatusOr<PinnedVersions::Copy> copy = PinnedVersions::MakeCopy(
      first_step, last_step, parameter.source.num_elements, *store_,
      absl::StrCat("version/", parameter_id, "/", ++copies_made_),
      [&](kernels::Region to) { return parameter.Weights(i).CopyTo(backend_, to); });
  parameter.mu.Lock();
  if (copy.ok()) return parameter.pinned.Keep(*std::move(copy));
  LOG_EVERY_T(WARNING, 1) << "readers lose version " << last_step << " of " << parameter.source.name
                          << ": " << copy.status();
}

void ParameterPublisher::DropCopies() {
  for (auto& [id, parameter] : parameters_) {
    MutexLock parameter_lock(parameter->mu);
    parameter->pinned.Clear();
    parameter->cache.Clear();
  }
}

void ParameterPublisher::Publish(uint32_t parameter_id, uint64_t step,
                                 tier::UnitUpdatePin written) {
  Parameter& parameter = *parameters_.at(parameter_id);
  const int i = written.next_version();
  written.Commit();
  {
    MutexLock parameter_lock(parameter.mu);
    Version& version = parameter.versions[i];
    version.valid = true;
    version.first_step = step;
    version.last_step = step;
  }
  Wake(parameter_id);
}

void ParameterPublisher::PublishUnchanged(uint32_t parameter_id, uint64_t step) {
  Parameter& parameter = *parameters_.at(parameter_id);
  {
    MutexLock parameter_lock(parameter.mu);
    parameter.versions[parameter.source.home->newest(parameter.source.unit)].last_step = step;
  }
  Wake(parameter_id);
}

void ParameterPublisher::Wake(std::optional<uint32_t> parameter_id) {
  std::vector<Waiter> woken;
  {
    MutexLock lock(mu_);
    std::vector<Waiter> kept;
    for (Waiter& waiter : waiters_) {
      const bool wake = !parameter_id.has_value() || waiter.parameter_id == *parameter_id;
      (wake ? woken : kept).push_back(std::move(waiter));
    }
    waiters_ = std::move(kept);
  }
  for (const Waiter& waiter : woken) waiter.ready();
}

void ParameterPublisher::CloseAll(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    closed_ = status;
  }
  Wake(std::nullopt);
}

}  // namespace kaon::shard
