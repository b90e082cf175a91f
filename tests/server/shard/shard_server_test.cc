#include "server/shard/shard_server.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/shard/transport/served_shard.h"

namespace kaon::shard {
namespace {

constexpr char kData[] = "kaon.v1.ShardData";
constexpr char kControl[] = "kaon.v1.ShardControl";

// While it lives no file of this process may grow beyond so many bytes, which is as good as a full
// disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

class ShardServerTest : public ServedShardTest {
 protected:
  v1::ShardConfig Config() {
    v1::ShardConfig config;
    config.set_data_dir(data_dir_ + "_other");
    config.set_gemm("reference");
    return config;
  }
  v1::ShardConfig SameDirectory() {
    v1::ShardConfig config = Config();
    config.set_data_dir(data_dir_);
    return config;
  }
  // Ends the server, and starts another.
  void Restart(const v1::ShardConfig& config) {
    coordinator_.reset();
    server_.reset();
    absl::StatusOr<std::unique_ptr<ShardServer>> restarted = ShardServer::Start(config);
    ASSERT_TRUE(restarted.ok()) << restarted.status();
    server_ = *std::move(restarted);
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                   grpc::InsecureChannelCredentials());
    data_ = v1::ShardData::NewStub(channel_);
    control_ = v1::ShardControl::NewStub(channel_);
  }
  // How often it happened since the server started.
  uint64_t Counted(const std::string& event) {
    const v1::DescribeShardResponse described = Describe();
    for (const v1::EventCount& one : described.events()) {
      if (one.name() == event) return one.count();
    }
    return 0;
  }
  // The tensors of every snapshot in `directory`, by path.
  static std::vector<std::string> SnapshotFiles(const std::string& directory) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const bool is_one = entry.path().filename().string().rfind("snapshot-", 0) == 0;
      if (is_one && entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    return files;
  }
  // One worker's gradient of step 1.
  grpc::Status PushGradient(uint32_t rank) {
    return Push({OpenRequest(rank, 1), ChunkRequest(0, {1, 2, 3, 4, 5, 6}),
                 ChunkRequest(1, {1, 2, 3, 4}), FinishRequest()});
  }
  void AwaitHealth(const std::string& health) {
    while (Health(kData) != health) std::this_thread::yield();
  }
  void ExpectRefused(const v1::ShardConfig& config, absl::StatusCode code,
                     const std::string& words) {
    const absl::Status status = ShardServer::Start(config).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  }
};

TEST_F(ShardServerTest, StandsWhereItStoodWhenItRestarts) {
  PlanStepOne();
  const uint64_t digest = Describe().state_digest();
  EXPECT_GT(Describe().journal().bytes(), 0u);
  Restart(SameDirectory());
  ControlCall coordinator(*control_);
  // Rule 1: the promise is as durable as the rest.
  EXPECT_TRUE(coordinator.Ask(PromiseOf(0)).has_refused());
  const v1::ShardState state = coordinator.Ask(PromiseOf(1)).state();
  EXPECT_EQ(state.applied_position(), 2u);
  EXPECT_TRUE(state.weights_loaded());
  EXPECT_EQ(state.data_loss(), "");
  EXPECT_EQ(state.durability(), v1::DURABILITY_MODE_JOURNAL);
  const v1::DescribeShardResponse description = Describe();
  EXPECT_EQ(description.state_digest(), digest);
  EXPECT_GT(description.journal().recovered_entries(), 5u);
  EXPECT_EQ(Pull(PullOf(0, {0})).error_code(), grpc::StatusCode::OK);
}

// Every entry leads to one, once its decision is on disk.
TEST_F(ShardServerTest, StartsFromItsSnapshot) {
  v1::ShardConfig config = SameDirectory();
  config.set_snapshot_journal_bytes(1);
  Restart(config);
  coordinator_ = std::make_unique<ControlCall>(*control_);
  coordinator_->Ask(PromiseOf(1));
  PlanStepOne();
  const auto await_snapshot = [this](uint64_t position) {
    while (Describe().snapshot().position() < position) std::this_thread::yield();
  };
  await_snapshot(2);
  const v1::DescribeShardResponse before = Describe();
  EXPECT_EQ(before.snapshot().problem(), "");
  EXPECT_GT(before.journal().bytes(), before.snapshot().bytes());
  Restart(config);
  const v1::DescribeShardResponse after = Describe();
  EXPECT_EQ(after.snapshot().position(), 2u);
  EXPECT_EQ(after.state_digest(), before.state_digest());
  EXPECT_EQ(after.state().applied_record().SerializeAsString(),
            before.state().applied_record().SerializeAsString());
  EXPECT_EQ(Pull(PullOf(0, {0})).error_code(), grpc::StatusCode::OK);
}

TEST_F(ShardServerTest, LeavesASnapshotWhenItIsShutDown) {
  PlanStepOne();
  const v1::DescribeShardResponse before = Describe();
  EXPECT_EQ(before.snapshot().position(), 0u);
  coordinator_.reset();
  server_->Shutdown();
  Restart(SameDirectory());
  const v1::DescribeShardResponse after = Describe();
  EXPECT_EQ(after.snapshot().position(), before.state().applied_position());
  EXPECT_EQ(after.state_digest(), before.state_digest());
}

// No bit depends on it, so a data_dir is gone on with.
TEST_F(ShardServerTest, ComputesWithTheInstructionSetThatItIsTold) {
  PlanStepOne();
  const uint64_t digest = Describe().state_digest();
  EXPECT_NE(Describe().instruction_set(), "");
  EXPECT_GE(Describe().compute_threads(), 1u);
  coordinator_.reset();
  server_->Shutdown();
  v1::ShardConfig config = SameDirectory();
  config.set_isa("scalar");
  config.set_threads(3);
  Restart(config);
  EXPECT_EQ(Describe().instruction_set(), "scalar");
  EXPECT_EQ(Describe().compute_threads(), 3u);
  EXPECT_EQ(Describe().state_digest(), digest);
  config.set_isa("widest");
  coordinator_.reset();
  server_->Shutdown();
  Restart(config);
}

// Protocol.md section 3: "resuming across a change needs an explicit flag".
TEST_F(ShardServerTest, GoesOnWithAnotherBackendOnlyWhereThatIsAllowed) {
  PlanStepOne();
  const uint64_t digest = Describe().state_digest();
  EXPECT_NE(Describe().build(), "");
  EXPECT_NE(Describe().device_class(), "");
  coordinator_.reset();
  server_->Shutdown();
  server_.reset();
  v1::ShardConfig config = SameDirectory();
  config.set_gemm("onednn");
  // Also of a directory whose snapshot alone says so, as older versions left it.
  for (const bool has_file : {true, false}) {
    if (!has_file) std::filesystem::remove(data_dir_ + "/written_by");
    ExpectRefused(config, absl::StatusCode::kFailedPrecondition, "cpu/reference");
    ExpectRefused(config, absl::StatusCode::kFailedPrecondition, "cpu/onednn");
  }
  config.set_allow_other_build(true);
  Restart(config);
  EXPECT_EQ(Describe().state_digest(), digest);
  // Once allowed it is its own, while the snapshot is still the other's.
  coordinator_.reset();
  server_.reset();
  config.set_allow_other_build(false);
  Restart(config);
  EXPECT_EQ(Describe().state_digest(), digest);
}

// Before there is a snapshot that could say so: killed, it leaves none.
TEST_F(ShardServerTest, GoesOnWithAnotherBackendsJournalOnlyWhereThatIsAllowed) {
  PlanStepOne();
  coordinator_.reset();
  server_.reset();
  v1::ShardConfig config = SameDirectory();
  config.set_gemm("onednn");
  ExpectRefused(config, absl::StatusCode::kFailedPrecondition,
                "/written_by says 'kaon written_by 1\\nbuild kaon 1\\nbackend cpu/reference\\n");
  ExpectRefused(config, absl::StatusCode::kFailedPrecondition, "build kaon 1\\nbackend cpu/onednn");
  config.set_allow_other_build(true);
  Restart(config);
}

// P8
TEST_F(ShardServerTest, NeverVotesOnADamagedJournalAndNamesIt) {
  PlanStepOne();
  coordinator_.reset();
  server_.reset();
  const std::string path = data_dir_ + "/journal-0000000000000001";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file.is_open()) << path;
  file.seekg(600);
  const char byte = static_cast<char>(file.get());
  file.seekp(600);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  Restart(SameDirectory());
  ControlCall coordinator(*control_);
  const v1::ShardState state = coordinator.Ask(PromiseOf(2)).state();
  EXPECT_NE(state.data_loss().find("journal-0000000000000001"), std::string::npos)
      << state.data_loss();
  EXPECT_EQ(coordinator.Ask(PlanOf(RegistrationPlan(2, 1))).refused().reason(),
            v1::REFUSAL_REASON_DATA_LOSS);
}

