#include "kernels/gemm/onednn_gemm.h"

#include <dnnl.h>
#include <glog/logging.h>
#include <omp.h>

#include <cstring>
#include <vector>

namespace kaon::kernels {
namespace {

// oneDNN splits a product, and also its inner sum, by the number of OpenMP threads that it finds.
// So the same product would give other bits on another machine. Therefore each call runs in the
// calling thread alone, and concurrent calls use several cores. The option belongs to the calling
// thread; the destructor restores it.
class SingleThreaded {
 public:
  SingleThreaded() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleThreaded() { omp_set_num_threads(before_); }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  const int before_;
};

void Check(dnnl_status_t status, const char* what) {
  CHECK(status == dnnl_success) << "oneDNN " << what << ": status " << status;
}

template <typename Handle, dnnl_status_t (*Destroy)(Handle)>
struct Destroyer {
  using pointer = Handle;
  void operator()(Handle handle) const { Destroy(handle); }
};

template <typename Handle, dnnl_status_t (*Destroy)(Handle)>
using Owned = std::unique_ptr<Handle, Destroyer<Handle, Destroy>>;

using OwnedEngine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using OwnedStream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using OwnedAttributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using OwnedPostOps = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using OwnedDescriptor = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using OwnedPrimitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using OwnedMemory = Owned<dnnl_memory_t, dnnl_memory_destroy>;

bool SameProduct(const MatrixProduct& x, const MatrixProduct& y) {
  return x.rows == y.rows && x.cols == y.cols && x.inner == y.inner &&
         x.transpose_b == y.transpose_b && x.alpha == y.alpha && x.beta == y.beta &&
         x.AStride() == y.AStride() && x.BStride() == y.BStride() && x.CStride() == y.CStride();
}

dnnl_memory_desc_t Matrix(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                          dnnl_data_type_t type) {
  const dnnl_dims_t extents = {rows, cols};
  const dnnl_dims_t strides = {row_stride, col_stride};
  dnnl_memory_desc_t description;
  Check(dnnl_memory_desc_init_by_strides(&description, 2, extents, type, strides), "matrix");
  return description;
}

OwnedAttributes AttributesOf(const MatrixProduct& product) {
  dnnl_primitive_attr_t raw = nullptr;
  Check(dnnl_primitive_attr_create(&raw), "attributes");
  OwnedAttributes attributes(raw);
  // The library's own scratchpad belongs to the thread that made the primitive; ours may run on
  // any.
  Check(dnnl_primitive_attr_set_scratchpad_mode(raw, dnnl_scratchpad_mode_user), "scratchpad");
  Check(dnnl_primitive_attr_set_output_scales(raw, 1, 0, &product.alpha), "alpha");
  if (product.beta != 0) {
    dnnl_post_ops_t raw_ops = nullptr;
    Check(dnnl_post_ops_create(&raw_ops), "post-operations");
    OwnedPostOps ops(raw_ops);
    Check(dnnl_post_ops_append_sum(raw_ops, product.beta), "beta");
    Check(dnnl_primitive_attr_set_post_ops(raw, raw_ops), "post-operations");
  }
  return attributes;
}

OwnedMemory MemoryOf(const dnnl_memory_desc_t& description, dnnl_engine_t engine, void* values) {
  dnnl_memory_t memory = nullptr;
  Check(dnnl_memory_create(&memory, &description, engine, values), "memory");
  return OwnedMemory(memory);
}

// Each set's value holds the bits of the sets it contains.
bool HasInstructions(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

}  // namespace

struct OneDnnGemm::Engine {
  OwnedEngine engine;
};

struct OneDnnGemm::BFloat16Primitive {
  MatrixProduct product;
  dnnl_memory_desc_t a;
  dnnl_memory_desc_t b;
  dnnl_memory_desc_t c;
  dnnl_memory_desc_t scratchpad;
  OwnedPrimitive primitive;
};

OneDnnGemm::OneDnnGemm(BFloat16Products products)
    : use_primitives_(HasInstructions(products == BFloat16Products::kWherePossible
                                          ? dnnl_cpu_isa_avx512_core
                                          : dnnl_cpu_isa_avx512_core_bf16)),
      engine_(std::make_unique<Engine>()) {
  dnnl_engine_t engine = nullptr;
  Check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
  engine_->engine.reset(engine);
}

OneDnnGemm::~OneDnnGemm() = default;

void OneDnnGemm::Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) {
  const SingleThreaded single_threaded;
  const char transpose_b = product.transpose_b ? 'T' : 'N';
  Check(dnnl_sgemm('N', transpose_b, product.rows, product.cols, product.inner, product.alpha, a,
                   product.AStride(), b, product.BStride(), product.beta, c, product.CStride()),
        "sgemm");
}

std::shared_ptr<OneDnnGemm::BFloat16Primitive> OneDnnGemm::FindLocked(
    const MatrixProduct& product) {
  for (auto it = cache_.begin(); it != cache_.end(); ++it) {
    if (!SameProduct((*it)->product, product)) continue;
    cache_.splice(cache_.begin(), cache_, it);
    return cache_.front();
  }
  return nullptr;
}

std::shared_ptr<OneDnnGemm::BFloat16Primitive> OneDnnGemm::FindOrMake(
    const MatrixProduct& product) {
  {
    MutexLock lock(mu_);
    if (std::shared_ptr<BFloat16Primitive> found = FindLocked(product)) return found;
  }

  // Created outside the lock: generating code takes milliseconds.
  auto made = std::make_shared<BFloat16Primitive>();
  made->product = product;
  const int64_t b_stride = product.BStride();
  made->a = Matrix(product.rows, product.inner, product.AStride(), 1, dnnl_bf16);
  made->b = product.transpose_b ? Matrix(product.inner, product.cols, 1, b_stride, dnnl_bf16)
                                : Matrix(product.inner, product.cols, b_stride, 1, dnnl_bf16);
  made->c = Matrix(product.rows, product.cols, product.CStride(), 1, dnnl_f32);
  dnnl_matmul_desc_t operation;
  Check(dnnl_matmul_desc_init(&operation, &made->a, &made->b, nullptr, &made->c), "matmul");
  const OwnedAttributes attributes = AttributesOf(product);
  dnnl_primitive_desc_t raw = nullptr;
  Check(dnnl_primitive_desc_create(&raw, &operation, attributes.get(), engine_->engine.get(),
                                   nullptr),
        "matmul");
  const OwnedDescriptor descriptor(raw);
  made->scratchpad = *dnnl_primitive_desc_query_md(raw, dnnl_query_scratchpad_md, 0);
  dnnl_primitive_t primitive = nullptr;
  Check(dnnl_primitive_create(&primitive, raw), "primitive");
  made->primitive.reset(primitive);

  MutexLock lock(mu_);
  // Another thread may have created the same one meanwhile.
  if (std::shared_ptr<BFloat16Primitive> found = FindLocked(product)) return found;
  cache_.push_front(made);
  if (cache_.size() > kMaxCachedPrimitives) cache_.pop_back();
  return made;
}

void OneDnnGemm::MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a,
                                  const uint16_t* b, float* c) {
  if (!use_primitives_) return MultiplyWidened(*this, product, a, b, c);

  const SingleThreaded single_threaded;
  const std::shared_ptr<BFloat16Primitive> matmul = FindOrMake(product);
  dnnl_engine_t engine = engine_->engine.get();
  dnnl_stream_t raw_stream = nullptr;
  Check(dnnl_stream_create(&raw_stream, engine, dnnl_stream_default_flags), "stream");
  const OwnedStream stream(raw_stream);
  std::vector<std::byte> scratchpad(dnnl_memory_desc_get_size(&matmul->scratchpad));
  // The library's parameters for inputs are void*; it does not write them.
  const OwnedMemory a_memory = MemoryOf(matmul->a, engine, const_cast<uint16_t*>(a));
  const OwnedMemory b_memory = MemoryOf(matmul->b, engine, const_cast<uint16_t*>(b));
  const OwnedMemory c_memory = MemoryOf(matmul->c, engine, c);
  const OwnedMemory scratchpad_memory = MemoryOf(matmul->scratchpad, engine, scratchpad.data());
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, a_memory.get()},
                                       {DNNL_ARG_WEIGHTS, b_memory.get()},
                                       {DNNL_ARG_DST, c_memory.get()},
                                       {DNNL_ARG_SCRATCHPAD, scratchpad_memory.get()}};
  Check(dnnl_primitive_execute(matmul->primitive.get(), raw_stream, 4, arguments), "matmul");
  Check(dnnl_stream_wait(raw_stream), "stream");
}

size_t OneDnnGemm::num_cached_primitives() const {
  MutexLock lock(mu_);
  return cache_.size();
}

}  // namespace kaon::kernels
