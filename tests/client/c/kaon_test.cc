// The C API over the real client: a trainer in C, errors, structs of other releases, callbacks,
// traces.
#include "client/kaon/kaon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "kernels/mutex.h"
#include "tests/client/c/c_trainer.h"
#include "tests/server/coordinator/trace/trace_collector.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

constexpr char kDefinition[] = R"({"name": "small", "world_size": 1, "scalar_group": "all",
    "groups": [{"name": "all", "rule": "RULE_SGD", "lr": 0.5}],
    "parameters": [{"name": "w", "shape": [4]}]})";

// Returns a struct of zeros with its size.
template <typename T>
T Sized() {
  T value = {};
  value.size = sizeof(T);
  return value;
}

// Returns code and message, and frees the status.
std::string TextOf(kaon_status* status) {
  const std::string text = std::to_string(kaon_status_code(status)) +
                           (kaon_status_retriable(status) ? "r " : " ") +
                           kaon_status_message(status);
  kaon_status_free(status);
  return text;
}

class KaonTest : public ::testing::Test {
 protected:
  explicit KaonTest(const std::string& traces_address = "")
      : cluster_(1, "", 0, traces_address), address_(cluster_.coordinator_address()) {
    options_.endpoints = address_.c_str();
  }
  ~KaonTest() override {
    kaon_worker_free(worker_);
    kaon_job_free(job_);
    kaon_client_free(client_);
  }

  // Connects, registers the job, joins as rank 0 and loads weights of ones.
  void Attach(const std::string& definition = kDefinition) {
    ASSERT_EQ(TextOf(kaon_client_connect(&options_, &client_)), "0 ");
    ASSERT_EQ(TextOf(kaon_client_register(client_, definition.c_str(), &job_)), "0 ");
    ASSERT_EQ(TextOf(kaon_job_join(job_, 0, &worker_)), "0 ");
    kaon_future* loaded = nullptr;
    ASSERT_EQ(TextOf(kaon_worker_load_weights(worker_, &weights_, 1, &loaded)), "0 ");
    ASSERT_EQ(TextOf(kaon_future_result(loaded, nullptr)), "0 ");
    kaon_future_free(loaded);
  }

  // The other rank never joins.
  void AttachWithTwoRanks() {
    std::string two_ranks = kDefinition;
    two_ranks.replace(two_ranks.find("\"world_size\": 1"), 15, "\"world_size\": 2");
    Attach(two_ranks);
  }

  kaon_step* Begin(uint64_t number, const char* traceparent = nullptr) {
    kaon_begin_options begin = KAON_BEGIN_OPTIONS_INIT;
    begin.step = number;
    begin.traceparent = traceparent;
    kaon_step* step = nullptr;
    EXPECT_EQ(TextOf(kaon_worker_begin(worker_, &begin, &step)), "0 ");
    return step;
  }

  testing::InProcessCluster cluster_;
  const std::string address_;
  kaon_client_options options_ = Sized<kaon_client_options>();
  std::vector<float> elements_ = std::vector<float>(4, 1);
  kaon_tensor weights_ = {elements_.data(), 4, KAON_FLOAT32, 0};
  kaon_client* client_ = nullptr;
  kaon_job* job_ = nullptr;
  kaon_worker* worker_ = nullptr;
};

TEST_F(KaonTest, TrainsFromC) { EXPECT_EQ(RunCTrainer(address_.c_str()), 0); }

TEST_F(KaonTest, NamesAnArgumentThatIsNull) {
  Attach();
  EXPECT_EQ(TextOf(kaon_client_connect(&options_, nullptr)), "3 client is NULL");
  EXPECT_EQ(TextOf(kaon_client_attach(client_, nullptr, &job_)), "3 name is NULL");
  EXPECT_EQ(TextOf(kaon_job_pull(nullptr, 0, nullptr, 0, nullptr)), "3 job is NULL");
  kaon_client_free(nullptr);
  kaon_step_free(nullptr);
  kaon_status_free(nullptr);
}

