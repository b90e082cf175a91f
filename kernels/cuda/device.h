// One GPU: its memory, its streams, and what orders them. Two implementations link against this
// header: device_cuda.cc on the CUDA runtime, and on_host/device_on_host.cc on host memory. The
// second one runs the work of streams late, in a seeded legal order. Any thread may use a Device;
// one thread at a time uses a Stream. A failed call ends the process with the reason, except where
// a status is returned.
#ifndef KAON_KERNELS_CUDA_DEVICE_H_
#define KAON_KERNELS_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace kaon::kernels::cuda {

// Returns the name of a device's memory, the same for all that use it in a process.
inline std::string MemoryTier(int ordinal) { return "cuda:" + std::to_string(ordinal); }

struct DeviceProperties {
  // "cuda", or "cuda_on_host".
  std::string platform;
  // Model, such as "NVIDIA H100 80GB HBM3".
  std::string name;
  // Compute capability, such as 9 and 0.
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
  // Most bytes of shared memory that one block may ask for.
  uint64_t shared_bytes_per_block = 0;
  // As CUDA counts them: 1000 * major + 10 * minor.
  int driver_version = 0;
  int runtime_version = 0;
};

class Stream;

// A place in the work of a stream. Movable through its pointer; the device must outlive it.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks until the work before the last Stream::Record is done; returns at once before the first.
  virtual void Await() = 0;
  // Returns whether that work is done, without waiting for it. The device on the host does the work
  // now, since nothing else would.
  virtual bool IsDone() = 0;
};

// Work recorded by Stream::EndCapture, to be launched any number of times. Outlives its launches.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Work that the device does in order. Host memory of a copy comes from AllocatePinned and belongs
// to the copy until it is done. The destructor blocks until all work is done.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual void CopyIn(const void* host, void* device, uint64_t bytes) = 0;
  virtual void CopyOut(const void* device, void* host, uint64_t bytes) = 0;
  virtual void Copy(const void* from, void* to, uint64_t bytes) = 0;
  virtual void SetZero(void* to, uint64_t bytes) = 0;

  virtual void Record(Event& event) = 0;
  // Later work of this stream waits for the event.
  virtual void Wait(const Event& event) = 0;
  // Later work of this stream waits for an event of another library: a cudaEvent_t, or an Event* on
  // the host.
  virtual void WaitForNative(void* event) = 0;
  // Returns whether such an event has occurred, as Event::IsDone does.
  virtual bool IsNativeDone(void* event) = 0;
  // Blocks until everything is done.
  virtual void Synchronize() = 0;

  // Between the two calls, work is recorded and not done. The thread neither allocates nor waits
  // meanwhile, and the stream neither records nor waits for events.
  virtual void BeginCapture() = 0;
  virtual std::unique_ptr<Graph> EndCapture() = 0;
  virtual void Launch(const Graph& graph) = 0;

  // The cudaStream_t, for launch.h and cuBLASLt; null on the host. Makes the device the current
  // one of the calling thread.
  virtual void* native() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // NOT_FOUND if the ordinal does not exist. FAILED_PRECONDITION if the driver or the device is
  // missing or too old. Both say what is there and what is needed.
  static absl::StatusOr<std::unique_ptr<Device>> Open(int ordinal);

  virtual const DeviceProperties& properties() const = 0;
  // Bytes that can be allocated now.
  virtual uint64_t free_bytes() const = 0;

  // Allocates device memory, 256-byte aligned, with undefined contents. RESOURCE_EXHAUSTED with
  // the arithmetic.
  virtual absl::StatusOr<void*> Allocate(uint64_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Allocates page-locked host memory. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<void*> AllocatePinned(uint64_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  virtual std::unique_ptr<Stream> NewStream() = 0;
  virtual std::unique_ptr<Event> NewEvent() = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_DEVICE_H_
