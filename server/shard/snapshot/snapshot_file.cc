#include "server/shard/snapshot/snapshot_file.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::shard {

namespace {

using checkpoint::FromLittleEndian64;
using checkpoint::LittleEndian64;

constexpr absl::string_view kFirstLine = "kaon snapshot 2\n";
// Start of the first line in every version.
constexpr absl::string_view kAnyVersion = "kaon snapshot ";
// Number of 8-byte fields: directory id, ballot, shard, num_shards, newest generation, and the
// lengths of both messages.
constexpr size_t kNumbers = 10;
constexpr size_t kMessagesAt = kFirstLine.size() + kNumbers * 8;

absl::Status Damaged(absl::string_view file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("snapshot ", file, ": ", what));
}

absl::Status CheckFirstLine(absl::string_view file, absl::string_view bytes) {
  // The first line is whole or cut off; the length check detects the latter.
  if (absl::StartsWith(bytes, kFirstLine) || absl::StartsWith(kFirstLine, bytes)) {
    return absl::OkStatus();
  }
  const absl::string_view line = bytes.substr(0, std::min(bytes.find('\n'), size_t{40}));
  const std::string what =
      absl::StrCat("begins with the line '", proto::Excerpt(line), "', expecting '",
                   kFirstLine.substr(0, kFirstLine.size() - 1), "'");
  if (absl::StartsWith(bytes, kAnyVersion)) {
    return absl::FailedPreconditionError(absl::StrCat("snapshot ", file, ": ", what));
  }
  return Damaged(file, what);
}

template <typename Message>
absl::Status Parse(absl::string_view file, absl::string_view bytes, Message& message) {
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Damaged(file, absl::StrCat("a message of ", bytes.size(), " bytes cannot be parsed"));
  }
  const size_t with_unknown = message.ByteSizeLong();
  message.DiscardUnknownFields();
  if (message.ByteSizeLong() == with_unknown) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("snapshot ", file, ": has ", with_unknown - message.ByteSizeLong(),
                   " bytes of fields that this version does not know"));
}

absl::Status CheckFacts(absl::string_view file, const Snapshot& snapshot) {
  const v1::ShardState& state = snapshot.facts.state;
  const v1::CheckpointPart& part = snapshot.part;
  const auto equal = [&](absl::string_view what, uint64_t of_part, uint64_t of_state) {
    return of_part == of_state ? absl::OkStatus()
                               : Damaged(file, absl::StrCat("its tensors are of ", what, " ",
                                                            of_part, ", the rest of ", of_state));
  };
  KAON_RETURN_IF_ERROR(equal("shard", part.shard(), snapshot.facts.shard));
  KAON_RETURN_IF_ERROR(equal("num_shards", part.num_shards(), snapshot.facts.num_shards));
  KAON_RETURN_IF_ERROR(equal("timeline", part.timeline(), state.timeline()));
  KAON_RETURN_IF_ERROR(equal("position", part.position(), state.applied_position()));
  KAON_RETURN_IF_ERROR(
      equal("position", part.position(), state.applied_record().plan().position()));
  const bool has_state = state.weights_loaded() || IsOfNoJob(state);
  if (has_state && snapshot.facts.shard < snapshot.facts.num_shards) {
    return absl::OkStatus();
  }
  return Damaged(
      file, absl::StrCat("is of shard ", snapshot.facts.shard, " of ", snapshot.facts.num_shards,
                         ", weights_loaded ", state.weights_loaded()));
}