TEST_F(KaonTest, ReturnsCodeMessageAndWhetherToRetry) {
  Attach();
  kaon_job* other = nullptr;
  EXPECT_THAT(TextOf(kaon_client_attach(client_, "other", &other)), StartsWith("5 "));
  EXPECT_THAT(TextOf(kaon_client_register(client_, "{\"nmae\": 1}", &other)),
              AllOf(StartsWith("3 "), HasSubstr("nmae")));
  EXPECT_EQ(other, nullptr);
  options_.endpoints = "127.0.0.1:1";
  options_.call_deadline_ms = 200;
  kaon_client* nobody = nullptr;
  EXPECT_THAT(TextOf(kaon_client_connect(&options_, &nobody)),
              AllOf(HasSubstr("4r "), HasSubstr("127.0.0.1:1")));
}

TEST_F(KaonTest, RefusesTensorsThatItCannotMean) {
  Attach();
  kaon_future* future = nullptr;
  kaon_tensor tensor = weights_;
  tensor.dtype = 9;
  EXPECT_EQ(TextOf(kaon_job_pull(job_, 0, &tensor, 1, &future)),
            "3 parameter 0: dtype is 9, expecting 1 .. 3");
  EXPECT_EQ(TextOf(kaon_job_pull(job_, 0, nullptr, 1, &future)), "3 tensors is NULL");
  tensor = weights_;
  tensor.parameter_id = 1;
  EXPECT_EQ(TextOf(kaon_worker_load_weights(worker_, &tensor, 1, &future)),
            "3 tensor 0 is of parameter 1, expecting parameter 0");
  EXPECT_EQ(future, nullptr);
}

TEST_F(KaonTest, ReadsTheStructOfAnOlderRelease) {
  options_.size = offsetof(kaon_client_options, lanes);
  // The size says that the caller has no such field.
  options_.lanes = 1000;
  EXPECT_EQ(TextOf(kaon_client_connect(&options_, &client_)), "0 ");
}

TEST_F(KaonTest, RefusesAFieldOfALaterReleaseUnlessItIsZero) {
  struct {
    kaon_client_options known;
    uint64_t unknown;
  } later = {options_, 0};
  later.known.size = sizeof(later);
  EXPECT_EQ(TextOf(kaon_client_connect(&later.known, &client_)), "0 ");
  later.unknown = 1;
  kaon_client* refused = nullptr;
  EXPECT_THAT(TextOf(kaon_client_connect(&later.known, &refused)),
              HasSubstr("3 kaon_client_options has a field at byte"));
  later.known.size = 0;
  EXPECT_THAT(TextOf(kaon_client_connect(&later.known, &refused)), HasSubstr("set it to sizeof"));
}

TEST_F(KaonTest, WritesNoFieldBeyondTheCallersStruct) {
  Attach();
  kaon_progress progress;
  std::memset(&progress, 0x55, sizeof progress);
  progress.size = offsetof(kaon_progress, applied_step);
  ASSERT_EQ(TextOf(kaon_job_refresh(job_, &progress)), "0 ");
  EXPECT_EQ(progress.timeline, 1u);
  EXPECT_EQ(progress.applied_step, 0x5555555555555555u);
}

TEST_F(KaonTest, CallsBackOnceWhenTheStepIsDecided) {
  Attach();
  kaon_step* step = Begin(1);
  kaon_future* pushed = nullptr;
  ASSERT_EQ(TextOf(kaon_step_push(step, &weights_, 0, &pushed)), "0 ");
  EXPECT_EQ(TextOf(kaon_future_result(pushed, nullptr)), "0 ");
  kaon_future* decided = nullptr;
  ASSERT_EQ(TextOf(kaon_step_finish(step, nullptr, &decided)), "0 ");
  EXPECT_EQ(kaon_future_wait(decided, -1), 1);
  int calls = 0;
  // There is a result, so the call is now.
  EXPECT_EQ(TextOf(kaon_future_on_ready(
                decided, [](void* calls) { ++*static_cast<int*>(calls); }, &calls)),
            "0 ");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(TextOf(kaon_future_on_ready(decided, nullptr, nullptr)), "3 callback is NULL");
  auto record = Sized<kaon_step_record>();
  EXPECT_THAT(TextOf(kaon_future_result(pushed, &record)),
              HasSubstr("not one of kaon_step_finish"));
  kaon_future_free(decided);
  kaon_future_free(pushed);
  kaon_step_free(step);
}