// P18: "service turns read-only (Pull works), says why, resumes without restart on ENOSPC".
TEST_F(ShardServerTest, TakesNoPushesWhileItsDiskIsFullAndSaysWhy) {
  PlanStepOne();
  EXPECT_EQ(Health(kData), "SERVING");
  const std::string path = data_dir_ + "/journal-0000000000000001";
  {
    const FullDisk full(std::filesystem::file_size(path));
    for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushGradient(rank).ok());
    AwaitHealth("NOT_SERVING");
    EXPECT_EQ(Health(kControl), "SERVING");
    while (Describe().journal().read_only_reason().empty()) std::this_thread::yield();
    EXPECT_NE(Describe().journal().read_only_reason().find(path), std::string::npos);
    EXPECT_EQ(Pull(PullOf(0, {0})).error_code(), grpc::StatusCode::OK);
  }
  EXPECT_TRUE(coordinator_->Receive().has_prepared());
  AwaitHealth("SERVING");
  EXPECT_EQ(Describe().journal().read_only_reason(), "");
  EXPECT_GT(Counted("journal_retry"), 0u);
}

TEST_F(ShardServerTest, CountsWhatItCutOffWhenItStarts) {
  PlanStepOne();
  coordinator_.reset();
  server_.reset();
  Restart(SameDirectory());
  EXPECT_EQ(Counted("torn_tail_cut"), 0u);
  server_.reset();
  // What a crash leaves of a write that was not synced.
  const std::string path = data_dir_ + "/journal-0000000000000001";
  std::ofstream(path, std::ios::app | std::ios::binary) << "torn";
  Restart(SameDirectory());
  EXPECT_NE(Describe().journal().torn_tail(), "");
  EXPECT_EQ(Counted("torn_tail_cut"), 1u);
  EXPECT_EQ(Health(kData), "SERVING");
}

