// Attacks a shard with a reader's certificate: opens pulls of the newest version and reads nothing.
//   pull_flood ADDRESS TLS_DIR JOB PULLS PARAMETERS
// Each pull names PARAMETERS parameters: 0 to 3, again and again. Prints "open" once
// all calls are started. Once stdin ends, it cancels them. It prints how many the shard had ended.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "client/transport/channel.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "kernels/mutex.h"

namespace kaon {
namespace {

// Fewer than a connection may have.
constexpr int kStreams = 240;

struct Counts {
  std::atomic<int> refused{0};
  std::atomic<int> others{0};
  std::atomic<bool> is_over{false};
  Mutex mu;
  CondVar changed;
  int open ABSL_GUARDED_BY(mu) = 0;
};

class UnreadPull : public grpc::ClientReadReactor<v1::PullResponse> {
 public:
  UnreadPull(v1::ShardData::Stub& stub, const v1::PullRequest& request, Counts& counts)
      : counts_(counts) {
    {
      MutexLock lock(counts_.mu);
      ++counts_.open;
    }
    stub.async()->Pull(&context_, &request, this);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  void OnDone(const grpc::Status& status) override {
    const bool is_refused = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    if (!counts_.is_over) ++(is_refused ? counts_.refused : counts_.others);
    MutexLock lock(counts_.mu);
    --counts_.open;
    counts_.changed.NotifyAll();
  }

 private:
  grpc::ClientContext context_;
  Counts& counts_;
};

// Returns the newest step whose weights the shard has: the refusal of a later one names it. The
// request's own step if there is no such refusal.
uint64_t NewestStep(v1::ShardData::Stub& stub, const v1::PullRequest& known) {
  v1::PullRequest request = known;
  request.mutable_parameter_ids()->Truncate(1);
  request.set_step(uint64_t{1} << 60);
  grpc::ClientContext context;
  v1::PullResponse response;
  const auto reader = stub.Pull(&context, request);
  while (reader->Read(&response)) {
  }
  const std::string why = reader->Finish().error_message();
  uint64_t step = 0;
  const size_t last = why.rfind(' ');
  if (absl::StrContains(why, "newest is") && absl::SimpleAtoi(why.substr(last + 1), &step)) {
    return step;
  }
  return known.step();
}

int Run(char** arguments) {
  const std::string dir = arguments[2];
  const TlsFiles tls{dir + "/ca.crt", dir + "/reader.crt", dir + "/reader.key"};
  v1::PullRequest request;
  request.set_job(arguments[3]);
  request.set_timeline(1);
  request.set_dtype(v1::DTYPE_FLOAT32);
  const int pulls = std::atoi(arguments[4]);
  for (int i = 0; i < std::atoi(arguments[5]); ++i)
    request.add_parameter_ids(static_cast<uint32_t>(i) % 4);
  const auto channels = client::CreateChannels(arguments[1], tls, proto::Role::kShard,
                                               static_cast<size_t>(pulls / kStreams) + 1);
  if (!channels.ok()) {
    std::cerr << channels.status() << "\n";
    return 1;
  }
  Counts counts;
  std::deque<UnreadPull> open;
  std::vector<std::unique_ptr<v1::ShardData::Stub>> stubs;
  for (int i = 0; i < pulls; ++i) {
    if (i % kStreams == 0) {
      stubs.push_back(v1::ShardData::NewStub((*channels)[static_cast<size_t>(i / kStreams)]));
      request.set_step(NewestStep(*stubs.back(), request));
    }
    open.emplace_back(*stubs.back(), request, counts);
  }
  std::cout << "open" << std::endl;
  std::cin.get();
  counts.is_over = true;
  std::cout << counts.refused << " refused, " << counts.others << " ended otherwise" << std::endl;
  for (UnreadPull& pull : open) pull.Cancel();
  MutexLock lock(counts.mu);
  while (counts.open > 0) counts.changed.Wait(counts.mu);
  return 0;
}

}  // namespace
}  // namespace kaon

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  return kaon::Run(argv);
}
