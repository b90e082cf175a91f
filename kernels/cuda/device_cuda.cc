// Device (device.h) on the CUDA runtime.
#include <cuda_runtime.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cuda/device.h"
#include "kernels/steady_clock.h"

// The Makefile names the architectures of the kernels, such as "80 90a 100".
#ifndef KAON_CUDA_ARCHS
#error "KAON_CUDA_ARCHS names the architectures of the kernels"
#endif

namespace kaon::kernels::cuda {
namespace {

// Ends the process if a call failed. An error of earlier work of the device appears in any call.
void Check(int ordinal, const char* call, cudaError_t error) {
  if (error == cudaSuccess) return;
  LOG(FATAL) << "device cuda:" << ordinal << " failed: " << call << ": " << cudaGetErrorName(error)
             << " (" << cudaGetErrorString(error) << ")";
}

// The device of the calling thread, which most calls of CUDA mean.
void MakeCurrent(int ordinal) { Check(ordinal, "cudaSetDevice", cudaSetDevice(ordinal)); }

// The last entry of a stream that this file knows of: kernels are launched past it (launch.h).
struct LastCall {
  const char* name = "nothing";
  uint64_t bytes = 0;
};

// Waits for an event, at most `deadline`. Polls, since cudaEventSynchronize never returns for a
// wedged device.
void AwaitEvent(int ordinal, cudaEvent_t event, const LastCall& last, absl::Duration deadline) {
  // A sleep ends up to 0.3 ms late, which a step of small matrices would feel.
  constexpr absl::Duration kSpins = absl::Milliseconds(2);
  const absl::Time begin = SteadyNow();
  while (true) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) Check(ordinal, "cudaEventQuery", state);
    const absl::Duration waited = SteadyNow() - begin;
    if (waited > deadline) {
      LOG(FATAL) << "device cuda:" << ordinal << " failed: after " << waited
                 << " it has not done the work of a stream up to " << last.name << " of "
                 << last.bytes << " bytes; the device is wedged, or KAON_CUDA_DEADLINE_SECONDS is "
                 << "too small";
    }
    if (waited < kSpins) {
      std::this_thread::yield();
    } else {
      absl::SleepFor(absl::Microseconds(20));
    }
  }
}

// The part of a device that its streams and events use.
struct Context {
  int ordinal = 0;
  absl::Duration deadline;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const Context& context) : context_(context) {
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaEventCreateWithFlags",
          cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~CudaEvent() override { Check(context_.ordinal, "cudaEventDestroy", cudaEventDestroy(event_)); }

  void Await() override {
    MakeCurrent(context_.ordinal);
    AwaitEvent(context_.ordinal, event_, last_, context_.deadline);
  }

  bool IsDone() override {
    MakeCurrent(context_.ordinal);
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaErrorNotReady) Check(context_.ordinal, "cudaEventQuery", state);
    return state == cudaSuccess;
  }

  cudaEvent_t native() const { return event_; }
  void Record(cudaStream_t stream, const LastCall& last) {
    last_ = last;
    Check(context_.ordinal, "cudaEventRecord", cudaEventRecord(event_, stream));
  }

 private:
  const Context context_;
  cudaEvent_t event_ = nullptr;
  LastCall last_;
};

class CudaGraph final : public Graph {
 public:
  CudaGraph(int ordinal, cudaGraphExec_t graph) : ordinal_(ordinal), graph_(graph) {}
  ~CudaGraph() override { Check(ordinal_, "cudaGraphExecDestroy", cudaGraphExecDestroy(graph_)); }

  cudaGraphExec_t native() const { return graph_; }

