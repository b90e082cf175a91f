#include "tests/crash/client_log.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/record_conversion.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"

namespace kaon::crash {

namespace {

using Json = nlohmann::json;
using simulation::Operation;

constexpr uint32_t kMaxRanks = 4;

int64_t NowNanos() { return absl::ToUnixNanos(SteadyNow()); }

// All that a client is told of a step, each bit of it.
std::string Describe(const kaon::StepRecord& record) {
  std::string text =
      absl::StrFormat("step %d applied %d '%s' of %s, state %016x, next loss scale %a, updates %d",
                      record.step, record.applied, record.reason, absl::StrJoin(record.ranks, ","),
                      record.state_digest, record.next_loss_scale, record.applied_updates);
  for (const kaon::GroupNorm& norm : record.norms) {
    absl::StrAppendFormat(&text, ", %s %a clip %a", norm.group, norm.norm.value_or(-1),
                          norm.clip_factor);
  }
  return text;
}

std::vector<float> FloatsOf(const std::string& hex) {
  const std::string bytes = absl::HexStringToBytes(hex);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// What the client says it was told, as the log's record of that step.
std::string RecordOf(const simulation::Log& log, uint64_t step, const std::string& told) {
  v1::StepRecord record;
  for (const auto& [key, one] : log) {
    if (one.plan().has_step() && one.plan().step().step() == step) record = one;
  }
  const std::string expected = Describe(client::ToPublic(record));
  if (expected != told) {
    record.mutable_decision()->set_reason(absl::StrCat("told: ", told, "; expected: ", expected));
  }
  return record.SerializeAsString();
}

// One log, as it is read.
class Reader {
 public:
  Reader(const simulation::Log& log, std::deque<Operation>& operations)
      : log_(log), operations_(operations) {}

  void Add(const Json& line) {
    const std::string type = line.at("type");
    const uint64_t call = line.at("call");
    const absl::Time at = absl::FromUnixNanos(line.at("at"));
    if (type == "call") {
      Operation operation;
      operation.called = at;
      operation.step = line.at("step");
      operation.rank = line.at("rank");
      // Nobody loads other weights than another.
      operation.process_nonce = operation.step == 0 ? 0 : line.at("life").get<uint64_t>();
      operation.kind = line.at("what") == "pull" ? Operation::Kind::kPull : Operation::Kind::kStep;
      called_[call] = operations_.size();
      operations_.push_back(std::move(operation));
    } else if (type == "step") {
      Operation& operation = operations_.at(called_.at(call));
      operation.outcome = Operation::Outcome::kDone;
      operation.returned = at;
      operation.record = RecordOf(log_, line.at("step"), line.at("told"));
    } else {
      AddPulled(line, operations_.at(called_.at(call)), at);
    }
  }

 private:
  // One operation for each parameter.
  void AddPulled(const Json& line, Operation operation, absl::Time at) {
    operation.outcome = Operation::Outcome::kDone;
    operation.returned = at;
    operation.parameter_id = 0;
    for (const std::string hex : line.at("weights")) {
      operation.weights = FloatsOf(hex);
      operations_.push_back(operation);
      ++operation.parameter_id;
    }
  }

  const simulation::Log& log_;
  std::deque<Operation>& operations_;
  std::map<uint64_t, size_t> called_;
};

}  // namespace

double TokenWeight(uint32_t rank, uint64_t life) {
  return static_cast<double>(life * kMaxRanks + rank + 1);
}

uint64_t LifeOf(uint32_t rank, double token_weight) {
  return (static_cast<uint64_t>(token_weight) - rank - 1) / kMaxRanks;
}

ClientLog::ClientLog(const std::string& path, uint32_t rank, uint64_t life)
    : rank_(rank), life_(life), file_(path, std::ios::app) {}

void ClientLog::Append(const std::string& line) { file_ << line + "\n" << std::flush; }

uint64_t ClientLog::CallStep(uint64_t step) {
  const Json line = {{"type", "call"}, {"call", ++calls_}, {"what", "begin"}, {"step", step},
                     {"rank", rank_},  {"life", life_},    {"at", NowNanos()}};
  Append(line.dump());
  return calls_;
}

void ClientLog::ReturnStep(uint64_t call, const kaon::StepRecord& record) {
  const Json line = {{"type", "step"},
                     {"call", call},
                     {"step", record.step},
                     {"at", NowNanos()},
                     {"told", Describe(record)}};
  Append(line.dump());
}

uint64_t ClientLog::CallPull(uint64_t step) {
  const Json line = {{"type", "call"}, {"call", ++calls_}, {"what", "pull"},  {"step", step},
                     {"rank", rank_},  {"life", life_},    {"at", NowNanos()}};
  Append(line.dump());
  return calls_;
}

void ClientLog::ReturnPull(uint64_t call, uint64_t step,
                           absl::Span<const std::vector<float>> weights) {
  Json line = {{"type", "pulled"}, {"call", call}, {"step", step}, {"at", NowNanos()}};
  for (const std::vector<float>& values : weights) {
    line["weights"].push_back(absl::BytesToHexString(absl::string_view(
        reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))));
  }
  Append(line.dump());
}

absl::Status ReadClientLog(const std::string& path, const simulation::Log& log,
                           std::deque<Operation>& operations) {
  std::ifstream file(path);
  Reader reader(log, operations);
  uint64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    // Cut off by a kill -9.
    if (file.eof()) break;
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_discarded()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": line ", number, " is no JSON"));
    }
    reader.Add(line);
  }
  return absl::OkStatus();
}

}  // namespace kaon::crash
