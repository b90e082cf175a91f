#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/muon/newton_schulz.h"
#include "kernels/cuda/products/symmetric_forms.h"
#include "kernels/dtype.h"
#include "tests/gpu/device_matrices.h"
#include "tests/gpu/device_numbers.h"
#include "tests/gpu/sections.h"

namespace kaon::gpu_check {
namespace {

using kernels::NsDType;
using kernels::cuda::BatchedProduct;
using kernels::cuda::SymmetricBatch;
using kernels::cuda::SymmetricForm;

constexpr float kAlpha = 1.25f;
constexpr float kBeta = -0.5f;
// Elements of a result that are compared with fp64.
constexpr int64_t kMostChecked = 4000;

const char* NameOf(NsDType dtype) {
  return dtype == NsDType::kFloat32 ? "fp32" : dtype == NsDType::kBFloat16 ? "bf16" : "fp16";
}

// Half a unit in the last place of 1.
double RoundingOf(NsDType dtype) {
  return dtype == NsDType::kFloat32 ? 0x1p-24 : dtype == NsDType::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// Values as the device stores them.
std::vector<float> Stored(NsDType dtype, int64_t n, uint64_t seed) {
  std::vector<float> values = Numbers(n, seed);
  for (float& value : values) value = kernels::RoundTo(StoredAs(dtype), value);
  return values;
}

// alpha A op(B) + beta C of one element in fp64, and the largest error of a correct result.
struct Expected {
  double value = 0;
  double bound = 0;
};

struct HostOperands {
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c;
};

Expected ElementOf(const BatchedProduct& product, const HostOperands& x, float beta,
                   int64_t element) {
  const int64_t matrix = element / (product.rows * product.cols);
  const int64_t row = element / product.cols % product.rows;
  const int64_t col = element % product.cols;
  const float* a = x.a.data() + (matrix * product.rows + row) * product.inner;
  const float* b = x.b.data() + matrix * product.inner * product.cols;
  double sum = 0;
  double magnitude = 0;
  for (int64_t i = 0; i < product.inner; ++i) {
    const float factor =
        product.transpose_b ? b[col * product.inner + i] : b[i * product.cols + col];
    const double term = static_cast<double>(a[i]) * factor;
    sum += term;
    magnitude += std::abs(term);
  }
  Expected expected;
  const double added = beta == 0 ? 0 : static_cast<double>(beta) * x.c[element];
  expected.value = static_cast<double>(kAlpha) * sum + added;
  // One rounding to the dtype, and fp32 sums in any order.
  expected.bound =
      RoundingOf(product.dtype) * std::abs(expected.value) * 1.01 +
      static_cast<double>(product.inner + 8) * 0x1p-24 * (kAlpha * magnitude + std::abs(added));
  return expected;
}

// Returns how many of the checked elements are wrong.
int64_t WrongElements(const BatchedProduct& product, const HostOperands& x, float beta,
                      const std::vector<float>& result) {
  const int64_t all = static_cast<int64_t>(result.size());
  const int64_t step = std::max<int64_t>(1, all / kMostChecked) | 1;
  int64_t wrong = 0;
  for (int64_t i = 0; i < all; i += step) {
    const Expected expected = ElementOf(product, x, beta, i);
    wrong += !(std::abs(result[i] - expected.value) <= expected.bound);
  }
  return wrong;
}

// Memory of the operands of one product.
struct Operands {
  DeviceMatrices a, b, d;
  HostOperands host;

  static absl::StatusOr<Operands> Create(DeviceStream& stream, const BatchedProduct& p) {
    Operands x;
    const int64_t b_rows = p.transpose_b ? p.cols : p.inner;
    const int64_t b_cols = p.transpose_b ? p.inner : p.cols;
    for (const auto& [matrices, rows, cols] :
         {std::tuple(&x.a, p.rows, p.inner), std::tuple(&x.b, b_rows, b_cols),
          std::tuple(&x.d, p.rows, p.cols)}) {
      auto created = DeviceMatrices::Create(stream, {p.dtype, rows, cols, p.batch});
      if (!created.ok()) return created.status();
      *matrices = *std::move(created);
    }
    x.host = {Stored(p.dtype, x.a.num_elements(), 1), Stored(p.dtype, x.b.num_elements(), 2),
              Stored(p.dtype, x.d.num_elements(), 3)};
    x.a.Fill(stream, x.host.a);
    x.b.Fill(stream, x.host.b);
    return x;
  }
};

void CheckProduct(DeviceStream& stream, BatchedProduct product, Results& results) {
  const std::string name = absl::StrCat(
      "product ", NameOf(product.dtype), " ", product.rows, "x", product.cols, "x", product.inner,
      product.transpose_b ? " transposed" : "", " batch ", product.batch);
  absl::StatusOr<Operands> x = Operands::Create(stream, product);
  if (!x.ok()) return results.Skip(name, std::string(x.status().message()));
  product.a = x->a.layout();
  product.b = x->b.layout();
  product.d = x->d.layout();
  if (const absl::Status found = stream.products().Find(product); !found.ok()) {
    return results.Check(name, false, std::string(found.message()));
  }
  for (const float beta : {0.0f, kBeta}) {
    x->d.Fill(stream, x->host.c);
    stream.products().Multiply(stream.on(), product, kAlpha, beta,
                               {x->a.data(), x->b.data(), x->d.data(), x->d.data()});
    const int64_t wrong = WrongElements(product, x->host, beta, x->d.Read(stream));
    results.Check(absl::StrCat(name, " beta ", beta), wrong == 0,
                  absl::StrCat(wrong, " elements are beyond their bound"));
  }
}

// C must be symmetric, so it is A A^T of another A, rounded.
std::vector<float> SymmetricNumbers(const SymmetricBatch& shape) {
  std::vector<float> values = Stored(shape.dtype, shape.batch * shape.n * shape.n, 3);
  for (int64_t matrix = 0; matrix < shape.batch; ++matrix) {
    float* c = values.data() + matrix * shape.n * shape.n;
    for (int64_t i = 0; i < shape.n; ++i) {
      for (int64_t j = 0; j < i; ++j) c[i * shape.n + j] = c[j * shape.n + i];
    }
  }
  return values;
}

bool IsSymmetric(const SymmetricBatch& shape, const std::vector<float>& values) {
  for (int64_t matrix = 0; matrix < shape.batch; ++matrix) {
    const float* d = values.data() + matrix * shape.n * shape.n;
    for (int64_t i = 0; i < shape.n; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        if (d[i * shape.n + j] != d[j * shape.n + i]) return false;
      }
    }
  }
  return true;
}

void CheckSymmetric(DeviceStream& stream, SymmetricForm form, const SymmetricBatch& shape,
                    Results& results) {
  kernels::cuda::SymmetricProducts symmetric(stream.device(), stream.products());
  const std::string name =
      absl::StrCat("symmetric ", std::string(kernels::cuda::NameOf(form)), " ", NameOf(shape.dtype),
                   " ", shape.n, "x", shape.k, " batch ", shape.batch);
  if (!symmetric.Supports(form, shape)) return results.Skip(name, "the form has no such shape");
  BatchedProduct product = {shape.dtype, shape.n, shape.n, shape.k, true, shape.batch};
  absl::StatusOr<Operands> x = Operands::Create(stream, product);
  if (!x.ok()) return results.Skip(name, std::string(x.status().message()));
  auto d = DeviceMatrices::Create(stream, {shape.dtype, shape.n, shape.n, shape.batch});
  if (!d.ok()) return results.Skip(name, std::string(d.status().message()));
  if (const absl::Status found = symmetric.Find(form, shape); !found.ok()) {
    return results.Check(name, false, std::string(found.message()));
  }
  x->host.b = x->host.a;
  x->host.c = SymmetricNumbers(shape);
  x->d.Fill(stream, x->host.c);
  symmetric.Multiply(stream.on(), form, shape, kAlpha, kBeta,
                     {x->a.data(), x->a.data(), x->d.data(), d->data()});
  const std::vector<float> result = d->Read(stream);
  const int64_t wrong = WrongElements(product, x->host, kBeta, result);
  const bool symmetry = form == SymmetricForm::kDense || IsSymmetric(shape, result);
  results.Check(name, wrong == 0 && symmetry,
                absl::StrCat(wrong, " elements are beyond their bound",
                             symmetry ? "" : ", and the result is not symmetric"));
}

// The same iteration as a graph and without it, twice each.
void CheckGraph(DeviceStream& stream, const kernels::NewtonSchulzConfig& config,
                const kernels::cuda::WideBatch& shape, Results& results) {
  const std::string name =
      absl::StrCat("newton_schulz ", NameOf(config.dtype), " ", shape.r, "x", shape.c, " batch ",
                   shape.batch, config.form == kernels::NsForm::kGram ? " gram" : "");
  kernels::cuda::SymmetricProducts symmetric(stream.device(), stream.products());
  kernels::cuda::ProductChoice choice;
  auto memory = kernels::cuda::OwnedMemory::OnDevice(
      stream.device(), kernels::cuda::NewtonSchulzPlan::MemoryBytes(config, shape));
  if (!memory.ok()) return results.Skip(name, std::string(memory.status().message()));
  auto plan = kernels::cuda::NewtonSchulzPlan::Create(
      {stream.device(), stream.products(), symmetric, choice, stream.on()}, config, shape,
      memory->data());
  if (!plan.ok()) return results.Check(name, false, std::string(plan.status().message()));
  const DeviceMatrices::Shape stored = {config.dtype, shape.r, shape.c, shape.batch};
  const uint64_t bytes =
      (*plan)->layout().stride * shape.batch * kernels::cuda::ElementBytes(config.dtype);
  auto first = DeviceMatrices::Create(stream, stored);
  if (!first.ok()) return results.Skip(name, std::string(first.status().message()));
  // The Frobenius norm is below 1.
  const float scale = 1 / std::sqrt(static_cast<float>(shape.r * shape.c));
  first->FillRepeated(stream, 9, scale);
  std::vector<std::vector<std::byte>> outcomes;
  for (const bool graph : {true, false, true, false}) {
    stream.stream().Copy(first->data(), (*plan)->x(), bytes);
    graph ? (*plan)->Run() : (*plan)->RunDirectly();
    outcomes.push_back(stream.Download((*plan)->result(), bytes));
  }
  const bool same = std::all_of(outcomes.begin(), outcomes.end(),
                                [&](const auto& outcome) { return outcome == outcomes[0]; });
  results.Check(name + " with and without graph", same, "the bits differ");
}

}  // namespace

void CheckProducts(const Machine& machine, Results& results) {
  auto stream = DeviceStream::Create(machine.device);
  if (!stream.ok()) {
    return results.Check("products", false, std::string(stream.status().message()));
  }
  const std::vector<std::vector<int64_t>> shapes =
      machine.small ? std::vector<std::vector<int64_t>>{{8, 8, 8}, {24, 40, 33}}
                    : std::vector<std::vector<int64_t>>{
                          {64, 64, 64}, {1000, 304, 520}, {2048, 2048, 2048}, {4096, 1024, 4096}};
  for (const NsDType dtype : {NsDType::kBFloat16, NsDType::kFloat16, NsDType::kFloat32}) {
    for (const std::vector<int64_t>& shape : shapes) {
      for (const bool transposed : {false, true}) {
        for (const int64_t batch : {1, 3}) {
          CheckProduct(**stream, {dtype, shape[0], shape[1], shape[2], transposed, batch}, results);
        }
      }
    }
    for (const SymmetricForm form : kernels::cuda::kSymmetricForms) {
      for (const int64_t n : machine.small ? std::vector<int64_t>{40, 264}
                                           : std::vector<int64_t>{256, 1000, 2048, 3072, 4096}) {
        CheckSymmetric(**stream, form, {dtype, n, machine.small ? 24 : 1536, 1}, results);
        CheckSymmetric(**stream, form, {dtype, n, n / 2, 2}, results);
      }
    }
  }
  kernels::NewtonSchulzConfig config;
  for (const kernels::NsForm form : {kernels::NsForm::kStandard, kernels::NsForm::kGram}) {
    config.form = form;
    config.dtype = form == kernels::NsForm::kGram ? NsDType::kFloat16 : NsDType::kBFloat16;
    config.gram_restarts =
        form == kernels::NsForm::kGram ? std::vector<int>{2} : std::vector<int>();
    const int64_t n = machine.small ? 24 : 2304;
    CheckGraph(**stream, config, {n, 2 * n, 1}, results);
    CheckGraph(**stream, config, {n / 8, n / 8, 4}, results);
  }
}

}  // namespace kaon::gpu_check
