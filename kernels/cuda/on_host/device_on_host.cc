#include "kernels/cuda/on_host/device_on_host.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/on_host/guarded_memory.h"
#include "kernels/cuda/on_host/host_stream.h"
#include "kernels/mutex.h"

namespace kaon::kernels::cuda::on_host {
namespace {

// A place in the work of a stream. Shared by the event and by the work that records or awaits it:
// both may outlive the other.
struct Mark {
  bool done = false;
};
using SharedMark = std::shared_ptr<Mark>;

struct Range {
  const void* begin = nullptr;
  uint64_t bytes = 0;
};

// One entry of a stream.
struct Work {
  // Null for an entry that only awaits or records.
  std::function<void(uint64_t seed)> run;
  SharedMark awaits;
  SharedMark records;
  // Memory of a copy.
  Range from;
  Range to;
  // True if the host must not read `to` before the copy is done.
  bool is_copy_out = false;

  bool runnable() const { return awaits == nullptr || awaits->done; }
};

bool Overlap(const Range& a, const Range& b) {
  const auto first = reinterpret_cast<uintptr_t>(a.begin);
  const auto second = reinterpret_cast<uintptr_t>(b.begin);
  return first < second + b.bytes && second < first + a.bytes;
}

class EventOnHost final : public Event {
 public:
  explicit EventOnHost(class DeviceOnHost& device) : device_(device) {}
  void Await() override;
  bool IsDone() override {
    Await();
    return true;
  }

  DeviceOnHost& device_;
  // Guarded by the device's mutex; null before the first Record.
  SharedMark last;
};

class GraphOnHost final : public Graph {
 public:
  GraphOnHost(DeviceOnHost& device, std::vector<Work> work)
      : device_(device), work_(std::move(work)) {}
  ~GraphOnHost() override;

  const std::vector<Work>& work() const { return work_; }
  // Guarded by the device's mutex: the end of the last launch.
  mutable SharedMark last_launch;

 private:
  DeviceOnHost& device_;
  const std::vector<Work> work_;
};

class StreamOnHost final : public Stream {
 public:
  explicit StreamOnHost(DeviceOnHost& device) : device_(device) {}
  ~StreamOnHost() override;

  void CopyIn(const void* host, void* device, uint64_t bytes) override;
  void CopyOut(const void* device, void* host, uint64_t bytes) override;
  void Copy(const void* from, void* to, uint64_t bytes) override;
  void SetZero(void* to, uint64_t bytes) override;
  void Record(Event& event) override;
  void Wait(const Event& event) override;
  void WaitForNative(void* event) override { Wait(*static_cast<const Event*>(event)); }
  bool IsNativeDone(void* event) override { return static_cast<Event*>(event)->IsDone(); }
  void Synchronize() override;
  void BeginCapture() override;
  std::unique_ptr<Graph> EndCapture() override;
  void Launch(const Graph& graph) override;
  void* native() override { return nullptr; }

  void Run(std::function<void(uint64_t seed)> work);

 private:
  friend class DeviceOnHost;
  // Appends a copy whose two sides are checked. The caller has the device's mutex.
  void Transfer(Range from, Range to, bool is_copy_out) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  DeviceOnHost& device_;
  // Guarded by the device's mutex.
  std::deque<Work> queue_;
  bool captures_ = false;
  std::thread::id captured_by_;
  std::vector<Work> captured_;
};

class DeviceOnHost final : public Device {
 public:
  explicit DeviceOnHost(const DeviceOnHostOptions& options)
      : memory_("device memory", options.memory_bytes),
        pinned_("pinned memory", options.pinned_bytes),
        random_(options.seed) {
    properties_.platform = "cuda_on_host";
    properties_.name = "kaon device on the host";
    properties_.major = 9;
    properties_.minor = 0;
    properties_.multiprocessors = options.multiprocessors;
    properties_.memory_bytes = options.memory_bytes;
    properties_.shared_bytes_per_block = 227 * 1024;
    properties_.driver_version = 13000;
    properties_.runtime_version = 13000;
  }
  ~DeviceOnHost() override {
    MutexLock lock(mutex_);
    CHECK(streams_.empty()) << streams_.size() << " streams outlive their device";
    ReclaimIfIdleLocked();
  }

  const DeviceProperties& properties() const override { return properties_; }
  uint64_t free_bytes() const override {
    MutexLock lock(mutex_);
    return memory_.free_bytes();
  }

  absl::StatusOr<void*> Allocate(uint64_t bytes) override {
    return AllocateOf(&DeviceOnHost::memory_, bytes);
  }
  void Free(void* memory) override { FreeOf(&DeviceOnHost::memory_, memory); }
  absl::StatusOr<void*> AllocatePinned(uint64_t bytes) override {
    return AllocateOf(&DeviceOnHost::pinned_, bytes);
  }
  void FreePinned(void* memory) override { FreeOf(&DeviceOnHost::pinned_, memory); }

  std::unique_ptr<Stream> NewStream() override {
    auto stream = std::make_unique<StreamOnHost>(*this);
    MutexLock lock(mutex_);
    streams_.push_back(stream.get());
    return stream;
  }
  std::unique_ptr<Event> NewEvent() override { return std::make_unique<EventOnHost>(*this); }