TEST_F(KaonTest, CallsBackALaterResultThoughItsFutureIsFreed) {
  Attach();
  kaon_step* step = Begin(1);
  kaon_future* pushed = nullptr;
  // The push of the second micro-batch cannot end well: the step has one. The future is ready.
  EXPECT_EQ(TextOf(kaon_step_push(step, &weights_, 1, &pushed)), "0 ");
  EXPECT_THAT(TextOf(kaon_future_result(pushed, nullptr)), StartsWith("3 "));
  kaon_future_free(pushed);
  EXPECT_THAT(TextOf(kaon_step_push(step, &weights_, 1, nullptr)), StartsWith("3 "));
  kaon_future* pulled = nullptr;
  std::vector<float> into(4);
  const kaon_tensor target = {into.data(), 4, KAON_FLOAT32, 0};
  ASSERT_EQ(TextOf(kaon_job_pull(job_, 0, &target, 1, &pulled)), "0 ");
  struct Ended {
    Mutex mu;
    CondVar changed;
    bool called = false;
  } ended;
  const auto set_called = [](void* argument) {
    Ended& ended = *static_cast<Ended*>(argument);
    MutexLock lock(ended.mu);
    ended.called = true;
    ended.changed.NotifyAll();
  };
  ASSERT_EQ(TextOf(kaon_future_on_ready(pulled, set_called, &ended)), "0 ");
  kaon_future_free(pulled);
  MutexLock lock(ended.mu);
  while (!ended.called) ended.changed.Wait(ended.mu);
  EXPECT_EQ(into, elements_);
  kaon_step_free(step);
}

TEST_F(KaonTest, PushesAllTensorsUntilOneIsRefused) {
  Attach();
  kaon_step* step = Begin(1);
  EXPECT_EQ(TextOf(kaon_step_push_all(step, nullptr, 1, 0)), "3 tensors is NULL");
  EXPECT_EQ(TextOf(kaon_step_push_all(step, nullptr, 0, 0)), "0 ");
  const kaon_tensor twice[] = {weights_, weights_};
  EXPECT_THAT(TextOf(kaon_step_push_all(step, twice, 2, 0)), StartsWith("3 "));
  // The first one is queued.
  kaon_future* decided = nullptr;
  ASSERT_EQ(TextOf(kaon_step_finish(step, nullptr, &decided)), "0 ");
  EXPECT_EQ(TextOf(kaon_future_result(decided, nullptr)), "0 ");
  kaon_future_free(decided);
  kaon_step_free(step);
}

TEST_F(KaonTest, SaysWhyNoTensorMayBeOnADevice) {
  Attach();
  EXPECT_EQ(TextOf(kaon_client_check_device(client_, -1)), "0 ");
  const std::string why = "on device 0, expecting host memory: ClientOptions::nccl is empty";
  EXPECT_EQ(TextOf(kaon_client_check_device(client_, 0)), "3 " + why);
  kaon_step* step = Begin(1);
  EXPECT_EQ(TextOf(kaon_step_push_on_device(step, &weights_, 1, 0, 0, nullptr)),
            "3 parameter w: elements are " + why);
  // Nothing was queued.
  EXPECT_EQ(TextOf(kaon_step_push_on_device(step, &weights_, 1, 0, -1, nullptr)), "0 ");
  kaon_step_free(step);
  kaon_future* pulled = nullptr;
  ASSERT_EQ(TextOf(kaon_job_pull_to_device(job_, 0, &weights_, 1, 0, &pulled)), "0 ");
  EXPECT_EQ(TextOf(kaon_future_result(pulled, nullptr)), "3 parameter w: " + why);
  kaon_future_free(pulled);

  options_.nccl = "no-such-interface";
  kaon_client* other = nullptr;
  ASSERT_EQ(TextOf(kaon_client_connect(&options_, &other)), "0 ");
  EXPECT_THAT(TextOf(kaon_client_check_device(other, 0)), HasSubstr("no-such-interface"));
  kaon_client_free(other);
}

