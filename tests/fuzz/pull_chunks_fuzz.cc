// Input: the answers of a shard to a pull, cut in pieces as by a transport. Chunks are accepted or
// rejected, and nothing outside their tensors is written. A pull is complete only if every element
// arrived (protocol.md section 4).
#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "client/transport/pull_assembler.h"
#include "proto/tensor_stream.h"

namespace kaon::client {
namespace {

// Value before and after each of the three parameters; no pull may overwrite it.
constexpr float kGuard = 12345.5f;
constexpr size_t kSizes[] = {3, 1, 40};

class Pulled {
 public:
  Pulled() {
    v1::PullRequest request;
    request.set_dtype(v1::DTYPE_FLOAT32);
    std::vector<MutableTensorView> views;
    for (size_t id = 0; id < std::size(kSizes); ++id) {
      tensors_.emplace_back(kSizes[id] + 2, 0.0f);
      tensors_.back().front() = tensors_.back().back() = kGuard;
    }
    for (size_t id = 0; id < std::size(kSizes); ++id) {
      request.add_parameter_ids(static_cast<uint32_t>(id));
      views.push_back({&tensors_[id][1], kSizes[id], DType::kFloat32});
    }
    assembler_.emplace(request, std::move(views));
  }
  ~Pulled() {
    for (const std::vector<float>& tensor : tensors_) {
      CHECK_EQ(tensor.front(), kGuard);
      CHECK_EQ(tensor.back(), kGuard);
    }
    CHECK_EQ(assembler_->CheckComplete().ok(), accepted_ == 3 + 1 + 40) << accepted_;
  }

  // `checksum`: replace the checksum of the message by that of its payload.
  void Accept(absl::string_view message, size_t cut, bool checksum) {
    std::vector<absl::Span<const std::byte>> slices;
    for (size_t at = 0; at < message.size(); at += cut) {
      slices.emplace_back(reinterpret_cast<const std::byte*>(message.data()) + at,
                          std::min(cut, message.size() - at));
    }
    const auto decoded = proto::DecodePush(slices);
    CHECK_EQ(decoded.ok(), v1::PushRequest().ParseFromString(std::string(message)));
    if (!decoded.ok()) return;
    const auto views = proto::SplitPayload(*decoded);
    CHECK(views.ok() || absl::IsInvalidArgument(views.status())) << views.status();
    if (!views.ok()) return;
    // Accept the chunks one by one, to know how much of a rejected message was accepted.
    for (const proto::ChunkView& view : views->chunks) {
      v1::TensorChunk chunk = *view.chunk;
      if (checksum) chunk.set_crc32c(proto::Crc32c(view.payload));
      const absl::Status status = assembler_->Accept({{&chunk, view.payload}});
      if (!status.ok()) {
        CHECK(absl::IsInternal(status) || absl::IsDataLoss(status)) << status;
        return;
      }
      accepted_ += chunk.num_elements();
    }
  }

 private:
  std::vector<std::vector<float>> tensors_;
  std::optional<PullAssembler> assembler_;
  uint64_t accepted_ = 0;
};

}  // namespace
}  // namespace kaon::client

// Input: a byte that says how to cut messages and whether to correct their checksums. Then
// messages, each after two bytes with its length.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 1) return 0;
  const size_t cut = 1 + bytes[0] / 2 % 64;
  const bool checksum = bytes[0] % 2 == 1;
  kaon::client::Pulled pulled;
  absl::string_view rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  while (rest.size() >= 2) {
    const size_t length = static_cast<uint8_t>(rest[0]) + 256 * static_cast<uint8_t>(rest[1]);
    rest.remove_prefix(2);
    pulled.Accept(rest.substr(0, length), cut, checksum);
    rest.remove_prefix(std::min(length, rest.size()));
  }
  return 0;
}
