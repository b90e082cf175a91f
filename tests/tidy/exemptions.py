"""Where a tidy rule gives way, and why. An exemption that nothing needs any more is itself a finding."""

_WIRE_NAME = "the data plane's name on the wire (protocol.md)"
_OWN_MUTEX = "this is where Mutex is made of std::mutex"
_PUBLIC = "public headers use the standard library only; Mutex needs Abseil's attributes"

_FOR_PEOPLE = "shows people the time of day, and decides nothing"

_WHOLE_CALLS = "tests/client/client_test.cc drives it with real calls to an in-process cluster; alone it does nothing"

_BOTH_TRANSPORTS = "tests/server/shard/transport/grpc_push_stream_test.cc, grpc_pull_stream_test.cc and shm_session_test.cc drive it over both transports"

_ADMIN_SERVICE = "tests/server/coordinator/service/admin_service_test.cc drives it with real calls; alone it does nothing"


_CHANNEL_SUITE = "tests/client/transport/shm_shard_channel_test.cc runs the suite of ShardChannel over it; alone it does nothing"

_NCCL_SUITE = "tests/client/transport/nccl_shard_channel_test.cc runs the suite of ShardChannel and every fault over it; alone it does nothing"

_NCCL = "whether the machine has NCCL is known when the test runs; the skip prints why not"

_NUMERICS_TABLE = "kaonctl runs the numerics table of the tests on the user's machine (ADR 0014)"

_TILES = "whether the processor has AMX tiles is known when the test runs, not when Bazel picks it; the skip prints it"

_PRIMITIVES = "oneDNN has no bf16 products without AVX-512, which no build can know; the test says why"

_ISA = "which instruction sets the processor has is known when the test runs; the skip prints it"

_URING = "whether the kernel and the container allow io_uring is known when the test runs; the skip prints why not"

_BACKWARD = "it stands for the time that a GPU computes gradients, which step_ahead measures with; nothing is synchronised by it"

_NVCC = "whether nvcc is there is known when the library is built; the skip prints why it is not"

_BACKEND_SUITE = "tests/kernels/cuda/cuda_backend_test.cc runs the conformance suite over it; alone it does nothing"

_NEEDS_A_GPU = "tests/gpu runs it where a GPU is; nothing of it runs without one"

_RUNNER = "muon_runner_test.cc runs it: alone it has no updates"

# (rule, path): reason
EXEMPT = {
    ("skipped-test", "tests/kernels/cuda/plugin_test.cc"): _NVCC,
    ("mirrored-test", "kernels/cuda/cuda_accumulation.cc"): _BACKEND_SUITE,
    ("mirrored-test", "kernels/cuda/element_wise_updates.cc"): _BACKEND_SUITE,
    ("mirrored-test", "kernels/cuda/device_cuda.cc"): _NEEDS_A_GPU,
    ("mirrored-test", "kernels/cuda/products/lt_gemm.cc"): _NEEDS_A_GPU,
    ("mirrored-test", "kernels/cuda/muon/muon_run.cc"): _RUNNER,
    ("sleep", "tests/benchmark/loopback_job.cc"): _BACKWARD,
    ("skipped-test", "tests/conformance/numerics_table_test.cc"): _ISA,
    ("skipped-test", "tests/kernels/gemm/amx_gemm_test.cc"): _TILES,
    ("skipped-test", "tests/kernels/gemm/amx_tiles_test.cc"): _TILES,
    ("skipped-test", "tests/kernels/cpu/cpu_backend_amx_test.cc"): _TILES,
    ("skipped-test", "tests/kernels/gemm/onednn_gemm_test.cc"): _PRIMITIVES,
    ("skipped-test", "tests/kernels/gemm/tile_emulator_test.cc"): _ISA,
    ("skipped-test", "tests/kernels/orthogonalize/newton_schulz_accuracy_test.cc"): _TILES,
    ("skipped-test", "tests/kernels/cpu/update_workspace_test.cc"): _TILES,
    ("skipped-test", "tests/conformance/block_file_conformance.h"): _URING,
    ("skipped-test", "tests/server/disk/open_block_file_test.cc"): _URING,
    ("skipped-test", "tests/server/disk/uring_block_file_test.cc"): _URING,
    ("skipped-test", "tests/server/tier/nvme_tier_test.cc"): _URING,
    ("file-name", "proto/kaon/v1/shard_data.proto"): _WIRE_NAME,
    ("type-name", "server/shard/transport/shard_service.h"): _WIRE_NAME,
    ("wall-clock", "server/monitor/wall_clock.h"): _FOR_PEOPLE,
    ("mutex", "kernels/mutex.h"): _OWN_MUTEX,
    ("mutex", "client/kaon/future.h"): _PUBLIC,
    ("include-folder", "server/admin_cli/local/verify_numerics.h"): _NUMERICS_TABLE,
    ("mirrored-test", "server/shard/parameters/pull_reader.cc"): _BOTH_TRANSPORTS,
    ("mirrored-test", "server/shard/gradients/push_intake.cc"): _BOTH_TRANSPORTS,
    ("mirrored-test", "server/coordinator/service/cluster_queries.cc"): _ADMIN_SERVICE,
    ("mirrored-test", "client/transport/shm_call.cc"): _CHANNEL_SUITE,
    ("mirrored-test", "client/transport/shm_lane.cc"): _CHANNEL_SUITE,
    ("mirrored-test", "client/transport/shm_pull.cc"): _CHANNEL_SUITE,
    ("mirrored-test", "client/transport/shm_push.cc"): _CHANNEL_SUITE,
    ("mirrored-test", "client/transport/nccl_push.cc"): _NCCL_SUITE,
    ("skipped-test", "tests/kernels/nccl/nccl_api_test.cc"): _NCCL,
    ("mirrored-test", "client/transport/coordinator_client.cc"): _WHOLE_CALLS,
    ("mirrored-test", "client/job_call.cc"): _WHOLE_CALLS,
    ("mirrored-test", "client/pull_operation.cc"): _WHOLE_CALLS,
    ("mirrored-test", "client/runtime.cc"): _WHOLE_CALLS,
    ("mirrored-test", "client/step_operation.cc"): _WHOLE_CALLS,
    ("mirrored-test", "client/worker_driver.cc"): _WHOLE_CALLS,
    ("mirrored-test", "client/worker_state.cc"): _WHOLE_CALLS,
}

# (path, type that has the grpc::ClientContext, or its name where no type has it): what ends the call instead of a deadline
WITHOUT_DEADLINE = {
    ("client/transport/coordinator_client.cc", "AwaitCall"):
        "lasts as long as its step, whose own deadline cancels it (StepOperation); a silent peer ends it by keepalive",
    ("client/transport/grpc_shard_channel.cc", "GrpcPushStream"):
        "lasts as long as its step, whose own deadline cancels it (StepOperation); a silent peer ends it by keepalive",
    ("server/coordinator/shard_link.cc", "Stream"):
        "lasts as long as coordinator and shard both live; a silent peer ends it by keepalive, and another is opened",
}
