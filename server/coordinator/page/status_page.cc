#include "server/coordinator/page/status_page.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/coordinator/page/curve_section.h"
#include "server/coordinator/page/history_page.h"
#include "server/coordinator/page/parameter_page.h"
#include "server/monitor/sample_csv.h"

namespace kaon::coordinator {

namespace {

// The first page waits so long for its values.
constexpr absl::Duration kFirstValues = absl::Seconds(3);
// A stream tells so often that it lives, which also ends one whose reader has gone.
constexpr absl::Duration kStreamPause = absl::Seconds(1);
constexpr absl::Duration kQueryPatience = absl::Seconds(5);
constexpr int kMaxWaiting = 4;
constexpr uint64_t kDefaultSteps = 1000;
constexpr uint32_t kRowsOfCsvPage = 10000;

std::string Argument(const metrics::HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

uint64_t NumberOr(const std::string& text, uint64_t otherwise) {
  uint64_t number = 0;
  return proto::ParseDecimal(text, &number) ? number : otherwise;
}

metrics::HttpResponse Csv(const std::string& name, std::string body) {
  metrics::HttpResponse response;
  response.content_type = "text/csv; charset=utf-8";
  response.headers.push_back(
      {"Content-Disposition", absl::StrCat("attachment; filename=\"", name, "\"")});
  response.body = std::move(body);
  return response;
}

metrics::HttpResponse ProblemOf(const absl::Status& problem) {
  metrics::HttpResponse response;
  response.status = absl::IsInvalidArgument(problem) ? 400 : absl::IsNotFound(problem) ? 404 : 503;
  response.body = absl::StrCat(problem.ToString(), "\n");
  return response;
}

// Remembers what one stream has sent: the hash of each section.
struct Sent {
  uint64_t version = 0;
  std::map<std::string, size_t> hashes;
};

// Returns the messages of the sections that have changed.
std::string Messages(const std::vector<Section>& sections, Sent& sent) {
  std::string text;
  for (const Section& section : sections) {
    const size_t hash = std::hash<std::string>()(section.html);
    if (const auto [at, is_new] = sent.hashes.emplace(section.id, hash); !is_new) {
      if (at->second == hash) continue;
      at->second = hash;
    }
    const nlohmann::json message = {{"id", section.id}, {"html", section.html}};
    absl::StrAppend(&text,
                    "data: ", message.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                    "\n\n");
  }
  return text;
}

}  // namespace

std::vector<metrics::HttpRoute> StatusPage::Routes() {
  const auto route = [this](const char* path, metrics::HttpResponse (StatusPage::*answer)(
                                                  const metrics::HttpRequest&)) {
    return metrics::HttpRoute{path, true, [this, answer](const metrics::HttpRequest& request) {
                                return (this->*answer)(request);
                              }};
  };
  return {route("/", &StatusPage::Overview),
          route("/events", &StatusPage::Events),
          route("/steps.csv", &StatusPage::StepsCsv),
          route("/parameters", &StatusPage::Parameters),
          route("/parameters.csv", &StatusPage::ParametersCsv),
          route("/parameter", &StatusPage::Parameter),
          route("/parameter.csv", &StatusPage::ParameterCsv)};
}

Range StatusPage::RangeOf(const metrics::HttpRequest& request) const {
  const std::string last = Argument(request, "last");
  const std::string from = Argument(request, "from");
  const std::string to = Argument(request, "to");
  if (!from.empty() || !to.empty()) {
    Range range{NumberOr(from, 0), NumberOr(to, UINT64_MAX), ""};
    if (range.from > range.to) std::swap(range.from, range.to);
    range.query = absl::StrCat("?from=", range.from, "&to=", range.to);
    return range;
  }
  if (last == "all") return {0, UINT64_MAX, "?last=all"};
  const uint64_t steps = std::max<uint64_t>(1, NumberOr(last, kDefaultSteps));
  const uint64_t newest = feed_->curves().newest_step();
  return {newest > steps ? newest - steps + 1 : 0, UINT64_MAX, absl::StrCat("?last=", steps)};
}

void StatusPage::AwaitFresh() {
  feed_->Touch();
  uint64_t version = 0;
  feed_->AwaitNext(&version, SteadyNow());
  if (feed_->Age() > kOldFacts) feed_->AwaitNext(&version, SteadyNow() + kFirstValues);
}

metrics::HttpResponse StatusPage::Overview(const metrics::HttpRequest& request) {
  AwaitFresh();
  const std::shared_ptr<const PageFacts> data = feed_->Get();
  PageFacts nothing;
  nothing.problem = absl::UnavailableError("the coordinator has not answered yet");
  const PageFacts& shown = data == nullptr ? nothing : *data;
  Range range = RangeOf(request);
  const std::shared_ptr<const Curves> curves = feed_->curves().Read(range.from, range.to);
  // The form has the range that was asked for.
  if (Argument(request, "from").empty()) range.from = 0;
  const std::string& job = shown.status.job();
  return PageResponse(absl::StrCat("Kaon", job.empty() ? "" : ": ", job), job,
                      OverviewHtml(Sections(shown, *curves), range, feed_->Age()));
}

metrics::HttpResponse StatusPage::Events(const metrics::HttpRequest& request) {
  metrics::HttpResponse response;
  response.content_type = "text/event-stream; charset=utf-8";
  response.stream = [this, request, sent = Sent()]() mutable {
    feed_->Touch();
    const bool changed = feed_->AwaitNext(&sent.version, SteadyNow() + kStreamPause);
    const std::shared_ptr<const PageFacts> data = feed_->Get();
    std::vector<Section> sections = {{"age", AgeText(feed_->Age())}};
    if (changed && data != nullptr) {
      const Range range = RangeOf(request);
      for (Section& section : Sections(*data, *feed_->curves().Read(range.from, range.to))) {
        sections.push_back(std::move(section));
      }
    }
    const std::string messages = Messages(sections, sent);
    return messages.empty() ? std::string(": nothing new\n\n") : messages;
  };
  return response;
}

metrics::HttpResponse StatusPage::StepsCsv(const metrics::HttpRequest& request) {
  AwaitFresh();
  const Range range = RangeOf(request);
  return Csv("steps.csv", CurvesCsv(*feed_->curves().Read(range.from, range.to)));
}

template <typename Response>
absl::StatusOr<Response> StatusPage::Await(
    const std::function<void(ClusterQueries::Done<Response>)>& ask) {
  using Answer = absl::StatusOr<Response>;
  // Shared with an answer that may come too late.
  struct Waiting {
    Mutex mu;
    CondVar came;
    std::optional<Answer> answer ABSL_GUARDED_BY(mu);
  };
  if (++waiting_ > kMaxWaiting) {
    --waiting_;
    return absl::ResourceExhaustedError("too many tables are being read; try again");
  }
  const auto waiting = std::make_shared<Waiting>();
  ask([waiting](Answer answer) {
    MutexLock lock(waiting->mu);
    waiting->answer = std::move(answer);
    waiting->came.NotifyAll();
  });
  const absl::Time deadline = SteadyNow() + kQueryPatience;
  MutexLock lock(waiting->mu);
  while (!waiting->answer.has_value() && SteadyNow() < deadline) {
    waiting->came.WaitFor(waiting->mu, deadline - SteadyNow());
  }
  --waiting_;
  if (!waiting->answer.has_value()) return absl::DeadlineExceededError("the shards do not answer");
  return *std::move(waiting->answer);
}

absl::StatusOr<v1::ListParametersResponse> StatusPage::List(
    const v1::ListParametersRequest& request) {
  return Await<v1::ListParametersResponse>(
      [this, &request](auto done) { queries_.Parameters(request, std::move(done)); });
}

absl::StatusOr<StatusPage::NamedHistory> StatusPage::HistoryOf(
    const metrics::HttpRequest& request) {
  v1::ListParametersRequest list;
  uint64_t id = 0;
  if (!proto::ParseDecimal(Argument(request, "id"), &id)) {
    return absl::InvalidArgumentError("id must be the number of a parameter");
  }
  // A page of the table begins with the parameter of that id.
  list.set_page_token(absl::StrCat(id));
  list.set_page_size(1);
  const absl::StatusOr<v1::ListParametersResponse> rows = List(list);
  const bool beyond = absl::IsInvalidArgument(rows.status());
  if (!rows.ok() && !beyond) return rows.status();
  if (beyond || rows->parameters().empty()) {
    return absl::NotFoundError(absl::StrCat("there is no parameter ", id));
  }
  v1::GetParameterHistoryRequest ask;
  ask.set_parameter(rows->parameters(0).spec().name());
  KAON_ASSIGN_OR_RETURN(v1::GetParameterHistoryResponse history,
                        Await<v1::GetParameterHistoryResponse>([this, &ask](auto done) {
                          queries_.ParameterHistory(ask, std::move(done));
                        }));
  return NamedHistory{ask.parameter(), std::move(history)};
}

metrics::HttpResponse StatusPage::Parameter(const metrics::HttpRequest& request) {
  const absl::StatusOr<NamedHistory> named = HistoryOf(request);
  const std::shared_ptr<const PageFacts> data = feed_->Get();
  return PageResponse("Kaon: parameter", data == nullptr ? "" : data->status.job(),
                      named.ok() ? HistoryHtml(named->name, named->history)
                                 : HistoryProblemHtml(named.status().ToString()));
}

metrics::HttpResponse StatusPage::ParameterCsv(const metrics::HttpRequest& request) {
  const absl::StatusOr<NamedHistory> named = HistoryOf(request);
  if (!named.ok()) return ProblemOf(named.status());
  return Csv("parameter.csv", monitor::SampleCsv(named->history.history()));
}

metrics::HttpResponse StatusPage::Parameters(const metrics::HttpRequest& request) {
  v1::ListParametersRequest list;
  const std::string search = Argument(request, "q");
  list.set_name_regex(search);
  list.set_page_size(kParametersOfPage);
  list.set_page_token(Argument(request, "first"));
  const absl::StatusOr<v1::ListParametersResponse> page = List(list);
  const std::shared_ptr<const PageFacts> data = feed_->Get();
  return PageResponse("Kaon: parameters", data == nullptr ? "" : data->status.job(),
                      page.ok() ? ParametersHtml(*page, search, list.page_token())
                                : ParametersProblemHtml(page.status().ToString(), search));
}

metrics::HttpResponse StatusPage::ParametersCsv(const metrics::HttpRequest& request) {
  v1::ListParametersRequest list;
  list.set_name_regex(Argument(request, "q"));
  list.set_page_size(kRowsOfCsvPage);
  std::string csv = ParametersCsvHeader();
  do {
    const absl::StatusOr<v1::ListParametersResponse> page = List(list);
    if (!page.ok()) return ProblemOf(page.status());
    csv += ParametersCsvRows(*page);
    list.set_page_token(page->next_page_token());
  } while (!list.page_token().empty());
  return Csv("parameters.csv", std::move(csv));
}

}  // namespace kaon::coordinator