TEST_F(ShardServerTest, CountsSnapshotsThatItPassedOver) {
  PlanStepOne();
  const uint64_t digest = Describe().state_digest();
  coordinator_.reset();
  server_->Shutdown();
  server_.reset();
  const std::vector<std::string> files = SnapshotFiles(data_dir_);
  ASSERT_EQ(files.size(), 1u);
  std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  Restart(SameDirectory());
  EXPECT_EQ(Counted("damaged_file_skipped"), 1u);
  EXPECT_NE(Describe().snapshot().problem().find(files[0]), std::string::npos);
  // The journal has it all.
  EXPECT_EQ(Describe().state_digest(), digest);
}

TEST_F(ShardServerTest, CountsSnapshotsThatFoundItsDiskFull) {
  v1::ShardConfig config = Config();
  config.set_durability("interval(1)");
  // A file for each entry: the journal's are smaller than a snapshot.
  setenv("KAON_JOURNAL_SEGMENT_BYTES", "1", /*replace=*/1);
  Restart(config);
  unsetenv("KAON_JOURNAL_SEGMENT_BYTES");
  PlanStepOne();
  while (Describe().snapshot().position() < 2) std::this_thread::yield();
  uint64_t snapshot_bytes = 0;
  for (const std::string& path : SnapshotFiles(config.data_dir())) {
    snapshot_bytes = std::max(snapshot_bytes, uint64_t{std::filesystem::file_size(path)});
  }
  {
    const FullDisk full(snapshot_bytes - 1);
    for (uint32_t rank : {0, 1}) ASSERT_TRUE(PushGradient(rank).ok());
    ASSERT_TRUE(coordinator_->Receive().has_prepared());
    coordinator_->Send(DecisionOf(Applying(TrainPlan(1, 1, 1))));
    while (Counted("snapshot_retry") == 0) std::this_thread::yield();
    AwaitHealth("NOT_SERVING");
    EXPECT_EQ(Counted("journal_retry"), 0u);
  }
  AwaitHealth("SERVING");
  while (Describe().snapshot().position() < 3) std::this_thread::yield();
}

