#include "tests/crash/client_log.h"

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/wire/record_conversion.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"

namespace kaon::crash {

namespace {

using Json = nlohmann::json;
using simulation::Operation;

constexpr uint32_t kMaxRanks = 4;
// More than a training has.
constexpr uint64_t kMaxTimelines = 1000;

int64_t NowNanos() { return absl::ToUnixNanos(SteadyNow()); }

std::vector<float> FloatsOf(const std::string& hex) {
  const std::string bytes = absl::HexStringToBytes(hex);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Json ToJson(const kaon::StepRecord& record) {
  Json norms = Json::array();
  for (const kaon::GroupNorm& norm : record.norms) {
    Json& one = norms.emplace_back(
        Json{{"group", norm.group}, {"exempt", norm.exempt}, {"clip_factor", norm.clip_factor}});
    if (norm.norm.has_value()) one["norm"] = *norm.norm;
  }
  return {{"applied", record.applied},
          {"reason", record.reason},
          {"ranks", record.ranks},
          {"norms", std::move(norms)},
          {"loss", record.loss.value_or(-1)},
          {"next_loss_scale", record.next_loss_scale},
          {"applied_updates", record.applied_updates},
          {"state_digest", record.state_digest}};
}

kaon::StepRecord FromJson(uint64_t step, const Json& json) {
  kaon::StepRecord record;
  record.step = step;
  record.applied = json.at("applied");
  record.reason = json.at("reason");
  record.ranks = json.at("ranks").get<std::vector<uint32_t>>();
  for (const Json& one : json.at("norms")) {
    kaon::GroupNorm& norm = record.norms.emplace_back();
    norm.group = one.at("group");
    norm.exempt = one.at("exempt");
    norm.clip_factor = one.at("clip_factor");
    if (one.contains("norm")) norm.norm = one.at("norm").get<double>();
  }
  record.loss = json.at("loss").get<double>();
  record.next_loss_scale = json.at("next_loss_scale");
  record.applied_updates = json.at("applied_updates");
  record.state_digest = json.at("state_digest");
  return record;
}

// One log, as it is read.
class Reader {
 public:
  explicit Reader(ClientHistory& history) : history_(history) {}

  void Add(const Json& line) {
    const std::string type = line.at("type");
    const uint64_t call = line.at("call");
    const absl::Time at = absl::FromUnixNanos(line.at("at"));
    if (type == "call") {
      Operation operation;
      operation.called = at;
      operation.timeline = line.at("timeline");
      operation.step = line.at("step");
      operation.rank = line.at("rank");
      // All processes load the same weights.
      operation.process_nonce =
          operation.step == 0 ? 0 : NonceOf(line.at("life"), operation.timeline);
      operation.kind = line.at("what") == "pull" ? Operation::Kind::kPull : Operation::Kind::kStep;
      called_[call] = history_.operations.size();
      history_.operations.push_back(std::move(operation));
    } else if (type == "step") {
      const size_t number = called_.at(call);
      history_.operations.at(number).outcome = Operation::Outcome::kDone;
      history_.operations.at(number).returned = at;
      history_.told.push_back(
          {number, FromJson(line.at("step"), line.at("record")), line.at("told")});
    } else {
      AddPulled(line, history_.operations.at(called_.at(call)), at);
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
      history_.operations.push_back(operation);
      ++operation.parameter_id;
    }
  }

  ClientHistory& history_;
  std::map<uint64_t, size_t> called_;
};

}  // namespace

double TokenWeight(uint32_t rank, uint64_t life) {
  return static_cast<double>(life * kMaxRanks + rank + 1);
}

uint64_t LifeOf(uint32_t rank, double token_weight) {
  return (static_cast<uint64_t>(token_weight) - rank - 1) / kMaxRanks;
}

uint64_t NonceOf(uint64_t life, uint64_t timeline) { return life * kMaxTimelines + timeline - 1; }

uint64_t LifeOfNonce(uint64_t nonce) { return nonce / kMaxTimelines; }

double LossOf(uint32_t rank, uint64_t life) { return std::sqrt(TokenWeight(rank, life)); }

std::string Describe(const kaon::StepRecord& record) {
  std::string text = absl::StrFormat(
      "step %d applied %d '%s' of %s, state %016x, loss %a, next loss scale %a, updates %d",
      record.step, record.applied, record.reason, absl::StrJoin(record.ranks, ","),
      record.state_digest, record.loss.value_or(-1), record.next_loss_scale,
      record.applied_updates);
  for (const kaon::GroupNorm& norm : record.norms) {
    absl::StrAppendFormat(&text, ", %s %a clip %a", norm.group, norm.norm.value_or(-1),
                          norm.clip_factor);
  }
  return text;
}

ClientLog::ClientLog(const std::string& path, uint32_t rank, uint64_t life)
    : rank_(rank), life_(life), file_(path, std::ios::app) {}

void ClientLog::Append(const std::string& line) { file_ << line + "\n" << std::flush; }

uint64_t ClientLog::Call(const char* what, uint64_t timeline, uint64_t step) {
  const Json line = {{"type", "call"}, {"call", ++calls_}, {"what", what},  {"timeline", timeline},
                     {"step", step},   {"rank", rank_},    {"life", life_}, {"at", NowNanos()}};
  Append(line.dump());
  return calls_;
}

uint64_t ClientLog::CallStep(uint64_t timeline, uint64_t step) {
  return Call("begin", timeline, step);
}

void ClientLog::ReturnStep(uint64_t call, const kaon::StepRecord& record) {
  const Json line = {{"type", "step"},           {"call", call},
                     {"step", record.step},      {"at", NowNanos()},
                     {"record", ToJson(record)}, {"told", Describe(record)}};
  Append(line.dump());
}

uint64_t ClientLog::CallPull(uint64_t timeline, uint64_t step) {
  return Call("pull", timeline, step);
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

absl::Status ReadClientLog(const std::string& path, ClientHistory& history) {
  std::ifstream file(path);
  Reader reader(history);
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

void ExplainTold(const simulation::Log& log, ClientHistory& history) {
  for (const ClientHistory::Told& told : history.told) {
    Operation& operation = history.operations[told.operation];
    v1::StepRecord record;
    for (const auto& [key, one] : log) {
      if (key.timeline != operation.timeline || !one.plan().has_step()) continue;
      if (one.plan().step().step() == told.record.step) record = one;
    }
    const std::string expected = Describe(client::ToPublic(record));
    if (expected != told.text) {
      record.mutable_decision()->set_reason(
          absl::StrCat("told: ", told.text, "; expected: ", expected));
    }
    operation.record = record.SerializeAsString();
  }
}

}  // namespace kaon::crash