// Waits for another rank, so that there is no result before the fork.
TEST_F(KaonTest, AFutureHasNoResultInAForkedChild) {
  AttachWithTwoRanks();
  kaon_step* step = Begin(1);
  ASSERT_EQ(TextOf(kaon_step_push(step, &weights_, 0, nullptr)), "0 ");
  kaon_future* decided = nullptr;
  ASSERT_EQ(TextOf(kaon_step_finish(step, nullptr, &decided)), "0 ");
  const pid_t child = fork();
  if (child == 0) {
    // A loop that waits for 1 ends.
    if (kaon_future_wait(decided, 100) != 1) _exit(1);
    if (kaon_status_code(kaon_future_result(decided, nullptr)) != 9) _exit(2);
    if (kaon_status_code(kaon_future_on_ready(
            decided, [](void*) {}, nullptr)) != 9)
      _exit(3);
    kaon_future_cancel(decided);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  // A signal that ended it would leave an exit status of 0.
  EXPECT_EQ(status, 0);
  kaon_future_cancel(decided);
  EXPECT_THAT(TextOf(kaon_future_result(decided, nullptr)), StartsWith("1 "));
  kaon_future_free(decided);
  kaon_step_free(step);
}

TEST_F(KaonTest, CancelsAStepThatWaitsForAnotherRank) {
  AttachWithTwoRanks();
  kaon_step* step = Begin(1);
  ASSERT_EQ(TextOf(kaon_step_push(step, &weights_, 0, nullptr)), "0 ");
  kaon_future* decided = nullptr;
  ASSERT_EQ(TextOf(kaon_step_finish(step, nullptr, &decided)), "0 ");
  EXPECT_EQ(kaon_future_wait(decided, 0), 0);
  EXPECT_EQ(kaon_future_wait(nullptr, 0), 1);
  kaon_future_cancel(decided);
  EXPECT_THAT(TextOf(kaon_future_result(decided, nullptr)), StartsWith("1 "));
  kaon_future_free(decided);
  kaon_step_free(step);
}

TEST_F(KaonTest, FailsCallsOfAJobWhoseClientIsFreed) {
  Attach();
  kaon_client_free(client_);
  client_ = nullptr;
  auto progress = Sized<kaon_progress>();
  EXPECT_THAT(TextOf(kaon_job_refresh(job_, &progress)), StartsWith("9 "));
}

// The cluster's coordinator needs the address of the collector.
class WithCollector {
 protected:
  testing::TraceCollector collector_;
};
class KaonTraceTest : protected WithCollector, public KaonTest {
 protected:
  KaonTraceTest() : KaonTest(collector_.address()) {}
};

TEST_F(KaonTraceTest, MakesAStepAPartOfTheTrainersTrace) {
  Attach();
  const char* const traceparents[] = {nullptr, "\xff is no UTF-8",
                                      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};
  for (uint64_t number = 1; number <= 3; ++number) {
    kaon_step* step = Begin(number, traceparents[number - 1]);
    ASSERT_EQ(TextOf(kaon_step_push_all(step, &weights_, 1, 0)), "0 ");
    kaon_future* decided = nullptr;
    ASSERT_EQ(TextOf(kaon_step_finish(step, nullptr, &decided)), "0 ");
    ASSERT_EQ(TextOf(kaon_future_result(decided, nullptr)), "0 ");
    kaon_future_free(decided);
    kaon_step_free(step);
  }
  // Steps begin one after the other, so their times order them.
  std::map<uint64_t, std::string> parents;
  for (int num_spans = 1; parents.size() < 3; ++num_spans) {
    for (const auto& request : collector_.Await(num_spans)) {
      for (const auto& span : request.resource_spans(0).scope_spans(0).spans()) {
        if (span.name() != "step") continue;
        parents[span.start_time_unix_nano()] = absl::BytesToHexString(span.parent_span_id());
      }
    }
  }
  EXPECT_THAT(parents, ElementsAre(Pair(_, ""), Pair(_, ""), Pair(_, "b7ad6b7169203331")));
}

}  // namespace
}  // namespace kaon
