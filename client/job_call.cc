#include "client/job_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/coordinator_call.h"

namespace kaon::client {
namespace {

using JobCall = CoordinatorCall<v1::JobDescription>;

}  // namespace

absl::StatusOr<v1::JobDescription> RegisterJob(const std::shared_ptr<Runtime>& runtime,
                                               const v1::JobDefinition& definition) {
  v1::RegisterJobRequest request;
  *request.mutable_definition() = definition;
  JobCall::Options options;
  options.runtime = runtime;
  options.what = absl::StrCat("a coordinator to register job ", definition.name());
  options.deadline = runtime->call_deadline();
  options.make_try = [&runtime = *runtime, request](const std::string& address, auto done) {
    return runtime.coordinators().Register(address, request, runtime.try_timeout(),
                                           std::move(done));
  };
  return std::make_shared<JobCall>(std::move(options))->Run();
}

absl::StatusOr<v1::JobDescription> LookUpJob(const std::shared_ptr<Runtime>& runtime,
                                             const std::string& name) {
  return LookUpJob(runtime, name, runtime->call_deadline());
}

absl::StatusOr<v1::JobDescription> LookUpJob(const std::shared_ptr<Runtime>& runtime,
                                             const std::string& name, absl::Duration deadline) {
  v1::GetJobRequest request;
  request.set_job(name);
  JobCall::Options options;
  options.runtime = runtime;
  options.what = absl::StrCat("a coordinator to describe job ", name);
  options.deadline = deadline;
  options.make_try = [&runtime = *runtime, request](const std::string& address, auto done) {
    return runtime.coordinators().GetJob(address, request, runtime.try_timeout(), std::move(done));
  };
  return std::make_shared<JobCall>(std::move(options))->Run();
}

absl::Status FindCoordinator(const std::shared_ptr<Runtime>& runtime) {
  CoordinatorCall<bool>::Options options;
  options.runtime = runtime;
  options.what = "a coordinator to answer";
  options.deadline = runtime->call_deadline();
  // A silent address leaves time for the others.
  const absl::Duration timeout = std::min(
      runtime->try_timeout(),
      runtime->call_deadline() / static_cast<int64_t>(runtime->options().coordinators.size()));
  options.make_try = [timeout, &runtime = *runtime](const std::string& address, auto done) {
    return runtime.coordinators().CheckAnswers(address, timeout, std::move(done));
  };
  // The address is another server's; another coordinator may answer.
  options.asks_each = true;
  options.outdated = {absl::StatusCode::kNotFound, absl::StatusCode::kUnimplemented};
  const absl::Status status =
      std::make_shared<CoordinatorCall<bool>>(std::move(options))->Run().status();
  if (!absl::IsNotFound(status) && !absl::IsUnimplemented(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("another server than a coordinator answers at ",
                   absl::StrJoin(runtime->options().coordinators, ", "),
                   ": name coordinators in ClientOptions::coordinators or KAON_ENDPOINTS"));
}

}  // namespace kaon::client
