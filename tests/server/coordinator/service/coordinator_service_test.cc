#include "server/coordinator/service/coordinator_service.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "proto/ballot.h"
#include "server/config/log_facts.h"
#include "tests/server/coordinator/machine/test_job.h"
#include "tests/server/coordinator/server_fixture.h"
#include "tests/testing/captured_log.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using CoordinatorServiceTest = ServerFixture;

TEST_F(CoordinatorServiceTest, RegistersTrainsAndDescribesAJob) {
  Train();
  v1::BeginStepResponse begun;
  ASSERT_TRUE(Begin(BeginRequest(0, 1), &begun).ok());
  ASSERT_TRUE(Begin(BeginRequest(1, 1), &begun).ok());
  std::vector<v1::StepEvent> events;
  ASSERT_TRUE(Await(AwaitRequest(1, 1), &events).ok());
  EXPECT_EQ(events.back().decided().plan().step().step(), 1);
  v1::JobDescription job;
  ASSERT_TRUE(GetJob("tiny", &job).ok());
  EXPECT_EQ(job.applied_step(), 1);
}

TEST_F(CoordinatorServiceTest, AwaitStreamsThePlanWhileShardsAreNotPrepared) {
  Train(1);
  shards_[1]->set_votes(false);
  v1::BeginStepResponse begun;
  ASSERT_TRUE(Begin(BeginRequest(0, 1), &begun).ok());
  grpc::ClientContext context;
  const auto reader = coordinator_->AwaitStep(&context, AwaitRequest(0, 1));
  v1::StepEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.planned().round(), 1);
  shards_[1]->set_votes(true);
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_decided());
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(CoordinatorServiceTest, ShutdownEndsWaitingCallsAsUnavailable) {
  Train(1);
  shards_[1]->set_votes(false);
  v1::BeginStepResponse begun;
  ASSERT_TRUE(Begin(BeginRequest(0, 1), &begun).ok());
  grpc::ClientContext context;
  const auto reader = coordinator_->AwaitStep(&context, AwaitRequest(0, 1));
  v1::StepEvent event;
  // Now it is open.
  ASSERT_TRUE(reader->Read(&event));
  server_->Shutdown();
  EXPECT_FALSE(reader->Read(&event));
  const auto code = reader->Finish().error_code();
  EXPECT_TRUE(code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::CANCELLED) << code;
}