 private:
  const int ordinal_;
  const cudaGraphExec_t graph_;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(const Context& context) : context_(context), end_(context) {
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaStreamCreateWithFlags",
          cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaStream() override {
    Synchronize();
    Check(context_.ordinal, "cudaStreamDestroy", cudaStreamDestroy(stream_));
  }

  void CopyIn(const void* host, void* device, uint64_t bytes) override {
    Transfer({"a copy to the device", bytes}, host, device, cudaMemcpyHostToDevice);
  }
  void CopyOut(const void* device, void* host, uint64_t bytes) override {
    Transfer({"a copy to the host", bytes}, device, host, cudaMemcpyDeviceToHost);
  }
  void Copy(const void* from, void* to, uint64_t bytes) override {
    Transfer({"a copy on the device", bytes}, from, to, cudaMemcpyDeviceToDevice);
  }
  void SetZero(void* to, uint64_t bytes) override {
    if (bytes == 0) return;
    last_ = {"a fill", bytes};
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaMemsetAsync", cudaMemsetAsync(to, 0, bytes, stream_));
  }

  void Record(Event& event) override {
    MakeCurrent(context_.ordinal);
    static_cast<CudaEvent&>(event).Record(stream_, last_);
  }
  void Wait(const Event& event) override {
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaStreamWaitEvent",
          cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0));
  }
  void WaitForNative(void* event) override {
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaStreamWaitEvent",
          cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(event), 0));
  }
  bool IsNativeDone(void* event) override {
    MakeCurrent(context_.ordinal);
    const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (state != cudaErrorNotReady) Check(context_.ordinal, "cudaEventQuery", state);
    return state == cudaSuccess;
  }
  void Synchronize() override {
    Record(end_);
    end_.Await();
  }

  void BeginCapture() override {
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaStreamBeginCapture",
          cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  std::unique_ptr<Graph> EndCapture() override {
    cudaGraph_t captured = nullptr;
    Check(context_.ordinal, "cudaStreamEndCapture", cudaStreamEndCapture(stream_, &captured));
    cudaGraphExec_t graph = nullptr;
    Check(context_.ordinal, "cudaGraphInstantiate", cudaGraphInstantiate(&graph, captured, 0));
    Check(context_.ordinal, "cudaGraphDestroy", cudaGraphDestroy(captured));
    return std::make_unique<CudaGraph>(context_.ordinal, graph);
  }
  void Launch(const Graph& graph) override {
    last_ = {"a graph", 0};
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaGraphLaunch",
          cudaGraphLaunch(static_cast<const CudaGraph&>(graph).native(), stream_));
  }

  void* native() override {
    MakeCurrent(context_.ordinal);
    return stream_;
  }

 private:
  void Transfer(const LastCall& call, const void* from, void* to, cudaMemcpyKind kind) {
    if (call.bytes == 0) return;
    last_ = call;
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaMemcpyAsync",
          cudaMemcpyAsync(to, from, call.bytes, kind, stream_));
  }

  const Context context_;
  cudaStream_t stream_ = nullptr;
  LastCall last_;
  CudaEvent end_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const Context& context, DeviceProperties properties)
      : context_(context), properties_(std::move(properties)) {}

  const DeviceProperties& properties() const override { return properties_; }
  uint64_t free_bytes() const override {
    MakeCurrent(context_.ordinal);
    size_t free = 0;
    size_t total = 0;
    Check(context_.ordinal, "cudaMemGetInfo", cudaMemGetInfo(&free, &total));
    return free;
  }

  absl::StatusOr<void*> Allocate(uint64_t bytes) override {
    MakeCurrent(context_.ordinal);
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, std::max<uint64_t>(bytes, 1));
    return Allocated("cudaMalloc", error, bytes, memory);
  }
  void Free(void* memory) override {
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaFree", cudaFree(memory));
  }
  absl::StatusOr<void*> AllocatePinned(uint64_t bytes) override {
    MakeCurrent(context_.ordinal);
    void* memory = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&memory, std::max<uint64_t>(bytes, 1), cudaHostAllocPortable);
    return Allocated("cudaHostAlloc", error, bytes, memory);
  }
  void FreePinned(void* memory) override {
    MakeCurrent(context_.ordinal);
    Check(context_.ordinal, "cudaFreeHost", cudaFreeHost(memory));
  }

  std::unique_ptr<Stream> NewStream() override { return std::make_unique<CudaStream>(context_); }
  std::unique_ptr<Event> NewEvent() override { return std::make_unique<CudaEvent>(context_); }

 private:
  absl::StatusOr<void*> Allocated(const char* call, cudaError_t error, uint64_t bytes,
                                  void* memory) const {
    if (error != cudaErrorMemoryAllocation) {
      Check(context_.ordinal, call, error);
      return memory;
    }
    // The runtime keeps the error for the next call that asks.
    static_cast<void>(cudaGetLastError());
    return absl::ResourceExhaustedError(absl::StrCat(
        "device cuda:", context_.ordinal, ": ", call, " of ", bytes, " bytes: ", free_bytes(),
        " of ", properties_.memory_bytes, " bytes are free"));
  }

  const Context context_;
  const DeviceProperties properties_;
};

