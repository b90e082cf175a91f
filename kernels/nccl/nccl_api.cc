#include "kernels/nccl/nccl_api.h"

#include <dlfcn.h>
#include <glog/logging.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace kaon::kernels {
namespace {

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusCode CodeOf(nccl::Result result) {
  switch (result) {
    case nccl::kSuccess:
    case nccl::kInProgress:
      return absl::StatusCode::kOk;
    case nccl::kUnhandledCudaError:
      return absl::StatusCode::kFailedPrecondition;
    case nccl::kSystemError:
    case nccl::kRemoteError:
      return absl::StatusCode::kUnavailable;
    case nccl::kInvalidArgument:
    case nccl::kInvalidUsage:
      return absl::StatusCode::kInvalidArgument;
    case nccl::kInternalError:
      break;
  }
  return absl::StatusCode::kInternal;
}

// Resolves the functions of one library, and notes the first that is absent.
class Resolver {
 public:
  explicit Resolver(void* library) : library_(library) {}

  template <typename Function>
  void Resolve(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    if (*function == nullptr && absent_ == nullptr) absent_ = name;
  }
  const char* absent() const { return absent_; }

 private:
  void* const library_;
  const char* absent_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclApi>> NcclApi::Load(const std::string& library) {
  // Never closed: communicators and threads of NCCL may outlive every owner.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const reason = dlerror();
    return absl::NotFoundError(absl::StrCat("NCCL: cannot load ", library, ": ",
                                            reason != nullptr ? reason : "no reason"));
  }
  nccl::Functions functions;
  Resolver resolver(loaded);
  resolver.Resolve("ncclGetVersion", &functions.ncclGetVersion);
  int version = 0;
  if (resolver.absent() != nullptr || functions.ncclGetVersion(&version) != nccl::kSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL: ", library, " does not tell its version"));
  }
  // Check the version first: an old library lacks functions, and the version says why.
  if (version < nccl::kLeastVersion) {
    return absl::FailedPreconditionError(absl::StrCat("NCCL: ", library, " is version ",
                                                      VersionText(version), ", expecting at least ",
                                                      VersionText(nccl::kLeastVersion)));
  }
  resolver.Resolve("ncclGetUniqueId", &functions.ncclGetUniqueId);
  resolver.Resolve("ncclCommInitRankConfig", &functions.ncclCommInitRankConfig);
  resolver.Resolve("ncclCommGetAsyncError", &functions.ncclCommGetAsyncError);
  resolver.Resolve("ncclGetLastError", &functions.ncclGetLastError);
  resolver.Resolve("ncclGetErrorString", &functions.ncclGetErrorString);
  resolver.Resolve("ncclSend", &functions.ncclSend);
  resolver.Resolve("ncclRecv", &functions.ncclRecv);
  resolver.Resolve("ncclGroupStart", &functions.ncclGroupStart);
  resolver.Resolve("ncclGroupEnd", &functions.ncclGroupEnd);
  resolver.Resolve("ncclCommAbort", &functions.ncclCommAbort);
  resolver.Resolve("ncclCommRevoke", &functions.ncclCommRevoke);
  if (resolver.absent() != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL: ", library, ", version ", VersionText(version), ", has no ", resolver.absent()));
  }
  return std::unique_ptr<NcclApi>(new NcclApi(functions, version));
}

std::string NcclApi::version() const { return VersionText(version_); }

absl::Status NcclApi::StatusOf(nccl::Result result, const char* call, nccl::Comm comm) const {
  const absl::StatusCode code = CodeOf(result);
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  const char* const last = functions_.ncclGetLastError(comm);
  const char* const text = functions_.ncclGetErrorString(result);
  return absl::Status(
      code,
      absl::StrCat(call, ": ", text != nullptr ? text : "no text", " (", static_cast<int>(result),
                   ")", last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : ""));
}

absl::StatusOr<UniqueId> NcclApi::NewId() const {
  nccl::UniqueIdBytes bytes;
  const nccl::Result result = functions_.ncclGetUniqueId(&bytes);
  if (absl::Status status = StatusOf(result, "ncclGetUniqueId", nullptr); !status.ok()) {
    return status;
  }
  UniqueId id;
  static_assert(sizeof(bytes) == sizeof(id));
  std::memcpy(id.data(), &bytes, sizeof(bytes));
  return id;
}

absl::StatusOr<nccl::Comm> NcclApi::Init(const UniqueId& id, int ranks, int rank,
                                         const CommOptions& options) const {
  nccl::UniqueIdBytes bytes;
  std::memcpy(&bytes, id.data(), sizeof(bytes));
  nccl::Config config;
  config.blocking = 0;
  config.min_ctas = 1;
  config.max_ctas = options.max_ctas;
  nccl::Comm comm = nullptr;
  const nccl::Result result = functions_.ncclCommInitRankConfig(&comm, ranks, bytes, rank, &config);
  const absl::Status status = StatusOf(result, "ncclCommInitRankConfig", comm);
  if (status.ok()) return comm;
  if (comm != nullptr) {
    const absl::Status aborted = Abort(absl::MakeConstSpan(&comm, 1));
    LOG_IF(ERROR, !aborted.ok()) << aborted;
  }
  return status;
}

CommState NcclApi::Poll(nccl::Comm comm) const {
  nccl::Result state = nccl::kSuccess;
  nccl::Result result = functions_.ncclCommGetAsyncError(comm, &state);
  if (result == nccl::kSuccess) result = state;
  if (result == nccl::kInProgress) return {CommState::Kind::kInProgress, ""};
  if (result == nccl::kSuccess) return {CommState::Kind::kReady, ""};
  return {CommState::Kind::kFailed,
          std::string(StatusOf(result, "ncclCommGetAsyncError", comm).message())};
}

absl::Status NcclApi::Send(nccl::Comm comm, ConstRegion from, int peer, void* stream) const {
  return StatusOf(functions_.ncclSend(from.data(), from.size(), nccl::kUint8, peer, comm, stream),
                  "ncclSend", comm);
}

absl::Status NcclApi::Receive(nccl::Comm comm, Region to, int peer, void* stream) const {
  return StatusOf(functions_.ncclRecv(to.data(), to.size(), nccl::kUint8, peer, comm, stream),
                  "ncclRecv", comm);
}

absl::Status NcclApi::Revoke(nccl::Comm comm) const {
  return StatusOf(functions_.ncclCommRevoke(comm, 0), "ncclCommRevoke", comm);
}

absl::Status NcclApi::Abort(absl::Span<const nccl::Comm> comms) const {
  absl::Status aborted;
  // Names no communicator: an aborted one is gone.
  const auto note = [&](nccl::Result result, const char* call) {
    aborted.Update(StatusOf(result, call, nullptr));
  };
  // A group needs a call at both ends, and an abort must not wait for a failed group.
  note(functions_.ncclGroupStart(), "ncclGroupStart");
  for (const nccl::Comm comm : comms) note(functions_.ncclCommAbort(comm), "ncclCommAbort");
  note(functions_.ncclGroupEnd(), "ncclGroupEnd");
  return aborted;
}

}  // namespace kaon::kernels