TEST_F(ShardServerTest, RefusesToForgetAJournal) {
  PlanStepOne();
  coordinator_.reset();
  server_.reset();
  v1::ShardConfig config = SameDirectory();
  config.set_durability("none");
  ExpectRefused(config, absl::StatusCode::kFailedPrecondition, "holds a journal");
}

TEST_F(ShardServerTest, RefusesADirectoryThatAnotherProcessUses) {
  ExpectRefused(SameDirectory(), absl::StatusCode::kFailedPrecondition, data_dir_);
}

// What is not durable is lost with the process: rule 5, "in `none` a restarted shard is DATA_LOSS,
// never a voter."
TEST_F(ShardServerTest, ReportsDataLossWhenItRestartsInModeNoneAfterItPromised) {
  v1::ShardConfig config = Config();
  config.set_durability("none");
  Restart(config);
  {
    ControlCall coordinator(*control_);
    EXPECT_EQ(coordinator.Ask(PromiseOf(1)).state().durability(), v1::DURABILITY_MODE_NONE);
  }
  // Nor does a journal that starts now know what was promised.
  for (const char* durability : {"none", "journal"}) {
    config.set_durability(durability);
    Restart(config);
    ControlCall coordinator(*control_);
    const v1::ShardState state = coordinator.Ask(PromiseOf(2)).state();
    EXPECT_NE(state.data_loss().find("incarnation"), std::string::npos) << state.data_loss();
    EXPECT_EQ(coordinator.Ask(PlanOf(RegistrationPlan(2, 1))).refused().reason(),
              v1::REFUSAL_REASON_DATA_LOSS);
    EXPECT_EQ(Push({OpenRequest(0, 1)}).error_code(), grpc::StatusCode::DATA_LOSS);
    EXPECT_EQ(Pull(PullOf(0, {0})).error_code(), grpc::StatusCode::DATA_LOSS);
    EXPECT_EQ(Health(kData), "NOT_SERVING");
  }
}

TEST_F(ShardServerTest, ARestartBeforeAnyPromiseLosesNothing) {
  for (const char* durability : {"none", "journal"}) {
    v1::ShardConfig config = Config();
    config.set_data_dir(data_dir_ + durability);
    config.set_durability(durability);
    Restart(config);
    Restart(config);
    ControlCall coordinator(*control_);
    EXPECT_EQ(coordinator.Ask(PromiseOf(1)).state().data_loss(), "");
  }
}

TEST_F(ShardServerTest, ShowsModeIntervalAndItsSteps) {
  v1::ShardConfig config = Config();
  config.set_durability("interval(4)");
  Restart(config);
  ControlCall coordinator(*control_);
  const v1::ShardState state = coordinator.Ask(PromiseOf(1)).state();
  EXPECT_EQ(state.durability(), v1::DURABILITY_MODE_INTERVAL);
  EXPECT_EQ(state.interval_steps(), 4u);
  EXPECT_FALSE(state.rollback_needed());
  config.set_durability("interval(0)");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "durability is \"interval(0)\"");
}

