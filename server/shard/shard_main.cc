// kaon-shard: the process. Configuration by file, environment and flags; ends cleanly on SIGTERM
// and SIGINT.
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/config.pb.h"
#include "kernels/backend.h"
#include "proto/chunk_memory.h"
#include "proto/identity.h"
#include "proto/program_log.h"
#include "proto/status_macros.h"
#include "server/auth/server_credentials.h"
#include "server/config/server_config.h"
#include "server/config/server_process.h"
#include "server/shard/shard_server.h"

namespace {

std::vector<kaon::config::Flag> Flags() {
  return {
      {"listen", "host:port to serve on; port 0 = any (127.0.0.1:0)"},
      {"tls.ca_file", "PEM file of the cluster's CA"},
      {"tls.certificate_file", "PEM file of this shard's certificate"},
      {"tls.private_key_file", "PEM file of its private key"},
      {"tls.deny_file", "identities and serial:HEX to refuse, one a line; read again (none)"},
      {"tls.crl_dir", "directory of revocation lists of the CA in PEM; read again (none)"},
      {"data_dir", "private directory (0700) for the journal, or the incarnation marker"},
      {"durability",
       "journal: a restarted shard is as it was; interval(K): the job is rolled back, K steps at "
       "most; none: it has lost its state (journal)"},
      {"host_memory_bytes",
       "memory for tensors, the matrices of the largest update, 32 MiB for the history of steps "
       "and 10 MiB for each of shm_sessions; a job that needs more is refused (4294967296)"},
      {"staging_bytes",
       "gradients that may wait for an earlier rank, all workers together; beside "
       "host_memory_bytes: a shard has at most a tenth more than both resident (67108864)"},
      {"backend", "cpu, or the name of a loadable backend (cpu)"},
      {"device",
       "cpu, or a loadable backend and the number of its device, whose memory then holds tensors, "
       "such as cuda:0 (device 0 of the backend)"},
      {"device_memory_bytes",
       "memory of the device for tensors and the workspace of the largest update; a job that needs "
       "more is refused; 0: 90 % of what is free at the start (0)"},
      {"memory_tier",
       "device, or host: tensors stay in host memory, and the device computes Newton-Schulz alone "
       "(that of device)"},
      {"nvme_dirs",
       "directories, each on a disk of its own, for parameters that find no room in memory or "
       "whose group asks for it; they keep nothing that must outlive the process (none)"},
      {"nvme_bytes",
       "size of each file, reserved: in all, twice the state there, and 4 bytes per element"},
      {"nvme_staging_bytes",
       "memory, of host_memory_bytes, for parameters on their way; 0: a quarter of it (0)"},
      {"nvme_io", "threads, io_uring, or auto: io_uring where it is allowed (threads)"},
      {"gemm", "amx, onednn or reference (the fastest that this machine has)"},
      {"isa", "avx512, avx2 or scalar, for loops of its own; same results (the widest)"},
      {"threads", "compute threads; 0 = as many as there are CPUs to run on (0)"},
      {"port_file", "write the bound port here once calls are accepted"},
      {"checkpoint_dir", "directory of checkpoints, which coordinators and all shards see"},
      {"allow_other_build", "go on from a data_dir of another build, backend or device class"},
      {"snapshot_journal_bytes",
       "growth of the journal that leads to a snapshot; 0: 256 MiB, or twice the state if that is "
       "more (0)"},
      {"shm_sessions",
       "sessions over shared memory for workers on this machine, 0 .. 64 (8, or as many as take a "
       "sixteenth of host_memory_bytes); without one they use the network"},
      {"shm_dir", "directory for the socket that opens them; empty: an abstract socket"},
      {"shm_uids", "users, beside this process's, whose workers may have one"},
      {"nccl", "interface or subnet for tensors of GPUs by NCCL, not encrypted (none)"},
      {"metrics_address",
       "host:port for metrics by HTTP; not on loopback: needs tls and metrics_token_file (none)"},
      {"metrics_token_file", "file with the bearer token of that address"},
      {"metrics_port_file", "write the bound port of that address here"},
      {"log_level", "debug, info, warning or error; SIGHUP reads it again (info)"},
      {"audit_file", "append admin acts and refused calls to this file, as JSON lines (none)"},
      {"log_format", "text, or json: one object a line (text)"},
  };
}

kaon::config::CommandLine Describe() {
  kaon::config::CommandLine line;
  line.program = "kaon-shard";
  line.description = "Holds a part of a training job's weights and optimizer state, and steps it.";
  line.features = kaon::kernels::BuiltInFeatures();
  line.flags = Flags();
  line.complete = [](google::protobuf::Message* message) -> absl::Status {
    auto& config = static_cast<kaon::v1::ShardConfig&>(*message);
    if (!config.has_shm_sessions()) {
      config.set_shm_sessions(kaon::shard::DefaultShmSessions(config.host_memory_bytes(),
                                                              kaon::config::MaxOpenFiles()));
    }
    KAON_ASSIGN_OR_RETURN(config, kaon::shard::CompleteConfig(config));
    return absl::OkStatus();
  };
  line.check_certificates = [](const google::protobuf::Message& message) {
    const auto& config = static_cast<const kaon::v1::ShardConfig&>(message);
    return kaon::auth::CheckServerTls(config.tls(), config.listen(), kaon::proto::Role::kShard);
  };
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  kaon::config::HoldHangup();
  kaon::proto::KeepChunkMemory();
  kaon::proto::BoundArenas();
  kaon::proto::StartLog(argv[0]);
  return kaon::config::RunServer<kaon::shard::ShardServer, kaon::v1::ShardConfig>(Describe(), argc,
                                                                                  argv);
}
