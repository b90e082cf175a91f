#include <cublasLt.h>
#include <glog/logging.h>

#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/products/products.h"
#include "kernels/mutex.h"

namespace kaon::kernels::cuda {
namespace {

#define KAON_LT_CHECK(call)                                   \
  do {                                                        \
    const cublasStatus_t lt_status = (call);                  \
    CHECK(lt_status == CUBLAS_STATUS_SUCCESS)                 \
        << #call << ": " << cublasLtGetStatusName(lt_status); \
  } while (false)

cudaDataType_t TypeOf(NsDType dtype) {
  switch (dtype) {
    case NsDType::kFloat32:
      return CUDA_R_32F;
    case NsDType::kBFloat16:
      return CUDA_R_16BF;
    case NsDType::kFloat16:
      break;
  }
  return CUDA_R_16F;
}

// The library's handles of one product, and its algorithm. The library computes column-major, so it
// is asked for D^T = op(B)^T A^T.
struct LtProduct {
  LtProduct() = default;
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;
  ~LtProduct() {
    for (const cublasLtMatrixLayout_t layout : {a, b, d}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

template <typename T>
void Set(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t attribute, T value) {
  KAON_LT_CHECK(cublasLtMatmulDescSetAttribute(to, attribute, &value, sizeof(value)));
}

template <typename T>
void Set(cublasLtMatrixLayout_t to, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  KAON_LT_CHECK(cublasLtMatrixLayoutSetAttribute(to, attribute, &value, sizeof(value)));
}

template <typename T>
void Set(cublasLtMatmulPreference_t to, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  KAON_LT_CHECK(cublasLtMatmulPreferenceSetAttribute(to, attribute, &value, sizeof(value)));
}

// Returns the column-major layout of row-major matrices (rows, cols).
cublasLtMatrixLayout_t LayoutOf(const BatchedProduct& product, int64_t rows, int64_t cols,
                                const BatchLayout& batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  KAON_LT_CHECK(
      cublasLtMatrixLayoutCreate(&layout, TypeOf(product.dtype), cols, rows, batch.pitch));
  Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(product.batch));
  if (product.by_address) {
    Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE,
        static_cast<uint32_t>(CUBLASLT_BATCH_MODE_POINTER_ARRAY));
  } else {
    Set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<int64_t>(batch.stride));
  }
  return layout;
}

std::unique_ptr<LtProduct> HandlesOf(const BatchedProduct& product, int multiprocessors) {
  auto lt = std::make_unique<LtProduct>();
  KAON_LT_CHECK(cublasLtMatmulDescCreate(&lt->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Set(lt->operation, CUBLASLT_MATMUL_DESC_TRANSA,
      static_cast<int32_t>(product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  Set(lt->operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<int32_t>(multiprocessors));
  lt->a = LayoutOf(product, product.rows, product.inner, product.a);
  lt->b = product.transpose_b ? LayoutOf(product, product.cols, product.inner, product.b)
                              : LayoutOf(product, product.inner, product.cols, product.b);
  lt->d = LayoutOf(product, product.rows, product.cols, product.d);
  return lt;
}

// Fixes the preferences of the heuristic, so that it gives the same algorithm in every process.
// No algorithm may split the sums among blocks.
cublasLtMatmulPreference_t FixedPreference() {
  cublasLtMatmulPreference_t preference = nullptr;
  KAON_LT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ProductStream::kLibraryBytes);
  Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  for (const auto alignment :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Set(preference, alignment, uint32_t{256});
  }
  return preference;
}

std::string Describe(const BatchedProduct& p) {
  const char* const dtypes[] = {"fp32", "bf16", "fp16"};
  return absl::StrCat(dtypes[static_cast<int>(p.dtype)], " ", p.rows, "x", p.cols, "x", p.inner,
                      p.transpose_b ? " nt" : " nn", " batch ", p.batch,
                      p.by_address ? " by address" : "", " pitches ", p.a.pitch, " ", p.b.pitch,
                      " ", p.d.pitch, " strides ", p.a.stride, " ", p.b.stride, " ", p.d.stride);
}

class LtGemm final : public Products {
 public:
  LtGemm(cublasLtHandle_t handle, int multiprocessors)
      : handle_(handle), multiprocessors_(multiprocessors), preference_(FixedPreference()) {}
  ~LtGemm() override {
    found_.clear();
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtDestroy(handle_);
  }

  absl::Status Find(const BatchedProduct& product) override {
    MutexLock lock(mutex_);
    if (found_.count(product) != 0) return absl::OkStatus();
    const BatchedProduct typical = Typical(product);
    const absl::StatusOr<cublasLtMatmulAlgo_t> algorithm = AlgorithmOfLocked(typical);
    if (!algorithm.ok()) return algorithm.status();
    std::unique_ptr<LtProduct> lt = HandlesOf(product, multiprocessors_);
    lt->algorithm = *algorithm;
    cublasLtMatmulHeuristicResult_t checked = {};
    const cublasStatus_t check = cublasLtMatmulAlgoCheck(handle_, lt->operation, lt->b, lt->a,
                                                         lt->d, lt->d, &lt->algorithm, &checked);
    if (check != CUBLAS_STATUS_SUCCESS || checked.workspaceSize > ProductStream::kLibraryBytes) {
      return absl::UnimplementedError(
          absl::StrCat("cuBLASLt's algorithm for ", Describe(typical), " does not run for batch ",
                       product.batch, ": ", cublasLtGetStatusName(check), ", scratch ",
                       checked.workspaceSize, " of ", ProductStream::kLibraryBytes, " bytes"));
    }
    found_.emplace(product, std::move(lt));
    return absl::OkStatus();
  }

  void Multiply(const ProductStream& on, const BatchedProduct& product, float alpha, float beta,
                const ProductOperands& operands) override {
    const LtProduct& lt = Found(product);
    // C's layout is D's, so D's address stands for a C that is not read.
    const void* const c = beta == 0 ? operands.d : operands.c;
    KAON_LT_CHECK(cublasLtMatmul(handle_, lt.operation, &alpha, operands.b, lt.b, operands.a, lt.a,
                                 &beta, c, lt.d, operands.d, lt.d, &lt.algorithm,
                                 on.library_scratch(), ProductStream::kLibraryBytes,
                                 static_cast<cudaStream_t>(on.stream.native())));
  }

  std::string library() const override {
    const size_t version = cublasLtGetVersion();
    return absl::StrCat("cublasLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

  std::string Algorithms() const override {
    MutexLock lock(mutex_);
    std::string text = absl::StrCat(library(), ", ", multiprocessors_, " multiprocessors\n");
    for (const auto& [product, algorithm] : algorithms_) {
      const absl::string_view bytes(reinterpret_cast<const char*>(&algorithm), sizeof(algorithm));
      absl::StrAppend(&text, Describe(product), ": ", absl::BytesToHexString(bytes), "\n");
    }
    return text;
  }

  std::string TriangleSupport() const override {
    constexpr int kMostAlgorithms = 256;
    int ids[kMostAlgorithms];
    int count = 0;
    KAON_LT_CHECK(cublasLtMatmulAlgoGetIds(handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
                                           CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, kMostAlgorithms,
                                           ids, &count));
    std::string with;
    int supporting = 0;
    for (int i = 0; i < count; ++i) {
      cublasLtMatmulAlgo_t algorithm = {};
      KAON_LT_CHECK(cublasLtMatmulAlgoInit(handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
                                           CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, ids[i],
                                           &algorithm));
      int32_t supports = 0;
      size_t written = 0;
      KAON_LT_CHECK(cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_UPLO_SUPPORT,
                                                      &supports, sizeof(supports), &written));
      if (supports == 0) continue;
      ++supporting;
      absl::StrAppend(&with, with.empty() ? ": " : ", ", ids[i]);
    }
    return absl::StrCat(supporting, " of ", count, " bf16 algorithms", with);
  }

 private:
  static BatchedProduct Typical(BatchedProduct product) {
    product.batch = TypicalBatch(product.rows, product.cols);
    return product;
  }

  // Asks the heuristic for the algorithm that it expects to be the fastest.
  absl::StatusOr<cublasLtMatmulAlgo_t> AlgorithmOfLocked(const BatchedProduct& typical)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = algorithms_.find(typical);
    if (found != algorithms_.end()) return found->second;
    const std::unique_ptr<LtProduct> lt = HandlesOf(typical, multiprocessors_);
    cublasLtMatmulHeuristicResult_t best = {};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, lt->operation, lt->b, lt->a, lt->d, lt->d, preference_, 1, &best, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0 || best.state != CUBLAS_STATUS_SUCCESS) {
      return absl::UnimplementedError(absl::StrCat(
          "cuBLASLt has no algorithm for ", Describe(typical), ": ",
          cublasLtGetStatusName(status == CUBLAS_STATUS_SUCCESS ? best.state : status)));
    }
    return algorithms_.emplace(typical, best.algo).first->second;
  }

  const LtProduct& Found(const BatchedProduct& product) const {
    MutexLock lock(mutex_);
    const auto found = found_.find(product);
    CHECK(found != found_.end()) << "Find was not called for " << Describe(product);
    return *found->second;
  }

  const cublasLtHandle_t handle_;
  const int multiprocessors_;
  const cublasLtMatmulPreference_t preference_;

  mutable Mutex mutex_;
  // The key is the product with its typical batch.
  std::map<BatchedProduct, cublasLtMatmulAlgo_t> algorithms_ ABSL_GUARDED_BY(mutex_);
  // Entries are never removed, so that references to them stay valid.
  std::map<BatchedProduct, std::unique_ptr<LtProduct>> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> Products::Create(const Device& device) {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return absl::FailedPreconditionError(absl::StrCat("cuBLASLt ", cublasLtGetVersion(),
                                                      " refuses ", device.properties().name, ": ",
                                                      cublasLtGetStatusName(status)));
  }
  return std::make_unique<LtGemm>(handle, device.properties().multiprocessors);
}

}  // namespace kaon::kernels::cuda
