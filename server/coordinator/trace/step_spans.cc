#include "server/coordinator/trace/step_spans.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::coordinator {

namespace {

constexpr uint64_t kNanosOfMicro = 1000;

std::string IdOf(uint64_t number) {
  std::string id(sizeof(number), '\0');
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<char>(number >> (8 * i));
  return id;
}

class SpanMaker {
 public:
  SpanMaker(std::string trace_id, const std::function<uint64_t()>& random)
      : trace_id_(std::move(trace_id)), random_(random) {}

  // `begin` and `end` are microseconds since 1970.
  TraceSpan Make(std::string name, const std::string& parent_id, uint64_t begin, uint64_t end) {
    TraceSpan span;
    span.set_trace_id(trace_id_);
    // An id of zero is not valid.
    span.set_span_id(IdOf(random_() | 1));
    span.set_parent_span_id(parent_id);
    span.set_name(std::move(name));
    span.set_kind(opentelemetry::proto::collector::trace::v1::SPAN_KIND_INTERNAL);
    span.set_start_time_unix_nano(begin * kNanosOfMicro);
    span.set_end_time_unix_nano(std::max(begin, end) * kNanosOfMicro);
    return span;
  }

 private:
  const std::string trace_id_;
  const std::function<uint64_t()>& random_;
};

void Add(TraceSpan& span, const char* key, int64_t value) {
  auto& attribute = *span.add_attributes();
  attribute.set_key(key);
  attribute.mutable_value()->set_int_value(value);
}

void Add(TraceSpan& span, const char* key, double value) {
  auto& attribute = *span.add_attributes();
  attribute.set_key(key);
  attribute.mutable_value()->set_double_value(value);
}

void Add(TraceSpan& span, const char* key, std::string value) {
  auto& attribute = *span.add_attributes();
  attribute.set_key(key);
  attribute.mutable_value()->set_string_value(std::move(value));
}

// The step's phases on one shard.
struct ShardPart {
  uint32_t shard = 0;
  const v1::StepPhases* step = nullptr;

  uint64_t begin() const { return step->accepted_unix_microseconds(); }
  uint64_t end() const { return begin() + step->total_microseconds(); }
};

std::vector<ShardPart> PartsOf(const v1::StepRecord& record,
                               const google::protobuf::RepeatedPtrField<v1::ShardPhases>& phases) {
  std::vector<ShardPart> parts;
  for (const v1::ShardPhases& shard : phases) {
    for (const v1::StepPhases& step : shard.steps()) {
      const bool is_it = step.position() == record.plan().position();
      if (is_it && step.accepted_unix_microseconds() > 0) parts.push_back({shard.shard(), &step});
    }
  }
  return parts;
}

void AddFacts(const v1::StepRecord& record, TraceSpan& span) {
  const v1::StepDecision& decision = record.decision();
  Add(span, "kaon.job", record.plan().job());
  Add(span, "kaon.step", static_cast<int64_t>(record.plan().step().step()));
  Add(span, "kaon.position", static_cast<int64_t>(record.plan().position()));
  Add(span, "kaon.outcome",
      std::string(decision.outcome() == v1::OUTCOME_APPLY ? "apply" : "skip"));
  if (decision.has_loss()) Add(span, "kaon.loss", decision.loss());
}

void AddPart(const ShardPart& part, const std::string& parent_id, SpanMaker& maker,
             std::vector<TraceSpan>& spans) {
  TraceSpan shard =
      maker.Make(absl::StrCat("shard ", part.shard), parent_id, part.begin(), part.end());
  Add(shard, "kaon.shard", static_cast<int64_t>(part.shard));
  const std::string id = shard.span_id();
  spans.push_back(std::move(shard));
  for (const v1::Phase& phase : part.step->phases()) {
    TraceSpan span = maker.Make(phase.name(), id, part.begin() + phase.begin_microseconds(),
                                part.begin() + phase.end_microseconds());
    Add(span, "kaon.shard", static_cast<int64_t>(part.shard));
    Add(span, "kaon.busy_seconds", static_cast<double>(phase.busy_microseconds()) * 1e-6);
    if (phase.has_hidden_microseconds()) {
      Add(span, "kaon.hidden_seconds", static_cast<double>(phase.hidden_microseconds()) * 1e-6);
    }
    spans.push_back(std::move(span));
  }
}

}  // namespace

std::vector<TraceSpan> SpansOf(const v1::StepRecord& record,
                               const google::protobuf::RepeatedPtrField<v1::ShardPhases>& phases,
                               const std::optional<monitor::TraceContext>& parent,
                               const std::function<uint64_t()>& random) {
  const std::vector<ShardPart> parts = PartsOf(record, phases);
  if (record.plan().step().kind() != v1::STEP_KIND_TRAIN || parts.empty()) return {};
  uint64_t begin = parts[0].begin();
  uint64_t end = parts[0].end();
  for (const ShardPart& part : parts) {
    begin = std::min(begin, part.begin());
    end = std::max(end, part.end());
  }
  SpanMaker maker(parent.has_value() ? parent->trace_id : IdOf(random() | 1) + IdOf(random()),
                  random);
  std::vector<TraceSpan> spans;
  spans.push_back(maker.Make("step", parent.has_value() ? parent->span_id : "", begin, end));
  AddFacts(record, spans[0]);
  const std::string id = spans[0].span_id();
  for (const ShardPart& part : parts) AddPart(part, id, maker, spans);
  return spans;
}

}  // namespace kaon::coordinator
