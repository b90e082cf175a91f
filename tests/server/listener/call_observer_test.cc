#include "server/listener/call_observer.h"

#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "kaon/v1/config.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "server/auth/call_limits.h"

namespace kaon::listener {
namespace {

using ::grpc::experimental::InterceptionHookPoints;

// A batch of operations that has received a message.
class Batch : public grpc::experimental::InterceptorBatchMethods {
 public:
  explicit Batch(void* message) : message_(message) {}

  int proceeded() const { return proceeded_; }

  bool QueryInterceptionHookPoint(InterceptionHookPoints type) override {
    return type == InterceptionHookPoints::POST_RECV_MESSAGE;
  }
  void Proceed() override { ++proceeded_; }
  void* GetRecvMessage() override { return message_; }

  void Hijack() override {}
  grpc::ByteBuffer* GetSerializedSendMessage() override { return nullptr; }
  const void* GetSendMessage() override { return nullptr; }
  void ModifySendMessage(const void*) override {}
  bool GetSendMessageStatus() override { return true; }
  std::multimap<std::string, std::string>* GetSendInitialMetadata() override { return nullptr; }
  grpc::Status GetSendStatus() override { return grpc::Status::OK; }
  void ModifySendStatus(const grpc::Status&) override {}
  std::multimap<std::string, std::string>* GetSendTrailingMetadata() override { return nullptr; }
  std::multimap<grpc::string_ref, grpc::string_ref>* GetRecvInitialMetadata() override {
    return nullptr;
  }
  grpc::Status* GetRecvStatus() override { return nullptr; }
  std::multimap<grpc::string_ref, grpc::string_ref>* GetRecvTrailingMetadata() override {
    return nullptr;
  }
  std::unique_ptr<grpc::ChannelInterface> GetInterceptedChannel() override { return nullptr; }
  void FailHijackedRecvMessage() override {}
  void FailHijackedSendMessage() override {}

 private:
  void* const message_;
  int proceeded_ = 0;
};

class CallObserverTest : public ::testing::Test {
 protected:
  CallObserverTest() {
    grpc::Slice slice("five!");
    buffer_ = grpc::ByteBuffer(&slice, 1);
    config_.set_listen("127.0.0.1:0");
  }

  void Receive(CallObserver& call, void* message) {
    Batch batch(message);
    call.Intercept(&batch);
    EXPECT_EQ(batch.proceeded(), 1);
  }

  const std::shared_ptr<CallCounts> counts_ = std::make_shared<CallCounts>();
  grpc::ByteBuffer buffer_;
  v1::CoordinatorConfig config_;
};

TEST_F(CallObserverTest, CountsTheMessagesOfAStreamAtOnce) {
  CallObserver call(counts_, CallObserver::Messages::kByteBuffer, /*streams=*/true);
  Receive(call, &buffer_);
  Receive(call, &buffer_);
  Receive(call, nullptr);
  EXPECT_EQ(counts_->taken_bytes, 10u);
  EXPECT_EQ(counts_->taken_messages, 2u);
  EXPECT_EQ(counts_->open_calls, 1u);
}

TEST_F(CallObserverTest, CountsAnOnlyMessageWhenTheCallEnds) {
  {
    CallObserver call(counts_, CallObserver::Messages::kProtobuf, /*streams=*/false);
    Receive(call, &config_);
    EXPECT_EQ(counts_->taken_bytes, 0u);
    EXPECT_EQ(counts_->taken_messages, 0u);
  }
  EXPECT_EQ(counts_->taken_bytes, config_.ByteSizeLong());
  EXPECT_EQ(counts_->taken_messages, 1u);
  EXPECT_EQ(counts_->open_calls, 0u);
}

TEST(CallObserverFormsTest, RawMethodsAreFoundByTheirHandlers) {
  v1::ShardData::WithRawCallbackMethod_Pull<v1::ShardData::Service> service;
  const auto forms = CallObserver::FormsOf(service, v1::ShardData::service_full_name());
  EXPECT_EQ(forms.size(), 2u);
  EXPECT_EQ(forms.at("/kaon.v1.ShardData/Push"), CallObserver::Messages::kProtobuf);
  EXPECT_EQ(forms.at("/kaon.v1.ShardData/Pull"), CallObserver::Messages::kByteBuffer);
}

TEST_F(CallObserverTest, LeavesMessagesOfUnknownFormAlone) {
  CallObserver call(counts_, CallObserver::Messages::kUnknown, /*streams=*/true);
  int no_message = 0;
  Receive(call, &no_message);
  EXPECT_EQ(counts_->taken_bytes, 0u);
  EXPECT_EQ(counts_->taken_messages, 1u);
}

TEST_F(CallObserverTest, TellsTheLimitsOfItsEndAndOfThatOfItsConnection) {
  const auto limits = std::make_shared<auth::CallLimits>(/*calls_of_connection=*/8);
  limits->SetBudget(8 * 4 * auth::CallLimits::kCallBytes);
  const absl::Time now = absl::UnixEpoch();
  const auto allowed = [&](uint64_t number) {
    int calls = 0;
    while (limits->Arrive(number, "w", /*header_bytes=*/300, now).ok()) ++calls;
    return calls;
  };
  auto counts = std::make_shared<CallCounts>(limits);
  counts->number = limits->Connect(now);
  EXPECT_EQ(allowed(counts->number), 8);
  {
    const CallObserver call(counts, CallObserver::Messages::kUnknown, /*streams=*/false);
    EXPECT_EQ(allowed(counts->number), 0);
  }
  EXPECT_EQ(allowed(counts->number), 1);
  const uint64_t other = limits->Connect(now);
  EXPECT_EQ(allowed(other), 4);
  counts.reset();
  EXPECT_EQ(allowed(other), 4);
}

}  // namespace
}  // namespace kaon::listener