TEST_F(CoordinatorServiceTest, RegistrationsWhoseCallersAreGoneDoNotWait) {
  WaitFor([](const v1::GetStatusResponse& status) { return status.holder(); });
  shards_[1]->set_votes(false);
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob();
  const auto register_until = [this, &request](absl::Time deadline) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    v1::JobDescription response;
    return coordinator_->RegisterJob(&context, request, &response).error_code();
  };
  const absl::Time deadline = absl::Now() + absl::Milliseconds(500);
  std::vector<std::future<grpc::StatusCode>> waiting;
  // 64 calls may wait.
  for (int i = 0; i < 64; ++i) {
    waiting.push_back(std::async(std::launch::async, register_until, deadline));
  }
  for (auto& call : waiting) EXPECT_EQ(call.get(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The server may hear of it later than the callers.
  const absl::Time patience = absl::Now() + absl::Seconds(10);
  grpc::StatusCode next;
  do {
    next = register_until(absl::Now() + absl::Milliseconds(500));
  } while (next == grpc::StatusCode::UNAVAILABLE && absl::Now() < patience);
  EXPECT_EQ(next, grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(CoordinatorServiceTest, ReplacementKnowsTheJob) {
  Train();
  server_->Shutdown();
  server_ = StartCoordinator();
  Use(*server_);
  WaitFor([](const v1::GetStatusResponse& status) { return status.holder(); });
  v1::JobDescription job;
  ASSERT_TRUE(GetJob("tiny", &job).ok());
  EXPECT_TRUE(job.weights_loaded());
  v1::BeginStepResponse begun;
  EXPECT_EQ(Begin(BeginRequest(0, 1), &begun).code(), absl::StatusCode::kAborted);
  v1::JoinWorkerRequest join = JoinRequest(0);
  *join.mutable_previous_attempt() = attempts_[0];
  v1::JoinWorkerResponse joined;
  ASSERT_TRUE(Join(join, &joined).ok());
  EXPECT_EQ(joined.attempt().SerializeAsString(), attempts_[0].SerializeAsString());
}

TEST_F(CoordinatorServiceTest, StandbyNamesTheHolderInTrailingMetadata) {
  const std::string holder = absl::StrCat("127.0.0.1:", server_->port());
  const auto standby = StartCoordinator(/*takeover_ms=*/600000);
  Use(*standby);
  WaitFor([](const v1::GetStatusResponse& status) { return !status.holder_address().empty(); });
  v1::JoinWorkerResponse joined;
  EXPECT_EQ(Join(JoinRequest(0), &joined).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(holder_, holder);
  v1::JobDescription job;
  EXPECT_EQ(GetJob("tiny", &job).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(holder_, holder);
  EXPECT_EQ(Counted()["call_refused.failed_precondition"], 2u);
}

TEST_F(CoordinatorServiceTest, LogsWhoJoinsAsWhom) {
  ASSERT_TRUE(Register(TestJob(2)).ok());
  const testing::CapturedLog log;
  v1::JoinWorkerResponse joined;
  ASSERT_TRUE(Join(JoinRequest(1), &joined).ok());
  EXPECT_THAT(log.text(),
              HasSubstr(absl::StrCat("a caller on this machine joins as rank 1, attempt ",
                                     proto::ToString(joined.attempt()))));
}

// Keeps the trace id of the line that a sink would write for each message.
class TraceIds : public google::LogSink {
 public:
  TraceIds() { google::AddLogSink(this); }
  ~TraceIds() override { google::RemoveLogSink(this); }

  using google::LogSink::send;
  void send(google::LogSeverity, const char*, const char*, int, const google::LogMessageTime&,
            const char*, size_t) override {
    MutexLock lock(mu_);
    seen_.insert(config::CurrentLogFacts().trace_id);
  }
  bool Has(const std::string& id) const {
    MutexLock lock(mu_);
    return seen_.count(id) > 0;
  }

 private:
  mutable Mutex mu_;
  std::set<std::string> seen_ ABSL_GUARDED_BY(mu_);
};

TEST_F(CoordinatorServiceTest, LinesOfAStepAndOfItsCallsHaveItsTraceId) {
  const std::string trace(32, 'a'), other(32, 'b');
  Train();
  v1::BeginStepRequest request = BeginRequest(0, 1);
  request.set_traceparent(absl::StrCat("00-", trace, "-b7ad6b7169203331-01"));
  v1::BeginStepResponse begun;
  ASSERT_TRUE(Begin(request, &begun).ok());
  EXPECT_EQ(config::CurrentLogFacts().trace_id, trace);
  // The refusals of one place have a line a second.
  const TraceIds logged;
  request.set_rank(9);
  request.set_traceparent(absl::StrCat("00-", other, "-b7ad6b7169203331-01"));
  const absl::Time patience = absl::Now() + absl::Seconds(10);
  do {
    ASSERT_FALSE(Begin(request, &begun).ok());
  } while (!logged.Has(other) && absl::Now() < patience);
  EXPECT_TRUE(logged.Has(other));
  EXPECT_EQ(config::CurrentLogFacts().trace_id, trace);
}

// Every malformed request: the code, the field it names, that it is counted, and nothing changed.

class MalformedRequestTest : public ServerFixture {
 protected:
  void SetUp() override {
    ServerFixture::SetUp();
    Train();
    before_ = Visible();
    counted_ = Counted();
  }

  void Expect(const absl::Status& status, absl::StatusCode code, const std::string& names) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.message(), HasSubstr(names));
    EXPECT_EQ(Visible(), before_) << status;
    ++counted_[absl::StrCat("call_refused.",
                            absl::AsciiStrToLower(absl::StatusCodeToString(code)))];
    EXPECT_EQ(Counted(), counted_) << status;
  }
  void ExpectInvalid(const absl::Status& status, const std::string& names) {
    Expect(status, absl::StatusCode::kInvalidArgument, names);
  }

  std::string before_;
  std::map<std::string, uint64_t> counted_;
};

TEST_F(MalformedRequestTest, RegisterJobNamesTheField) {
  ExpectInvalid(Register({}), "name");
  v1::JobDefinition job = TestJob();
  job.set_world_size(0);
  ExpectInvalid(Register(job), "world_size");
  job = TestJob();
  job.mutable_groups(1)->set_lr(-kInfinity);
  ExpectInvalid(Register(job), "lr");
  job = TestJob();
  job.mutable_parameters(1)->set_name("layer0.w");
  ExpectInvalid(Register(job), "layer0.w");
  job = TestJob();
  job.mutable_parameters(0)->set_shape(0, 0);
  ExpectInvalid(Register(job), "shape");
  job = TestJob();
  job.set_scalar_group("nobody");
  ExpectInvalid(Register(job), "nobody");
  job = TestJob();
  job.set_max_grad_norm(3);
  Expect(Register(job), absl::StatusCode::kAlreadyExists, "max_grad_norm");
}

TEST_F(MalformedRequestTest, GetJobNamesBothJobs) {
  v1::JobDescription job;
  Expect(GetJob("other", &job), absl::StatusCode::kNotFound,
         "job \"other\": the job here is \"tiny\"");
  Expect(GetJob("", &job), absl::StatusCode::kNotFound, "tiny");
}

TEST_F(MalformedRequestTest, JoinWorkerNamesTheField) {
  v1::JoinWorkerResponse response;
  v1::JoinWorkerRequest request = JoinRequest(2);
  ExpectInvalid(Join(request, &response), "rank is 2, must be 0 .. 1");
  request = JoinRequest(0);
  request.set_process_nonce(0);
  ExpectInvalid(Join(request, &response), "process_nonce is 0");
  request = JoinRequest(0);
  request.set_job("other");
  Expect(Join(request, &response), absl::StatusCode::kNotFound, "other");
  request = JoinRequest(0);
  request.set_process_nonce(5);
  *request.mutable_previous_attempt() = v1::Attempt();
  Expect(Join(request, &response), absl::StatusCode::kAborted, "rank 0 was taken");
  request.mutable_previous_attempt()->mutable_ballot()->set_counter(1u << 30);
  Expect(Join(request, &response), absl::StatusCode::kUnavailable, "previous_attempt");
}

TEST_F(MalformedRequestTest, BeginStepNamesTheField) {
  const auto begin = [this](const std::function<void(v1::BeginStepRequest&)>& spoil) {
    v1::BeginStepRequest request = BeginRequest(0, 1);
    spoil(request);
    v1::BeginStepResponse response;
    return Begin(request, &response);
  };
  for (double weight : {0.0, -1.0, kInfinity, std::nan(""), 2199023255552.0}) {
    ExpectInvalid(begin([&](auto& r) { r.set_token_weight(weight); }), "token_weight");
  }
  ExpectInvalid(begin([](auto& r) { r.set_micro_batches(1025); }), "micro_batches is 1025");
  for (double multiplier : {-1.0, kInfinity, std::nan("")}) {
    ExpectInvalid(begin([&](auto& r) { r.set_learning_rate_multiplier(multiplier); }),
                  "learning_rate_multiplier");
  }
  ExpectInvalid(begin([](auto& r) { r.set_rank(7); }), "rank is 7");
  Expect(begin([](auto& r) { r.clear_attempt(); }), absl::StatusCode::kAborted, "join again");
  Expect(begin([](auto& r) { r.set_process_nonce(1); }), absl::StatusCode::kAborted, "rank 0");
  Expect(begin([](auto& r) { r.set_job("x"); }), absl::StatusCode::kNotFound, "\"x\"");
  Expect(begin([](auto& r) { r.set_step(9); }), absl::StatusCode::kUnavailable,
         "step 9 begun, expecting 1");
  ExpectInvalid(begin([this](auto& r) { r = BeginRequest(1, 0); }), "rank is 1, step 0");
  ExpectInvalid(begin([this](auto& r) {
                  r = BeginRequest(0, 0);
                  r.set_token_weight(2);
                }),
                "token_weight is 2, must be 1");
}

TEST_F(MalformedRequestTest, AwaitStepNamesTheField) {
  const auto await = [this](const std::function<void(v1::AwaitStepRequest&)>& spoil) {
    v1::AwaitStepRequest request = AwaitRequest(0, 1);
    spoil(request);
    std::vector<v1::StepEvent> events;
    return Await(request, &events);
  };
  ExpectInvalid(await([](auto& r) { r.set_rank(4); }), "rank is 4, must be 0 .. 1");
  Expect(await([](auto& r) { r.clear_attempt(); }), absl::StatusCode::kAborted, "join again");
  Expect(await([](auto& r) { r.set_job("x"); }), absl::StatusCode::kNotFound, "\"x\"");
  Expect(await([](auto& r) { r.set_step(5); }), absl::StatusCode::kUnavailable, "step 5 awaited");
}

TEST_F(MalformedRequestTest, DescribeJobNamesBothJobs) {
  v1::DescribeJobRequest request;
  request.set_job("other");
  v1::JobDescription response;
  Expect(Call(&v1::Admin::Stub::DescribeJob, *admin_, request, &response),
         absl::StatusCode::kNotFound, "job \"other\": the job here is \"tiny\"");
}

TEST_F(MalformedRequestTest, ListParametersNamesTheField) {
  const auto list = [this](const std::function<void(v1::ListParametersRequest&)>& spoil) {
    v1::ListParametersRequest request;
    spoil(request);
    v1::ListParametersResponse response;
    return Call(&v1::Admin::Stub::ListParameters, *admin_, request, &response);
  };
  ExpectInvalid(list([](auto& r) { r.set_page_size(10001); }), "page_size is 10001");
  ExpectInvalid(list([](auto& r) { r.set_page_token("-1"); }), "page_token is \"-1\"");
  ExpectInvalid(list([](auto& r) { r.set_page_token("6"); }), "page_token is 6");
  ExpectInvalid(list([](auto& r) { r.set_name_regex("("); }), "name_regex is \"(\"");
  ExpectInvalid(list([](auto& r) { r.set_name_regex(std::string(1025, 'a')); }), "name_regex has");
  Expect(list([](auto& r) { r.set_job("x"); }), absl::StatusCode::kNotFound, "\"x\"");
}

TEST_F(MalformedRequestTest, StepHistoryNamesTheField) {
  v1::StepHistoryRequest request;
  v1::StepHistoryResponse response;
  request.set_limit(1001);
  ExpectInvalid(Call(&v1::Admin::Stub::StepHistory, *admin_, request, &response), "limit is 1001");
  request.set_limit(1);
  request.set_job("x");
  Expect(Call(&v1::Admin::Stub::StepHistory, *admin_, request, &response),
         absl::StatusCode::kNotFound, "\"x\"");
}

}  // namespace
}  // namespace kaon::coordinator
