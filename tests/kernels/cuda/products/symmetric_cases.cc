#include "tests/kernels/cuda/products/symmetric_cases.h"

#include <glog/logging.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <random>

#include "kernels/cuda/products/symmetric_product.h"
#include "kernels/float_bits.h"
#include "tests/kernels/cuda/immediate_device.h"

namespace kaon::kernels::cuda {
namespace {

constexpr uint16_t kPadding = 0xffff;

// Row-major, rows and matrices padded with NaN.
struct Matrices {
  Matrices(int64_t batch, int64_t rows, int64_t cols)
      : pitch((cols + 7) / 8 * 8 + 8),
        stride(rows * pitch + 8),
        values(static_cast<size_t>(batch * stride), kPadding) {}
  uint16_t& at(int64_t b, int64_t row, int64_t col) {
    return values[static_cast<size_t>(b * stride + row * pitch + col)];
  }
  SymmetricMatrices on(uint16_t* data) const { return {data, pitch, stride}; }
  int64_t pitch;
  int64_t stride;
  std::vector<uint16_t> values;
};

float Widened(DType dtype, uint16_t x) {
  return dtype == DType::kBFloat16 ? BFloat16ToFloat(x) : Float16ToFloat(x);
}
uint16_t Rounded(DType dtype, float x) {
  return dtype == DType::kBFloat16 ? FloatToBFloat16(x) : FloatToFloat16(x);
}

Matrices RandomMatrices(const SymmetricCase& c, int64_t cols, unsigned seed) {
  Matrices m(c.batch, c.n, cols);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t i = 0; i < c.n; ++i) {
      for (int64_t j = 0; j < cols; ++j) m.at(b, i, j) = Rounded(c.dtype, normal(random));
    }
  }
  return m;
}

std::vector<float> Widened(const SymmetricCase& c, Matrices& m, int64_t b) {
  std::vector<float> values(static_cast<size_t>(c.n * c.k));
  for (int64_t i = 0; i < c.n * c.k; ++i) {
    values[static_cast<size_t>(i)] = Widened(c.dtype, m.at(b, i / c.k, i % c.k));
  }
  return values;
}

// Returns true if the work computes the block of an element.
bool Computes(const SymmetricWork& w, int64_t b, int64_t row, int64_t col) {
  const int64_t first = col / kBlockEdge * kBlockEdge;
  return b == w.batch && row / kBlockEdge * kBlockEdge == w.row &&
         (first == w.cols[0] || first == w.cols[1]);
}

// Returns how many parts the element's sum has.
int PartsOf(const SymmetricSchedule& schedule, int64_t b, int64_t row, int64_t col) {
  for (const SymmetricWork& w : schedule.cut) {
    if (Computes(w, b, row, col)) return schedule.parts;
  }
  return 1;
}

// Returns true if the element is computed, not its mirror image.
bool IsComputed(const SymmetricSchedule& schedule, int64_t b, int64_t row, int64_t col) {
  return std::any_of(schedule.work.begin(), schedule.work.end(),
                     [&](const SymmetricWork& w) { return Computes(w, b, row, col); });
}

float SumOf(const float* a, const float* b, int64_t k, int parts) {
  const int64_t steps = (k + kTileK - 1) / kTileK;
  float sum = 0;
  for (int64_t p = 0; p < parts; ++p) {
    float part = 0;
    const int64_t end = std::min(k, steps * (p + 1) / parts * kTileK);
    for (int64_t i = steps * p / parts * kTileK; i < end; ++i) part += a[i] * b[i];
    sum = parts == 1 ? part : sum + part;
  }
  return sum;
}

Matrices Expected(const SymmetricCase& c, const SymmetricSchedule& schedule, Matrices& a,
                  Matrices& b, Matrices& addend) {
  Matrices d(c.batch, c.n, c.n);
  for (int64_t m = 0; m < c.batch; ++m) {
    const std::vector<float> left = Widened(c, a, m);
    const std::vector<float> right = Widened(c, b, m);
    for (int64_t i = 0; i < c.n; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        const bool mirrored = !IsComputed(schedule, m, i, j);
        const int64_t row = mirrored ? j : i;
        const int64_t col = mirrored ? i : j;
        float value = c.alpha * SumOf(&left[static_cast<size_t>(row * c.k)],
                                      &right[static_cast<size_t>(col * c.k)], c.k,
                                      PartsOf(schedule, m, row, col));
        if (c.beta != 0) value += c.beta * Widened(c.dtype, addend.at(m, row, col));
        d.at(m, i, j) = d.at(m, j, i) = Rounded(c.dtype, value);
      }
    }
  }
  return d;
}

// Address space for matrices that lie far apart; only what is touched takes memory.
class FarMatrices {
 public:
  FarMatrices(const SymmetricCase& c, const Matrices& near)
      : stride_((int64_t{1} << 31) + 64), bytes_(static_cast<size_t>(c.batch * stride_) * 2) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PCHECK(data_ != MAP_FAILED) << bytes_ << " bytes of address space";
    for (int64_t b = 0; b < c.batch; ++b) {
      std::copy_n(near.values.begin() + b * near.stride, near.stride, At(b));
    }
  }
  ~FarMatrices() { munmap(data_, bytes_); }
  FarMatrices(const FarMatrices&) = delete;
  FarMatrices& operator=(const FarMatrices&) = delete;

  uint16_t* At(int64_t b) const { return static_cast<uint16_t*>(data_) + b * stride_; }
  int64_t stride() const { return stride_; }

 private:
  const int64_t stride_;
  const size_t bytes_;
  void* data_;
};

// Returns D's values as `near` has them, computed where they lie far apart.
std::vector<uint16_t> RunFar(const SymmetricCase& c, const SymmetricProduct& product,
                             Stream& stream, SymmetricOperands operands, const Matrices& near) {
  const FarMatrices far(c, near);
  operands.d = {far.At(0), near.pitch, far.stride()};
  product.Run(stream, operands);
  std::vector<uint16_t> d(near.values.size());
  for (int64_t b = 0; b < c.batch; ++b) {
    std::copy_n(far.At(b), near.stride, d.begin() + b * near.stride);
  }
  return d;
}

}  // namespace

int WrongSymmetricProducts(const SymmetricCase& c, int seeds) {
  // A B^T is not symmetric: one of two mirror images counts.
  Matrices a = RandomMatrices(c, c.k, 1);
  Matrices b = RandomMatrices(c, c.k, 2);
  Matrices addend = RandomMatrices(c, c.n, 3);
  int wrong = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    ImmediateDevice device(c.multiprocessors, static_cast<uint64_t>(seed));
    auto product = SymmetricProduct::Create(device, {c.n, c.k, c.batch, c.dtype});
    CHECK(product.ok()) << product.status();
    Matrices d(c.batch, c.n, c.n);
    std::vector<float> workspace((*product)->workspace_bytes() / sizeof(float), 1e30f);
    SymmetricOperands operands;
    operands.a = a.on(a.values.data());
    operands.b = b.on(b.values.data());
    operands.c = addend.on(addend.values.data());
    operands.d = d.on(d.values.data());
    operands.alpha = c.alpha;
    operands.beta = c.beta;
    operands.workspace = workspace.data();
    const std::unique_ptr<Stream> stream = device.NewStream();
    if (c.far) {
      d.values = RunFar(c, **product, *stream, operands, d);
    } else {
      (*product)->Run(*stream, operands);
    }
    stream->Synchronize();
    wrong += d.values != Expected(c, (*product)->schedule(), a, b, addend).values;
  }
  return wrong;
}

}  // namespace kaon::kernels::cuda
