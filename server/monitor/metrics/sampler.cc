#include "server/monitor/metrics/sampler.h"

#include <utility>

#include "kernels/steady_clock.h"

namespace kaon::metrics {

Sampler::Sampler(std::function<void()> sample, absl::Duration period)
    : sample_(std::move(sample)), period_(period), thread_([this] { Run(); }) {}

Sampler::~Sampler() { Stop(); }

void Sampler::Run() {
  while (true) {
    sample_();
    const absl::Time next = SteadyNow() + period_;
    MutexLock lock(mu_);
    while (!stopping_ && SteadyNow() < next) wake_.WaitFor(mu_, next - SteadyNow());
    if (stopping_) return;
  }
}

void Sampler::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace kaon::metrics
