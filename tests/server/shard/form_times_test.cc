#include "server/shard/form_times.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kaon/v1/config.pb.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "kernels/backend.h"
#include "kernels/optimizer_rule.h"
#include "server/shard/shard_server.h"

namespace kaon::shard {
namespace {

using kernels::NsDType;
using kernels::NsForm;

// Two shapes, three dtypes, both forms.
constexpr size_t kUpdatesOfARound = 12;

// Takes as long on a clock of its own for an update as its form needs.
class TimedBackend : public kernels::Backend {
 public:
  std::string name() const override { return "timed"; }
  int64_t Fold(kernels::DType, const std::byte*, float, bool, absl::Span<float>, double*) override {
    return -1;
  }
  kernels::MeanFacts FinishMean(const kernels::MeanScalars&, absl::Span<float>) override {
    return {};
  }
  kernels::UpdateResult ApplyUpdate(const kernels::RuleConfig& rule, const kernels::UpdateScalars&,
                                    absl::Span<const uint64_t> shape,
                                    const kernels::UpdateBuffers& buffers) override {
    EXPECT_EQ(buffers.grad.size(), shape[0] * shape[1]);
    const auto& muon = std::get<kernels::MuonConfig>(rule);
    EXPECT_EQ(muon.newton_schulz.form == NsForm::kGram,
              muon.newton_schulz.gram_restarts == (std::vector<int>{2, 3}));
    updates_.push_back(muon.newton_schulz.form);
    // The first of each matrix touches memory.
    const bool is_slow = updates_.size() > slow_from && updates_.size() <= slow_until;
    const int64_t slow = updates_.size() <= kUpdatesOfARound || is_slow ? 10 : 1;
    now_ += slow * (muon.newton_schulz.form == NsForm::kGram ? gram : standard);
    return {};
  }

  absl::Time now() const { return now_; }
  const std::vector<NsForm>& updates() const { return updates_; }

  absl::Duration standard = absl::Milliseconds(4);
  absl::Duration gram = absl::Milliseconds(3);
  // Updates after so many, and up to so many, take ten times as long.
  size_t slow_from = 0;
  size_t slow_until = 0;

 private:
  absl::Time now_ = absl::UnixEpoch();
  std::vector<NsForm> updates_;
};

std::vector<v1::NewtonSchulzFormTime> Measure(TimedBackend& backend, absl::Duration at_most) {
  return MeasureForms(backend, at_most, [&backend] { return backend.now(); });
}

TEST(FormTimesTest, AreTheLeastOfEachFormNarrowMatricesFirst) {
  constexpr v1::NewtonSchulzDType kDTypes[] = {v1::NEWTON_SCHULZ_DTYPE_FLOAT32,
                                               v1::NEWTON_SCHULZ_DTYPE_BFLOAT16,
                                               v1::NEWTON_SCHULZ_DTYPE_FLOAT16};
  TimedBackend backend;
  const auto times = Measure(backend, absl::Seconds(1));
  ASSERT_EQ(times.size(), kUpdatesOfARound / 2);
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].rows(), 256u);
    EXPECT_EQ(times[i].cols(), uint64_t{512} << i / 3);
    EXPECT_EQ(times[i].dtype(), kDTypes[i % 3]);
    EXPECT_DOUBLE_EQ(times[i].standard_seconds(), 4e-3);
    EXPECT_DOUBLE_EQ(times[i].gram_seconds(), 3e-3);
  }
}

TEST(FormTimesTest, FormsTakeTurns) {
  TimedBackend backend;
  Measure(backend, absl::Seconds(1));
  EXPECT_GT(backend.updates().size(), 2 * kUpdatesOfARound);
  for (size_t i = 0; i < backend.updates().size(); ++i) {
    EXPECT_EQ(backend.updates()[i], i % 2 == 0 ? NsForm::kStandard : NsForm::kGram) << i;
  }
}

// All rows by turns, until the time is over: a moment in which something else runs meets none of
// them alone.
TEST(FormTimesTest, OneSlowRoundIsForgotten) {
  TimedBackend backend;
  backend.slow_from = kUpdatesOfARound;
  backend.slow_until = 2 * kUpdatesOfARound;
  const auto times = Measure(backend, absl::Seconds(2));
  EXPECT_EQ(times.size(), kUpdatesOfARound / 2);
  for (const v1::NewtonSchulzFormTime& time : times) {
    EXPECT_DOUBLE_EQ(time.standard_seconds(), 4e-3);
    EXPECT_DOUBLE_EQ(time.gram_seconds(), 3e-3);
  }
}

// A slow machine says what it has measured by then; nothing is begun after the end.
TEST(FormTimesTest, EndWhenTheirTimeIsOver) {
  TimedBackend backend;
  // A row takes 70 ms, as the first updates are slow.
  EXPECT_EQ(Measure(backend, absl::Milliseconds(175)).size(), 2u);
  EXPECT_EQ(backend.now(), absl::UnixEpoch() + absl::Milliseconds(180));
  TimedBackend slow;
  slow.standard = absl::Seconds(10);
  EXPECT_TRUE(Measure(slow, absl::Milliseconds(500)).empty());
  EXPECT_EQ(slow.updates().size(), 1u);
  TimedBackend unused;
  EXPECT_TRUE(Measure(unused, absl::ZeroDuration()).empty());
  EXPECT_TRUE(unused.updates().empty());
}

std::string NewDirectory() {
  std::string path = testing::TempDir() + "/form_times.XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

v1::DescribeShardResponse Started(const v1::ShardConfig& config) {
  const absl::StatusOr<std::unique_ptr<ShardServer>> server = ShardServer::Start(config);
  EXPECT_TRUE(server.ok()) << server.status();
  const auto shard = v1::ShardControl::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string((*server)->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::DescribeShardResponse response;
  const grpc::Status status = shard->DescribeShard(&context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

// By a shard that is told to, at each start without a job.
TEST(FormTimesTest, AreMeasuredByAShardWithoutAJob) {
  v1::ShardConfig config;
  config.set_gemm("onednn");
  config.set_measure_forms(true);
  v1::DescribeShardResponse shard;
  // A machine that is busy may measure none in time.
  for (int attempt = 0; attempt < 20 && shard.form_times_size() == 0; ++attempt) {
    config.set_data_dir(NewDirectory());
    shard = Started(config);
  }
  EXPECT_GE(shard.form_times_size(), 1);
  for (const v1::NewtonSchulzFormTime& time : shard.form_times()) {
    EXPECT_LT(time.rows(), time.cols());
    EXPECT_GT(time.standard_seconds(), 0);
    EXPECT_GT(time.gram_seconds(), 0);
  }
  config.clear_measure_forms();
  EXPECT_EQ(Started(config).form_times_size(), 0);
}

}  // namespace
}  // namespace kaon::shard