// Checks that the tensors are those of the shard's parameters, each whole and once.
absl::Status CheckTensors(absl::string_view file, const Snapshot& snapshot) {
  const v1::RegisterBody& registration = snapshot.facts.state.registration();
  if (IsOfNoJob(snapshot.facts.state)) {
    const int tensors = snapshot.part.tensors_size();
    if (tensors == 0) return absl::OkStatus();
    return Damaged(file, absl::StrCat("has ", tensors, " tensors of a deleted job"));
  }
  const absl::StatusOr<std::vector<checkpoint::StateTensor>> all =
      checkpoint::StateTensorsOf(registration);
  if (!all.ok()) return Damaged(file, all.status().message());
  std::map<std::pair<uint32_t, std::string>, const checkpoint::StateTensor*> missing;
  for (const checkpoint::StateTensor& tensor : *all) {
    const auto id = static_cast<int>(tensor.parameter_id);
    if (registration.placement().parameters(id).shard() != snapshot.facts.shard) continue;
    missing[{tensor.parameter_id, tensor.role}] = &tensor;
  }
  for (const v1::CheckpointTensor& tensor : snapshot.part.tensors()) {
    const std::string name = absl::StrCat("parameter_id ", tensor.parameter_id(), " ",
                                          checkpoint::Quoted(tensor.role()));
    const auto found = missing.find({tensor.parameter_id(), tensor.role()});
    if (found == missing.end()) {
      return Damaged(file, absl::StrCat(name, " is not of this shard, or there twice"));
    }
    const checkpoint::StateTensor& expected = *found->second;
    if (tensor.dtype() != expected.dtype || tensor.momentum_form() != expected.momentum_form ||
        tensor.first_element() != 0 || tensor.num_elements() != expected.num_elements) {
      return Damaged(file,
                     absl::StrCat(name, " is kept as ", tensor.ShortDebugString(), ", expecting ",
                                  expected.num_elements, " elements of dtype ", expected.dtype));
    }
    const auto index = static_cast<int>(tensor.file());
    const uint64_t size = checkpoint::StateBytes(tensor.dtype(), tensor.num_elements());
    if (index >= snapshot.part.files_size() || size > snapshot.part.files(index).size() ||
        tensor.offset() > snapshot.part.files(index).size() - size) {
      return Damaged(file, absl::StrCat(name, " lies at ", tensor.offset(), " of file ", index,
                                        ", beyond its end"));
    }
    missing.erase(found);
  }
  if (missing.empty()) return absl::OkStatus();
  return Damaged(file, absl::StrCat("parameter_id ", missing.begin()->first.first, " ",
                                    missing.begin()->first.second, " is not in it"));
}

}  // namespace

std::string FormatSnapshot(const Snapshot& snapshot) {
  const AgreementSnapshot& facts = snapshot.facts;
  const std::string state = facts.state.SerializeAsString();
  const std::string part = snapshot.part.SerializeAsString();
  std::string bytes(kFirstLine);
  for (const uint64_t number :
       {snapshot.directory.high, snapshot.directory.low, facts.promised.counter(),
        facts.promised.incarnation_high(), facts.promised.incarnation_low(), uint64_t{facts.shard},
        uint64_t{facts.num_shards}, facts.newest_generation, uint64_t{state.size()},
        uint64_t{part.size()}}) {
    bytes += LittleEndian64(number);
  }
  bytes += state;
  bytes += part;
  return bytes + checkpoint::Sha256(bytes);
}

absl::StatusOr<Snapshot> ParseSnapshot(absl::string_view file, absl::string_view bytes) {
  KAON_RETURN_IF_ERROR(CheckFirstLine(file, bytes));
  if (bytes.size() < kMessagesAt + checkpoint::kSha256Bytes) {
    return Damaged(file, absl::StrCat("is ", bytes.size(), " bytes long, expecting at least ",
                                      kMessagesAt + checkpoint::kSha256Bytes));
  }
  const size_t end = bytes.size() - checkpoint::kSha256Bytes;
  const std::string sha256 = checkpoint::Sha256(bytes.substr(0, end));
  if (bytes.substr(end) != sha256) {
    return Damaged(file, absl::StrCat("has SHA-256 ", absl::BytesToHexString(sha256),
                                      ", expecting ", absl::BytesToHexString(bytes.substr(end))));
  }
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < kNumbers; ++i) {
    numbers.push_back(FromLittleEndian64(bytes.substr(kFirstLine.size() + i * 8)));
  }
  const uint64_t held = end - kMessagesAt;
  if (numbers[8] > held || numbers[9] != held - numbers[8]) {
    return Damaged(file, absl::StrCat("its messages are ", numbers[8], " and ", numbers[9],
                                      " bytes long, there are ", held));
  }
  Snapshot snapshot;
  snapshot.directory = {numbers[0], numbers[1]};
  snapshot.facts.promised.set_counter(numbers[2]);
  snapshot.facts.promised.set_incarnation_high(numbers[3]);
  snapshot.facts.promised.set_incarnation_low(numbers[4]);
  snapshot.facts.shard = static_cast<uint32_t>(numbers[5]);
  snapshot.facts.num_shards = static_cast<uint32_t>(numbers[6]);
  snapshot.facts.newest_generation = numbers[7];
  KAON_RETURN_IF_ERROR(Parse(file, bytes.substr(kMessagesAt, numbers[8]), snapshot.facts.state));
  KAON_RETURN_IF_ERROR(
      Parse(file, bytes.substr(kMessagesAt + numbers[8], numbers[9]), snapshot.part));
  KAON_RETURN_IF_ERROR(CheckFacts(file, snapshot));
  KAON_RETURN_IF_ERROR(CheckTensors(file, snapshot));
  return snapshot;
}

}  // namespace kaon::shard
