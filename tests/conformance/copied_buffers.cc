#include "tests/conformance/copied_buffers.h"

#include <glog/logging.h>

#include <cstddef>
#include <cstring>

namespace kaon::kernels {
namespace {

bool IsInPlace(const UpdateBuffers& host) { return host.new_param.data() == host.param.data(); }

}  // namespace

CopiedBuffers::CopiedBuffers(Backend& backend, const UpdateBuffers& host)
    : host_grad_(host.grad),
      host_param_(host.param),
      host_new_param_(host.new_param),
      host_state_(host.state.begin(), host.state.end()),
      part_(host.part),
      grad_(backend, host.grad.region().host_bytes()),
      param_(backend, host.param.host_bytes()) {
  if (!IsInPlace(host)) new_param_ = Tensor(backend, host.new_param.host_bytes());
  for (const Region& slot : host_state_) {
    state_.emplace_back(backend, slot.host_bytes());
    state_regions_.push_back(state_.back().region());
  }
}

UpdateBuffers CopiedBuffers::buffers() const {
  UpdateBuffers copies;
  copies.grad = GradView(host_grad_.dtype(), grad_.region());
  copies.param = param_.region();
  copies.new_param = new_param_.region().empty() ? param_.region() : new_param_.region();
  copies.state = state_regions_;
  copies.part = part_;
  return copies;
}

void CopiedBuffers::Read() const {
  for (size_t k = 0; k < state_.size(); ++k) state_[k].Read(host_state_[k].host_bytes());
  if (new_param_.region().empty()) return param_.Read(host_new_param_.host_bytes());
  new_param_.Read(host_new_param_.host_bytes());
  std::vector<std::byte> param(host_param_.size());
  param_.Read(absl::MakeSpan(param));
  CHECK(memcmp(param.data(), host_param_.data(), param.size()) == 0)
      << "the update wrote the old weights";
}

UpdateResult UpdateCopied(Backend& backend, const RuleConfig& rule, const UpdateScalars& scalars,
                          absl::Span<const uint64_t> shape, const UpdateBuffers& host) {
  const CopiedBuffers copies(backend, host);
  const UpdateResult result = backend.ApplyUpdate(rule, scalars, shape, copies.buffers());
  copies.Read();
  return result;
}

}  // namespace kaon::kernels