// Sticky errors are kept by the runtime; this one is returned.
absl::Status Unusable(int ordinal, const char* call, cudaError_t error) {
  return absl::FailedPreconditionError(absl::StrCat(
      "device cuda:", ordinal, " cannot be used: ", call, ": ", cudaGetErrorString(error)));
}

absl::StatusOr<DeviceProperties> PropertiesOf(int ordinal) {
  cudaDeviceProp prop;
  if (cudaError_t error = cudaGetDeviceProperties(&prop, ordinal); error != cudaSuccess) {
    return Unusable(ordinal, "cudaGetDeviceProperties", error);
  }
  DeviceProperties properties;
  properties.platform = "cuda";
  properties.name = prop.name;
  properties.major = prop.major;
  properties.minor = prop.minor;
  properties.multiprocessors = prop.multiProcessorCount;
  properties.memory_bytes = prop.totalGlobalMem;
  properties.shared_bytes_per_block = prop.sharedMemPerBlockOptin;
  if (cudaError_t error = cudaDriverGetVersion(&properties.driver_version); error != cudaSuccess) {
    return Unusable(ordinal, "cudaDriverGetVersion", error);
  }
  if (cudaError_t error = cudaRuntimeGetVersion(&properties.runtime_version);
      error != cudaSuccess) {
    return Unusable(ordinal, "cudaRuntimeGetVersion", error);
  }
  return properties;
}

// Returns the architecture to build for a device. Compute capability 9.0 needs the letter, for
// WGMMA.
std::string ArchitectureOf(const DeviceProperties& device) {
  const bool has_wgmma = device.major == 9 && device.minor == 0;
  return absl::StrCat(device.major, device.minor, has_wgmma ? "a" : "");
}

// Returns true if the library was built for the device. Code runs on later minor versions of its
// architecture; code of an architecture with a letter, such as 90a, does not.
bool HasKernelsFor(const DeviceProperties& device) {
  const int here = 10 * device.major + device.minor;
  for (const absl::string_view arch : absl::StrSplit(KAON_CUDA_ARCHS, ' ', absl::SkipEmpty())) {
    int built = 0;
    if (absl::SimpleAtoi(arch, &built)) {
      if (built <= here && built / 10 == device.major && built != 90) return true;
    } else if (absl::SimpleAtoi(arch.substr(0, arch.size() - 1), &built) && built == here) {
      return true;
    }
  }
  return false;
}

// Returns how long a wait may last.
absl::StatusOr<absl::Duration> ReadDeadline() {
  constexpr const char* kName = "KAON_CUDA_DEADLINE_SECONDS";
  const char* const text = std::getenv(kName);
  int seconds = 60;
  if (text != nullptr && (!absl::SimpleAtoi(text, &seconds) || seconds < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": is \"", text, "\", must be a whole number of at least 1"));
  }
  return absl::Seconds(seconds);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int ordinal) {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return Unusable(ordinal, "cudaGetDeviceCount", error);
  }
  if (ordinal < 0 || ordinal >= count) {
    return absl::NotFoundError(absl::StrCat(
        "device cuda:", ordinal, " does not exist: this host has ", count, ", from cuda:0 on"));
  }
  absl::StatusOr<DeviceProperties> properties = PropertiesOf(ordinal);
  if (!properties.ok()) return properties.status();
  if (!HasKernelsFor(*properties)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device cuda:", ordinal, " is a ", properties->name, ", sm_", ArchitectureOf(*properties),
        ": this library has kernels for sm_", KAON_CUDA_ARCHS,
        " alone; build it with CUDA_ARCHS=", ArchitectureOf(*properties)));
  }
  const absl::StatusOr<absl::Duration> deadline = ReadDeadline();
  if (!deadline.ok()) return deadline.status();
  if (cudaError_t error = cudaSetDevice(ordinal); error != cudaSuccess) {
    return Unusable(ordinal, "cudaSetDevice", error);
  }
  return std::make_unique<CudaDevice>(Context{ordinal, *deadline}, *std::move(properties));
}

}  // namespace kaon::kernels::cuda