TEST_F(ShardServerTest, WritesThePortItGot) {
  v1::ShardConfig config = Config();
  config.set_port_file(data_dir_ + "_port");
  const absl::StatusOr<std::unique_ptr<ShardServer>> server = ShardServer::Start(config);
  ASSERT_TRUE(server.ok()) << server.status();
  int port = 0;
  std::ifstream(config.port_file()) >> port;
  EXPECT_EQ(port, (*server)->port());
  EXPECT_GT(port, 0);
}

TEST_F(ShardServerTest, RefusesAConfigurationItCannotServe) {
  v1::ShardConfig config = Config();
  config.clear_data_dir();
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "data_dir is empty");
  config = Config();
  config.set_listen("nowhere");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "listen is \"nowhere\"");
  config = Config();
  config.set_durability("perhaps");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "durability is \"perhaps\"");
  config = Config();
  config.set_host_memory_bytes(32 << 20);
  ExpectRefused(config, absl::StatusCode::kInvalidArgument,
                "host_memory_bytes is 33554432, must be more than 33554432, which the history of "
                "steps may take");
  config.set_host_memory_bytes(0);
  config.set_staging_bytes(1000);
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "staging_bytes is 1000");
  config = Config();
  config.set_threads(257);
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "threads is 257, must be 0 .. 256");
  config = Config();
  config.set_shm_sessions(65);
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "shm_sessions is 65, must be 0 .. 64");
  config = Config();
  config.set_gemm("none");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "none");
  config = Config();
  config.set_isa("neon");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument,
                "isa: is \"neon\", must be widest, avx512, avx2 or scalar");
  config = Config();
  config.set_backend("missing");
  ExpectRefused(config, absl::StatusCode::kNotFound, "missing");
  config = Config();
  config.set_device("cuda");
  config.set_backend("cpu");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "must name the same backend");
  config = Config();
  config.set_device_memory_bytes(1 << 20);
  ExpectRefused(config, absl::StatusCode::kInvalidArgument,
                "device_memory_bytes is 1048576, must be 0: backend cpu computes in host memory");
  config = Config();
  config.set_listen("0.0.0.0:0");
  ExpectRefused(config, absl::StatusCode::kFailedPrecondition, "0.0.0.0");
}

// As a sandbox does it; for good, and for every thread to come.
void ForbidLocalSockets() {
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), const_cast<sock_filter*>(filter)};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(2);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(3);
}

// With or without a directory; whether it serves.
void ServeInASandbox(v1::ShardConfig config) {
  ForbidLocalSockets();
  config.set_shm_sessions(2);
  const absl::Status status = ShardServer::Start(config).status();
  std::cerr << status << std::endl;
  _exit(status.ok() ? 0 : 1);
}

TEST(SandboxedShardTest, ServesOverTheNetworkWhereThereAreNoLocalSockets) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  v1::ShardConfig config;
  config.set_data_dir(testing::TempDir() + "/sandboxed");
  config.set_gemm("reference");
  EXPECT_EXIT(ServeInASandbox(config), testing::ExitedWithCode(0),
              "no sessions over shared memory: FAILED_PRECONDITION");
  // Who names a directory wants a socket there.
  config.set_shm_dir("/etc");
  EXPECT_EXIT(ServeInASandbox(config), testing::ExitedWithCode(1),
              "FAILED_PRECONDITION: cannot listen on local socket /etc/kaon-shard-");
}

TEST_F(ShardServerTest, RefusesAPortInUse) {
  v1::ShardConfig config = Config();
  config.set_listen("127.0.0.1:" + std::to_string(server_->port()));
  ExpectRefused(config, absl::StatusCode::kFailedPrecondition,
                "cannot listen on " + config.listen());
}

TEST_F(ShardServerTest, ShutsDownTwiceWithoutHarm) {
  server_->Shutdown();
  server_->Shutdown();
}

}  // namespace
}  // namespace kaon::shard
