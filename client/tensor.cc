#include "client/kaon/tensor.h"

namespace kaon {

const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "unknown";
}

}  // namespace kaon
