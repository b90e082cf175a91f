#include "kernels/cuda/products/symmetric_product.h"

#include <glog/logging.h>

#include <algorithm>

namespace kaon::kernels::cuda {
namespace {

void CheckAligned(const SymmetricMatrices& m, const char* name) {
  CHECK(m.data != nullptr && reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.pitch % 8 == 0 &&
        m.stride % 8 == 0)
      << "matrix " << name << " at " << m.data << ", pitch " << m.pitch << ", stride " << m.stride
      << ": rows must start on 16-byte boundaries; pad them";
}

}  // namespace

bool SymmetricProductSupported(const DeviceProperties& properties) {
  return properties.major == 9 && properties.minor == 0 &&
         properties.shared_bytes_per_block >= kSymmetricSharedBytes;
}

SymmetricProduct::SymmetricProduct(Device& device, const SymmetricShape& shape)
    : device_(device),
      shape_(shape),
      schedule_(MakeSymmetricSchedule(shape.n, shape.k, shape.batch,
                                      device.properties().multiprocessors, shape.cuts_last_wave)) {}

SymmetricProduct::~SymmetricProduct() {
  if (table_ != nullptr) device_.Free(table_);
}

absl::StatusOr<std::unique_ptr<SymmetricProduct>> SymmetricProduct::Create(
    Device& device, const SymmetricShape& shape) {
  CHECK(SymmetricProductSupported(device.properties())) << device.properties().name;
  CHECK(shape.dtype == DType::kBFloat16 || shape.dtype == DType::kFloat16) << NameOf(shape.dtype);
  // Not make_unique: the constructor is private.
  std::unique_ptr<SymmetricProduct> product(new SymmetricProduct(device, shape));
  const SymmetricSchedule& schedule = product->schedule_;
  const uint64_t bytes = (schedule.work.size() + schedule.cut.size()) * sizeof(SymmetricWork);
  const absl::StatusOr<void*> table = device.Allocate(bytes);
  if (!table.ok()) return table.status();
  product->table_ = static_cast<SymmetricWork*>(*table);
  const absl::StatusOr<void*> pinned = device.AllocatePinned(bytes);
  if (!pinned.ok()) return pinned.status();
  auto* const host = static_cast<SymmetricWork*>(*pinned);
  std::copy(schedule.cut.begin(), schedule.cut.end(),
            std::copy(schedule.work.begin(), schedule.work.end(), host));
  const std::unique_ptr<Stream> stream = device.NewStream();
  stream->CopyIn(host, *table, bytes);
  stream->Synchronize();
  device.FreePinned(*pinned);
  return product;
}

void SymmetricProduct::Run(Stream& stream, const SymmetricOperands& operands) const {
  CheckAligned(operands.a, "A");
  CheckAligned(operands.b, "B");
  CheckAligned(operands.d, "D");
  if (operands.beta != 0) CheckAligned(operands.c, "C");
  CHECK(workspace_bytes() == 0 || operands.workspace != nullptr);
  SymmetricLaunch launch;
  launch.n = shape_.n;
  launch.k = shape_.k;
  launch.batch = shape_.batch;
  launch.dtype = shape_.dtype;
  launch.a = operands.a;
  launch.b = operands.b;
  launch.c = operands.c;
  launch.d = operands.d;
  launch.alpha = operands.alpha;
  launch.beta = operands.beta;
  launch.work = table_;
  launch.num_work = static_cast<int>(schedule_.work.size());
  launch.cut = table_ + schedule_.work.size();
  launch.num_cut = static_cast<int>(schedule_.cut.size());
  launch.parts = schedule_.parts;
  launch.workspace = static_cast<float*>(operands.workspace);
  launch.multiprocessors = device_.properties().multiprocessors;
  LaunchSymmetricProduct(stream, launch);
}

}  // namespace kaon::kernels::cuda