 private:
  friend class EventOnHost;
  friend class GraphOnHost;
  friend class StreamOnHost;

  absl::StatusOr<void*> AllocateOf(GuardedMemory DeviceOnHost::*kind, uint64_t bytes);
  void FreeOf(GuardedMemory DeviceOnHost::*kind, void* memory);
  void CheckNoCaptureLocked(const char* what) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReclaimIfIdleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends work to the stream, or to what it captures.
  void AppendLocked(StreamOnHost& stream, Work work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs work of all streams until `done`.
  void RunUntilLocked(absl::FunctionRef<bool()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  DeviceProperties properties_;
  // Also orders the fields of streams, events and graphs. Kernels run under it: they call no
  // device.
  mutable Mutex mutex_;
  GuardedMemory memory_ ABSL_GUARDED_BY(mutex_);
  GuardedMemory pinned_ ABSL_GUARDED_BY(mutex_);
  std::vector<StreamOnHost*> streams_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  // The stream that ran last.
  const StreamOnHost* last_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

absl::StatusOr<void*> DeviceOnHost::AllocateOf(GuardedMemory DeviceOnHost::*kind, uint64_t bytes) {
  MutexLock lock(mutex_);
  CheckNoCaptureLocked("allocates memory");
  ReclaimIfIdleLocked();
  return (this->*kind).Allocate(bytes);
}

void DeviceOnHost::FreeOf(GuardedMemory DeviceOnHost::*kind, void* memory) {
  if (memory == nullptr) return;
  MutexLock lock(mutex_);
  CheckNoCaptureLocked("frees memory");
  const Range freed = {memory, (this->*kind).SizeOf(memory)};
  for (const StreamOnHost* stream : streams_) {
    for (const Work& work : stream->queue_) {
      CHECK(!Overlap(freed, work.from) && !Overlap(freed, work.to))
          << "memory of a copy that is not done is freed";
    }
  }
  (this->*kind).Free(memory);
  ReclaimIfIdleLocked();
}

void DeviceOnHost::CheckNoCaptureLocked(const char* what) const {
  for (const StreamOnHost* stream : streams_) {
    CHECK(!stream->captures_ || stream->captured_by_ != std::this_thread::get_id())
        << "a thread " << what << " while it captures a graph";
  }
}

void DeviceOnHost::ReclaimIfIdleLocked() {
  for (const StreamOnHost* stream : streams_) {
    if (!stream->queue_.empty()) return;
  }
  memory_.Reclaim();
  pinned_.Reclaim();
}

void DeviceOnHost::AppendLocked(StreamOnHost& stream, Work work) {
  if (stream.captures_) {
    stream.captured_.push_back(std::move(work));
    return;
  }
  if (work.is_copy_out) {
    std::memset(const_cast<void*>(work.to.begin), kUnwrittenByte, work.to.bytes);
  }
  stream.queue_.push_back(std::move(work));
}

void DeviceOnHost::RunUntilLocked(absl::FunctionRef<bool()> done) {
  // Of 4 draws, this many stay with the stream that ran last, so that streams get far ahead.
  constexpr uint64_t kStays = 3;
  while (!done()) {
    std::vector<StreamOnHost*> runnable;
    for (StreamOnHost* stream : streams_) {
      if (!stream->queue_.empty() && stream->queue_.front().runnable()) runnable.push_back(stream);
    }
    CHECK(!runnable.empty()) << "streams wait for each other";
    const uint64_t draw = random_();
    const auto same = std::find(runnable.begin(), runnable.end(), last_);
    StreamOnHost* const stream =
        same != runnable.end() && draw % 4 < kStays ? *same : runnable[draw / 4 % runnable.size()];
    last_ = stream;
    const Work work = std::move(stream->queue_.front());
    stream->queue_.pop_front();
    if (work.run != nullptr) work.run(random_());
    if (work.records != nullptr) work.records->done = true;
  }
}

void EventOnHost::Await() {
  MutexLock lock(device_.mutex_);
  device_.CheckNoCaptureLocked("awaits an event");
  const SharedMark mark = last;
  if (mark == nullptr) return;
  device_.RunUntilLocked([&] { return mark->done; });
}

GraphOnHost::~GraphOnHost() {
  MutexLock lock(device_.mutex_);
  CHECK(last_launch == nullptr || last_launch->done) << "a graph is destroyed before it has run";
}

StreamOnHost::~StreamOnHost() {
  Synchronize();
  MutexLock lock(device_.mutex_);
  device_.streams_.erase(std::find(device_.streams_.begin(), device_.streams_.end(), this));
}

void StreamOnHost::Transfer(Range from, Range to, bool is_copy_out) {
  Work work;
  work.from = from;
  work.to = to;
  work.is_copy_out = is_copy_out;
  work.run = [from, to](uint64_t) {
    std::memmove(const_cast<void*>(to.begin), from.begin, to.bytes);
  };
  device_.AppendLocked(*this, std::move(work));
}

void StreamOnHost::CopyIn(const void* host, void* device, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(device_.mutex_);
  device_.pinned_.CheckInside(host, bytes, "source of CopyIn");
  device_.memory_.CheckInside(device, bytes, "target of CopyIn");
  Transfer({host, bytes}, {device, bytes}, /*is_copy_out=*/false);
}

void StreamOnHost::CopyOut(const void* device, void* host, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(device_.mutex_);
  device_.memory_.CheckInside(device, bytes, "source of CopyOut");
  device_.pinned_.CheckInside(host, bytes, "target of CopyOut");
  Transfer({device, bytes}, {host, bytes}, /*is_copy_out=*/true);
}

void StreamOnHost::Copy(const void* from, void* to, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(device_.mutex_);
  device_.memory_.CheckInside(from, bytes, "source of Copy");
  device_.memory_.CheckInside(to, bytes, "target of Copy");
  CHECK(!Overlap({from, bytes}, {to, bytes})) << "source and target of Copy overlap";
  Transfer({from, bytes}, {to, bytes}, /*is_copy_out=*/false);
}

void StreamOnHost::SetZero(void* to, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(device_.mutex_);
  device_.memory_.CheckInside(to, bytes, "target of SetZero");
  Work work;
  work.to = {to, bytes};
  work.run = [to, bytes](uint64_t) { std::memset(to, 0, bytes); };
  device_.AppendLocked(*this, std::move(work));
}

void StreamOnHost::Run(std::function<void(uint64_t seed)> run) {
  Work work;
  work.run = std::move(run);
  MutexLock lock(device_.mutex_);
  device_.AppendLocked(*this, std::move(work));
}

void StreamOnHost::Record(Event& event) {
  MutexLock lock(device_.mutex_);
  CHECK(!captures_) << "a graph has the work of one stream and records no event";
  Work work;
  work.records = std::make_shared<Mark>();
  static_cast<EventOnHost&>(event).last = work.records;
  device_.AppendLocked(*this, std::move(work));
}

void StreamOnHost::Wait(const Event& event) {
  MutexLock lock(device_.mutex_);
  CHECK(!captures_) << "a graph has the work of one stream and waits for no event";
  Work work;
  work.awaits = static_cast<const EventOnHost&>(event).last;
  if (work.awaits == nullptr) return;
  device_.AppendLocked(*this, std::move(work));
}

void StreamOnHost::Synchronize() {
  MutexLock lock(device_.mutex_);
  device_.CheckNoCaptureLocked("waits for a stream");
  // Marks the end of the queue as it is now.
  Work end;
  const SharedMark mark = std::make_shared<Mark>();
  end.records = mark;
  device_.AppendLocked(*this, std::move(end));
  device_.RunUntilLocked([&] { return mark->done; });
}

void StreamOnHost::BeginCapture() {
  MutexLock lock(device_.mutex_);
  CHECK(!captures_) << "a stream captures already";
  captures_ = true;
  captured_by_ = std::this_thread::get_id();
}

std::unique_ptr<Graph> StreamOnHost::EndCapture() {
  MutexLock lock(device_.mutex_);
  CHECK(captures_) << "a stream captures nothing";
  captures_ = false;
  return std::make_unique<GraphOnHost>(device_, std::exchange(captured_, {}));
}

void StreamOnHost::Launch(const Graph& graph) {
  MutexLock lock(device_.mutex_);
  CHECK(!captures_) << "a graph has no graphs inside";
  const auto& launched = static_cast<const GraphOnHost&>(graph);
  for (const Work& work : launched.work()) device_.AppendLocked(*this, work);
  Work end;
  end.records = std::make_shared<Mark>();
  launched.last_launch = end.records;
  device_.AppendLocked(*this, std::move(end));
}

// Sets `value` to that of an environment variable, if it has one.
absl::Status ReadVariable(const char* name, uint64_t& value) {
  const char* const text = std::getenv(name);
  if (text == nullptr || absl::SimpleAtoi(text, &value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": is \"", text, "\", must be a whole number"));
}

}  // namespace

std::unique_ptr<Device> NewDeviceOnHost(const DeviceOnHostOptions& options) {
  return std::make_unique<DeviceOnHost>(options);
}

void Enqueue(Stream& stream, std::function<void(uint64_t seed)> work) {
  static_cast<StreamOnHost&>(stream).Run(std::move(work));
}

}  // namespace kaon::kernels::cuda::on_host

namespace kaon::kernels::cuda {

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int ordinal) {
  if (ordinal < 0 || ordinal >= on_host::kDevicesOnHost) {
    return absl::NotFoundError(absl::StrCat("device cuda:", ordinal,
                                            " does not exist: the host has ",
                                            on_host::kDevicesOnHost, ", from cuda:0 on"));
  }
  on_host::DeviceOnHostOptions options;
  if (absl::Status status = on_host::ReadVariable("KAON_CUDA_ON_HOST_SEED", options.seed);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = on_host::ReadVariable("KAON_CUDA_ON_HOST_MEMORY", options.memory_bytes);
      !status.ok()) {
    return status;
  }
  return on_host::NewDeviceOnHost(options);
}

}  // namespace kaon::kernels::cuda
