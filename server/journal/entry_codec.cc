#include "server/journal/entry_codec.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::journal {

namespace {

// Layout of a promise on disk.
struct PromiseBytes {
  uint64_t counter;
  uint64_t incarnation_high;
  uint64_t incarnation_low;
  uint32_t shard;
  uint32_t num_shards;
};
static_assert(sizeof(PromiseBytes) == 32);

EncodedEntry Encode(const PromiseRecord& promise) {
  const PromiseBytes bytes = {promise.ballot.counter(), promise.ballot.incarnation_high(),
                              promise.ballot.incarnation_low(), promise.shard, promise.num_shards};
  EncodedEntry encoded;
  encoded.header.type = FrameType::kPromise;
  encoded.message.assign(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  return encoded;
}

EncodedEntry Encode(const PrepareRecord& prepare) {
  EncodedEntry encoded;
  encoded.header.type = FrameType::kPrepare;
  encoded.header.generation = prepare.generation;
  v1::StepPlan plan;
  // Here the plan is data: if it does not parse, it is kept as it is, and messages cannot name its
  // position.
  if (plan.ParseFromString(prepare.prepared.plan())) {
    encoded.header.timeline = plan.timeline();
    encoded.header.position = plan.position();
  }
  encoded.message = prepare.prepared.SerializeAsString();
  return encoded;
}

EncodedEntry Encode(const DecisionRecord& decision) {
  EncodedEntry encoded;
  encoded.header.type = FrameType::kDecision;
  encoded.header.timeline = decision.record.plan().timeline();
  encoded.header.position = decision.record.plan().position();
  encoded.message = decision.record.SerializeAsString();
  return encoded;
}

absl::string_view BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

EncodedEntry Encode(const GradientSlice& slice) {
  EncodedEntry encoded;
  encoded.header.type = FrameType::kGradient;
  encoded.header.position = slice.position;
  encoded.header.generation = slice.generation;
  encoded.header.offset = slice.offset;
  encoded.header.parameter_id = slice.parameter_id;
  encoded.values = BytesOf(slice.values);
  return encoded;
}

absl::StatusOr<Entry> DecodePromise(const Frame& frame) {
  PromiseBytes bytes;
  if (frame.payload.size() != sizeof(bytes)) {
    return absl::DataLossError(
        absl::StrCat("promise of ", frame.payload.size(), " bytes, expecting ", sizeof(bytes)));
  }
  std::memcpy(&bytes, frame.payload.data(), sizeof(bytes));
  PromiseRecord promise;
  promise.ballot.set_counter(bytes.counter);
  promise.ballot.set_incarnation_high(bytes.incarnation_high);
  promise.ballot.set_incarnation_low(bytes.incarnation_low);
  promise.shard = bytes.shard;
  promise.num_shards = bytes.num_shards;
  return promise;
}

template <typename Message>
absl::Status Parse(absl::string_view what, absl::string_view payload, Message& message) {
  if (message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(what, " of ", payload.size(), " bytes is no message of its kind"));
}

}  // namespace

FrameHeader DescribeGradient(const GradientSlice& slice) {
  FrameHeader header;
  DescribePayload(BytesOf(slice.values), header);
  return header;
}

absl::StatusOr<EncodedEntry> EncodeEntry(const Entry& entry, const FrameHeader* described) {
  EncodedEntry encoded = std::visit([](const auto& one) { return Encode(one); }, entry);
  const size_t size = encoded.payload().size();
  const uint32_t limit =
      encoded.header.type == FrameType::kGradient ? kMaxGradientBytes : kMaxMessageBytes;
  if (size > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("journal entry of ", size, " bytes, at most ", limit));
  }
  if (described == nullptr) {
    DescribePayload(encoded.payload(), encoded.header);
  } else {
    encoded.header.payload_bytes = described->payload_bytes;
    encoded.header.payload_crc = described->payload_crc;
    encoded.header.zero_sectors = described->zero_sectors;
  }
  return encoded;
}

absl::StatusOr<Entry> DecodeEntry(const Frame& frame) {
  switch (frame.header.type) {
    case FrameType::kPromise:
      return DecodePromise(frame);
    case FrameType::kPrepare: {
      PrepareRecord prepare;
      prepare.generation = frame.header.generation;
      KAON_RETURN_IF_ERROR(Parse("PREPARE", frame.payload, prepare.prepared));
      return prepare;
    }
    case FrameType::kDecision: {
      DecisionRecord decision;
      KAON_RETURN_IF_ERROR(Parse("decision", frame.payload, decision.record));
      return decision;
    }
    case FrameType::kGradient: {
      const auto* values = reinterpret_cast<const float*>(frame.payload.data());
      return GradientSlice{frame.header.position, frame.header.generation,
                           frame.header.parameter_id, frame.header.offset,
                           absl::MakeConstSpan(values, frame.payload.size() / sizeof(float))};
    }
    case FrameType::kSegmentStart:
    case FrameType::kSegmentEnd:
    case FrameType::kDurable:
    case FrameType::kStart:
    case FrameType::kHistory:
      break;
  }
  return absl::DataLossError(
      absl::StrCat("frame type ", static_cast<uint16_t>(frame.header.type), " holds no entry"));
}

}  // namespace kaon::journal
