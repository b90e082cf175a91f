// Holds the memory of one parameter and its optimizer state. A backend steps it repeatedly with the
// same gradient. One thread.
#ifndef KAON_TESTS_BENCHMARK_STEPPED_PARAMETER_H_
#define KAON_TESTS_BENCHMARK_STEPPED_PARAMETER_H_

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/parallel_ranges.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_rule.h"

namespace kaon::kernels {

// Memory like that of the cpu backend: aligned, and on large pages if there are any; initially
// zero. A vector of this size would start 16 bytes after a page, so every second vector register of
// it would cross a cache line.
template <typename T>
class HostArray {
 public:
  HostArray() = default;
  explicit HostArray(int64_t n) : memory_(AllocateZeroedHost(n * sizeof(T)).data()), size_(n) {
    CHECK(memory_ != nullptr) << n << " elements";
  }

  const T* data() const { return reinterpret_cast<const T*>(memory_.get()); }
  T* data() { return reinterpret_cast<T*>(memory_.get()); }
  size_t size() const { return static_cast<size_t>(size_); }
  Region region() { return absl::MakeSpan(memory_.get(), size() * sizeof(T)); }

 private:
  struct Deleter {
    void operator()(std::byte* memory) const { FreeHost({memory, 0}); }
  };

  std::unique_ptr<std::byte, Deleter> memory_;
  int64_t size_ = 0;
};

// The threads that will use the values write them first.
inline std::vector<float> Values(ThreadPool& pool, int64_t n, float scale) {
  std::vector<float> values(n);
  ForEachRange(pool, n, 1 << 16, [&](int64_t begin, int64_t end) {
    uint32_t state = static_cast<uint32_t>(begin) * 2654435761u + 1;
    for (int64_t i = begin; i < end; ++i) {
      state = state * 1664525u + 1013904223u;
      values[i] = scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
  });
  return values;
}

inline HostArray<float> HostValues(ThreadPool& pool, int64_t n, float scale) {
  const std::vector<float> values = Values(pool, n, scale);
  HostArray<float> array(n);
  ForEachRange(pool, n, 1 << 16, [&](int64_t begin, int64_t end) {
    std::copy(values.begin() + begin, values.begin() + end, array.data() + begin);
  });
  return array;
}

// kBeside: write new weights to other memory than the old ones, as a shard does, because the old
// ones may still be pulled.
enum class WeightsGo { kBeside, kInPlace };

class SteppedParameter {
 public:
  SteppedParameter(RuleConfig rule, std::vector<uint64_t> shape, ThreadPool& pool,
                   DType grad_dtype = DType::kFloat32, WeightsGo weights_go = WeightsGo::kBeside)
      : rule_(std::move(rule)), shape_(std::move(shape)), grad_dtype_(grad_dtype) {
    const int64_t n = std::accumulate(shape_.begin(), shape_.end(), int64_t{1},
                                      [](int64_t x, uint64_t y) { return x * y; });
    const std::vector<float> grad = Values(pool, n, 1e-3f);
    grad_ = HostArray<std::byte>(n * static_cast<int64_t>(SizeOf(grad_dtype_)));
    FromFloat(grad_dtype_, grad, grad_.data());
    weight_ = HostValues(pool, n, 1e-1f);
    if (weights_go == WeightsGo::kBeside) new_weight_ = HostValues(pool, n, 0);
    for (const StateSlot& slot : StateSlots(rule_, shape_)) {
      slots_.push_back(HostValues(pool, slot.num_bytes / sizeof(float), 0));
    }
    for (HostArray<float>& slot : slots_) regions_.push_back(slot.region());
  }

  // Returns the next update. Run it before the one after it.
  Update Next() {
    const bool in_place = new_weight_.size() == 0;
    const Update update = {&rule_,
                           {.lr = 1e-3, .clip_factor = 1, .t = ++t_},
                           shape_,
                           {GradView(grad_dtype_, grad_.region()), weight_.region(),
                            in_place ? weight_.region() : new_weight_.region(), regions_},
                           {}};
    if (!in_place) std::swap(weight_, new_weight_);
    return update;
  }

  void Step(Backend& backend) {
    Update update = Next();
    backend.RunUpdates(absl::MakeSpan(&update, 1));
  }

 private:
  const RuleConfig rule_;
  const std::vector<uint64_t> shape_;
  const DType grad_dtype_;
  HostArray<std::byte> grad_;
  HostArray<float> weight_;
  // Empty for kInPlace.
  HostArray<float> new_weight_;
  std::vector<HostArray<float>> slots_;
  std::vector<Region> regions_;
  int64_t t_ = 0;
};

}  // namespace kaon::kernels

#endif  // KAON_TESTS_BENCHMARK_STEPPED_PARAMETER_H_
