// Input: operations on a ring in shared memory, also by an end that lies. The other end never reads
// outside the ring, and gets each record as it was when it was checked. If no end lies, records
// arrive as they were sent.
#include <glog/logging.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "proto/shm_region.h"
#include "proto/shm_ring.h"

namespace {

constexpr size_t kRingBytes = 4096;

// Reads operations: one byte each, followed by their arguments.
class Input {
 public:
  Input(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}
  bool empty() const { return at_ == size_; }
  uint8_t Byte() { return empty() ? 0 : bytes_[at_++]; }
  uint32_t Word() {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t{Byte()} << 8 * i;
    return word;
  }
  uint64_t Long() {
    const uint64_t low = Word();
    return low | static_cast<uint64_t>(Word()) << 32;
  }

 private:
  const uint8_t* bytes_;
  size_t size_;
  size_t at_ = 0;
};

class Ring {
 public:
  Ring(kaon::proto::RingMemory memory) : memory_(memory), writer_(memory), reader_(memory) {
    memory.places->written = 0;
    memory.places->read = 0;
  }

  void Write(size_t size, uint8_t fill) {
    const auto to = writer_.Reserve(size);
    CHECK(to.ok() || !honest_) << to.status();
    if (!to.ok() || *to == nullptr) return;
    CHECK_GE(*to, memory_.bytes);
    CHECK_LE(*to + size, memory_.bytes + 2 * memory_.capacity);
    std::memset(*to, fill, size);
    writer_.Commit({static_cast<uint32_t>(size), fill, 0, 0});
    sent_.push_back(std::string(size, static_cast<char>(fill)));
  }

  void Read() {
    std::vector<std::byte> memory;
    const auto record = reader_.Take(&memory);
    CHECK(record.ok() || !honest_) << record.status();
    if (!record.ok()) {
      CHECK(absl::IsInvalidArgument(record.status())) << record.status();
      return;
    }
    if (!record->has_value()) return;
    const absl::Span<const std::byte> body = (*record)->body;
    CHECK_EQ(body.size(), (*record)->header.size);
    CHECK_LE(body.size(), memory_.capacity);
    CHECK(body.data() == memory.data());
    if (!honest_) return;
    CHECK(!sent_.empty());
    CHECK(sent_.front() == std::string(reinterpret_cast<const char*>(body.data()), body.size()));
    sent_.pop_front();
  }

  // Changes a record between the check and the use of it.
  void PeekAndChange(uint32_t size) {
    const auto record = reader_.Peek();
    if (!record.ok() || !record->has_value()) return;
    honest_ = false;
    // The header is 16 bytes before the body.
    std::memcpy(const_cast<std::byte*>((*record)->body.data()) - 16, &size, sizeof(size));
    const std::byte* end = (*record)->body.data() + (*record)->body.size();
    CHECK_LE(end, memory_.bytes + 2 * memory_.capacity);
    reader_.Advance(**record);
  }

  void Lie(bool about_written, uint64_t place) {
    honest_ = false;
    (about_written ? memory_.places->written : memory_.places->read) = place;
  }

  void Scribble(size_t at, uint32_t word) {
    honest_ = false;
    std::memcpy(memory_.bytes + at % memory_.capacity, &word, sizeof(word));
  }

 private:
  const kaon::proto::RingMemory memory_;
  kaon::proto::RingWriter writer_;
  kaon::proto::RingReader reader_;
  std::deque<std::string> sent_;
  // Only the two ends have written, and both followed the protocol.
  bool honest_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const std::unique_ptr<kaon::proto::ShmRegion> region =
      kaon::proto::ShmRegion::Create(kRingBytes).value();
  Ring ring(region->requests());
  Input input(bytes, size);
  while (!input.empty()) {
    switch (input.Byte() % 6) {
      case 0: {
        const size_t length = input.Byte() * 16 + input.Byte() % 32;
        ring.Write(length, input.Byte());
        break;
      }
      case 1:
        ring.Read();
        break;
      case 2:
        ring.PeekAndChange(input.Word());
        break;
      case 3:
        ring.Lie(true, input.Long());
        break;
      case 4:
        ring.Lie(false, input.Long());
        break;
      default: {
        const size_t at = input.Byte() * 16 + input.Byte() % 16;
        ring.Scribble(at, input.Word());
      }
    }
  }
  return 0;
}
