#include "tests/server/shard/transport/shm_worker.h"

#include <glog/logging.h>
#include <grpcpp/client_context.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/time/time.h"
#include "kaon/v1/shard_local.grpc.pb.h"
#include "kernels/steady_clock.h"
#include "proto/local_socket.h"

namespace kaon::shard {

using proto::ShmRecord;

std::unique_ptr<ShmWorker> ShmWorker::Connect(const std::shared_ptr<grpc::Channel>& channel) {
  const auto local = v1::ShardLocal::NewStub(channel);
  v1::OpenSessionRequest request;
  request.set_boot_id(proto::BootId());
  v1::OpenSessionResponse response;
  grpc::Status asked;
  // A session that is just ending may still count.
  const absl::Time end = SteadyNow() + absl::Seconds(30);
  do {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    asked = local->OpenSession(&context, request, &response);
  } while (asked.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && SteadyNow() < end);
  CHECK(asked.ok()) << asked.error_message();
  return std::make_unique<ShmWorker>(response);
}

ShmWorker::ShmWorker(const v1::OpenSessionResponse& opened) {
  auto socket = proto::ConnectLocal(opened.socket());
  CHECK(socket.ok()) << socket.status();
  socket_ = *std::move(socket);
  CHECK(proto::SendLocal(socket_, opened.token()).ok());
  auto memory = proto::ReceiveDescriptor(socket_, absl::Seconds(30));
  CHECK(memory.ok()) << memory.status();
  auto region = proto::ShmRegion::Open(*std::move(memory));
  CHECK(region.ok()) << region.status();
  region_ = *std::move(region);
  writer_ = std::make_unique<proto::RingWriter>(region_->requests());
  reader_ = std::make_unique<proto::RingReader>(region_->responses());
}

void ShmWorker::Send(ShmRecord kind, uint32_t call, const std::string& body) {
  std::memcpy(Reserve(body.size()), body.data(), body.size());
  Commit(kind, call, body.size());
}

std::byte* ShmWorker::Reserve(size_t size) {
  absl::StatusOr<std::byte*> to = writer_->Reserve(size);
  while (to.ok() && *to == nullptr && AwaitRing()) to = writer_->Reserve(size);
  CHECK(to.ok() && *to != nullptr) << to.status();
  return *to;
}

void ShmWorker::Commit(ShmRecord kind, uint32_t call, size_t size) {
  writer_->Commit({static_cast<uint32_t>(size), static_cast<uint32_t>(kind), call, 0});
  Ring();
}

void ShmWorker::Ring() { (void)send(socket_.get(), "r", 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

bool ShmWorker::AwaitRing() {
  pollfd wanted = {socket_.get(), POLLIN, 0};
  CHECK_EQ(poll(&wanted, 1, 60000), 1) << "the shard says nothing";
  char rings[256];
  return recv(socket_.get(), rings, sizeof(rings), MSG_DONTWAIT) > 0;
}

ShmWorker::Record ShmWorker::Receive() {
  std::vector<std::byte> memory;
  while (true) {
    const auto record = reader_->Take(&memory);
    CHECK(record.ok()) << record.status();
    if (record->has_value()) {
      Ring();
      const auto* body = reinterpret_cast<const char*>((*record)->body.data());
      return {(*record)->header, std::string(body, (*record)->body.size())};
    }
    if (!AwaitRing()) return {};
  }
}

void ShmWorker::Flood(ShmRecord kind, uint32_t call) {
  char rings[256];
  ssize_t received = 1;
  do {
    absl::StatusOr<std::byte*> to = writer_->Reserve(0);
    for (; to.ok() && *to != nullptr; to = writer_->Reserve(0)) {
      writer_->Commit({0, static_cast<uint32_t>(kind), call, 0});
    }
    CHECK(to.ok()) << to.status();
    Ring();
    received = recv(socket_.get(), rings, sizeof(rings), MSG_DONTWAIT);
  } while (received > 0 || (received < 0 && errno == EAGAIN));
}

bool ShmWorker::IsEnded() {
  while (Receive().header.kind != 0) {
  }
  return true;
}

template <typename Response>
absl::Status ShmWorker::TakeAnswers(uint32_t call, std::vector<Response>* responses,
                                    const std::function<bool(const Response&)>& is_last) {
  while (true) {
    const Record record = Receive();
    if (record.header.kind == 0) return absl::CancelledError("the session is over");
    // Skips answers that were in flight for an abandoned call.
    if (record.header.call < call) continue;
    CHECK_EQ(record.header.call, call);
    if (record.header.kind == static_cast<uint32_t>(ShmRecord::kEnd)) {
      return absl::Status(static_cast<absl::StatusCode>(record.header.code), record.body);
    }
    Response response;
    CHECK(response.ParseFromString(record.body));
    if (responses != nullptr) responses->push_back(response);
    if (is_last(response)) return absl::OkStatus();
  }
}

absl::Status ShmWorker::Push(const std::vector<v1::PushRequest>& requests,
                             std::vector<v1::PushResponse>* responses) {
  const uint32_t call = next_call();
  for (const v1::PushRequest& request : requests) {
    Send(ShmRecord::kPushRequest, call, request.SerializeAsString());
  }
  return TakeAnswers<v1::PushResponse>(
      call, responses, [](const v1::PushResponse& response) { return response.has_finished(); });
}

absl::Status ShmWorker::Pull(const v1::PullRequest& request,
                             std::vector<v1::PullResponse>* responses) {
  const uint32_t call = next_call();
  Send(ShmRecord::kPullRequest, call, request.SerializeAsString());
  return TakeAnswers<v1::PullResponse>(call, responses,
                                       [](const v1::PullResponse&) { return false; });
}

}  // namespace kaon::shard
