#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "tests/gpu/device_matrices.h"
#include "tests/gpu/sections.h"
#include "tests/gpu/twins.h"

namespace kaon::gpu_check {
namespace {

using kernels::DType;
using kernels::cuda::OwnedMemory;

// Operands on the host: small whole numbers, so that every sum is exact in fp32.
struct HostMatrices {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch = 0;

  int64_t pitch() const { return cols + 8 - cols % 8; }
  int64_t stride() const { return (rows + 1) * pitch(); }
  static int Value(int64_t x, int64_t y, int64_t z) {
    return static_cast<int>((x * 7 + y * 13 + z * 5 + x * y) % 9) - 4;
  }
  // Returns 0 outside of the matrix, as the copy engine does.
  int At(int64_t x, int64_t y, int64_t z) const {
    return x < cols && y < rows && z < batch ? Value(x, y, z) : 0;
  }
  std::vector<std::byte> Bytes(DType dtype) const {
    // The padding is NaN, which no box may contain.
    std::vector<std::byte> bytes(batch * stride() * 2, std::byte{0xff});
    for (int64_t z = 0; z < batch; ++z) {
      for (int64_t y = 0; y < rows; ++y) {
        for (int64_t x = 0; x < cols; ++x) {
          const float value = static_cast<float>(Value(x, y, z));
          kernels::FromFloat(dtype, absl::MakeConstSpan(&value, 1),
                             &bytes[(z * stride() + y * pitch() + x) * 2]);
        }
      }
    }
    return bytes;
  }
};

struct Case {
  std::string name;
  DType dtype = DType::kBFloat16;
  HostMatrices a;
  HostMatrices b;
  TwinBox a_boxes[kTwinRounds];
  TwinBox b_boxes[kTwinRounds];
  bool adds = false;
};

// Returns the bytes of a box with the 128-byte swizzle: chunk c of row r lies at chunk c ^ r % 8.
std::vector<std::byte> BoxOf(const HostMatrices& matrices, DType dtype, const TwinBox& box,
                             int rows) {
  std::vector<std::byte> bytes(rows * kTwinInner * 2);
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < kTwinInner; ++col) {
      const float value = static_cast<float>(matrices.At(box.x + col, box.y + row, box.z));
      const int chunk = col / 8 ^ row % 8;
      kernels::FromFloat(dtype, absl::MakeConstSpan(&value, 1),
                         &bytes[(row * kTwinInner + chunk * 8 + col % 8) * 2]);
    }
  }
  return bytes;
}

// Returns the sum of element (row, col) over all rounds.
float SumOf(const Case& c, int row, int col, float first) {
  float sum = c.adds ? first : 0;
  for (int round = 0; round < kTwinRounds; ++round) {
    const TwinBox& a = c.a_boxes[round];
    const TwinBox& b = c.b_boxes[round];
    for (int k = 0; k < kTwinInner; ++k) {
      sum += static_cast<float>(c.a.At(a.x + k, a.y + row, a.z) * c.b.At(b.x + k, b.y + col, b.z));
    }
  }
  return sum;
}

// Returns the place of element (row, col) among the registers of all threads.
int PlaceOf(int row, int col) {
  const int thread = row / 16 * 32 + row % 8 * 4 + col % 8 / 2;
  return thread * 128 + col / 8 * 4 + row % 16 / 8 * 2 + col % 2;
}

void Check(DeviceStream& stream, const Case& c, Results& results) {
  const auto allocate = [&](uint64_t bytes) {
    auto memory = OwnedMemory::OnDevice(stream.device(), bytes);
    CHECK(memory.ok()) << memory.status();
    return *std::move(memory);
  };
  const std::vector<std::byte> a = c.a.Bytes(c.dtype);
  const std::vector<std::byte> b = c.b.Bytes(c.dtype);
  const OwnedMemory on_device[] = {allocate(a.size()), allocate(b.size()),
                                   allocate(kTwinRounds * kTwinBoxBytes),
                                   allocate(kTwinThreads * 128 * sizeof(float))};
  std::vector<float> first(kTwinThreads * 128);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i % 100);
  std::vector<std::byte> first_bytes(first.size() * sizeof(float));
  std::memcpy(first_bytes.data(), first.data(), first_bytes.size());
  stream.Upload(a, on_device[0].data());
  stream.Upload(b, on_device[1].data());
  stream.Upload(first_bytes, on_device[3].data());

  TwinRun run;
  run.dtype = c.dtype;
  run.a = {on_device[0].data(), c.a.rows, c.a.cols, c.a.pitch(), c.a.batch, c.a.stride()};
  run.b = {on_device[1].data(), c.b.rows, c.b.cols, c.b.pitch(), c.b.batch, c.b.stride()};
  std::copy(std::begin(c.a_boxes), std::end(c.a_boxes), run.a_boxes);
  std::copy(std::begin(c.b_boxes), std::end(c.b_boxes), run.b_boxes);
  run.boxes = reinterpret_cast<unsigned char*>(on_device[2].data());
  run.sums = reinterpret_cast<float*>(on_device[3].data());
  run.adds = c.adds;
  RunTwins(stream.stream(), run);

  std::vector<std::byte> expected;
  for (int round = 0; round < kTwinRounds; ++round) {
    for (const auto& box : {BoxOf(c.a, c.dtype, c.a_boxes[round], kTwinRows),
                            BoxOf(c.b, c.dtype, c.b_boxes[round], kTwinCols)}) {
      expected.insert(expected.end(), box.begin(), box.end());
    }
  }
  results.Check(c.name + " boxes", stream.Download(run.boxes, expected.size()) == expected,
                "shared memory differs from the twin's layout");
  const std::vector<std::byte> sum_bytes = stream.Download(run.sums, first_bytes.size());
  int wrong = 0;
  for (int row = 0; row < kTwinRows; ++row) {
    for (int col = 0; col < kTwinCols; ++col) {
      float sum = 0;
      const int place = PlaceOf(row, col);
      std::memcpy(&sum, &sum_bytes[place * sizeof(float)], sizeof(float));
      wrong += sum != SumOf(c, row, col, first[place]);
    }
  }
  results.Check(c.name + " sums", wrong == 0, absl::StrCat(wrong, " sums are wrong"));
}

}  // namespace

void CheckTwins(const Machine& machine, Results& results) {
  const kernels::cuda::DeviceProperties& properties = machine.device.properties();
  if (properties.major != 9 || properties.minor != 0) {
    return results.Skip("",
                        absl::StrCat("the instructions are those of compute capability 9.0, ",
                                     "this device has ", properties.major, ".", properties.minor));
  }
  auto stream = DeviceStream::Create(machine.device);
  if (!stream.ok()) return results.Check("", false, std::string(stream.status().message()));
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const std::string suffix = absl::StrCat(" ", std::string(kernels::NameOf(dtype)));
    const HostMatrices whole = {256, 192, 2};
    Check(**stream,
          {"whole boxes" + suffix,
           dtype,
           whole,
           whole,
           {{0, 0, 0}, {64, 128, 1}, {128, 64, 0}},
           {{0, 0, 1}, {64, 0, 0}, {128, 0, 1}}},
          results);
    const HostMatrices ragged = {100, 75, 3};
    Check(**stream,
          {"boxes past the edge" + suffix,
           dtype,
           ragged,
           ragged,
           {{64, 64, 2}, {0, 64, 1}, {64, 0, 0}},
           {{0, 0, 2}, {64, 64, 0}, {64, 96, 1}},
           true},
          results);
  }
}

}  // namespace kaon::gpu_check
