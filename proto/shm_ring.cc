#include "proto/shm_ring.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::proto {

namespace {

size_t RecordBytes(size_t body_bytes) {
  constexpr size_t kUnit = sizeof(RingHeader);
  return kUnit + (body_bytes + kUnit - 1) / kUnit * kUnit;
}

// Reads shared memory exactly once; the compiler may not repeat the read.
template <typename T>
T LoadOnce(const std::byte* from) {
  return __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_RELAXED);
}

}  // namespace

absl::StatusOr<std::byte*> RingWriter::Reserve(size_t most) {
  const uint64_t needed = RecordBytes(most);
  if (memory_.capacity - (written_ - read_) < needed) {
    const uint64_t read = memory_.places->read.load(std::memory_order_acquire);
    // Unsigned arithmetic also detects a position that moved back.
    if (read - read_ > written_ - read_) {
      return absl::InvalidArgumentError(absl::StrCat("shared memory: ", read - read_,
                                                     " bytes were read, expecting at most ",
                                                     written_ - read_));
    }
    read_ = read;
    if (memory_.capacity - (written_ - read_) < needed) return nullptr;
  }
  return memory_.bytes + (written_ & (memory_.capacity - 1)) + sizeof(RingHeader);
}

void RingWriter::Commit(const RingHeader& header) {
  std::memcpy(memory_.bytes + (written_ & (memory_.capacity - 1)), &header, sizeof(header));
  written_ += RecordBytes(header.size);
  memory_.places->written.store(written_, std::memory_order_release);
}

absl::StatusOr<std::optional<RingReader::Record>> RingReader::Peek() const {
  const uint64_t waiting = memory_.places->written.load(std::memory_order_acquire) - read_;
  if (waiting == 0) return std::nullopt;
  if (waiting > memory_.capacity || waiting % sizeof(RingHeader) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: ", waiting, " bytes were written, expecting a multiple of ",
                     sizeof(RingHeader), ", at most ", memory_.capacity));
  }
  const std::byte* at = memory_.bytes + (read_ & (memory_.capacity - 1));
  Record record;
  record.header.size = LoadOnce<uint32_t>(at);
  record.header.kind = LoadOnce<uint32_t>(at + 4);
  record.header.call = LoadOnce<uint32_t>(at + 8);
  record.header.code = LoadOnce<uint32_t>(at + 12);
  if (record.header.size > kMaxRingBody || RecordBytes(record.header.size) > waiting) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: a record of ", record.header.size, " bytes among ", waiting,
                     " that were written, expecting at most ", kMaxRingBody));
  }
  record.body = absl::MakeConstSpan(at + sizeof(RingHeader), record.header.size);
  return record;
}

void RingReader::Advance(const Record& record) {
  read_ += RecordBytes(record.header.size);
  memory_.places->read.store(read_, std::memory_order_release);
}

absl::StatusOr<std::optional<RingReader::Record>> RingReader::Take(std::vector<std::byte>* memory) {
  KAON_ASSIGN_OR_RETURN(std::optional<Record> record, Peek());
  if (!record.has_value()) return std::nullopt;
  // Grows only: shrinking and growing would clear it with zeros each time.
  if (memory->size() < record->body.size()) memory->resize(record->body.size());
  // An empty body may be null, which memcpy does not accept.
  if (!record->body.empty()) {
    std::memcpy(memory->data(), record->body.data(), record->body.size());
  }
  Advance(*record);
  record->body = absl::MakeConstSpan(memory->data(), record->body.size());
  return record;
}

}  // namespace kaon::proto
