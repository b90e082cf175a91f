#include "server/monitor/metrics/process_metrics.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/text.h"
#include "proto/version.h"

namespace kaon::metrics {

namespace {

struct Delete {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

double SecondsOf(const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; }

// Returns the fields of /proc/self/stat from the third on, or nothing.
std::vector<std::string> ReadStat() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The name may hold any character; a parenthesis ends it.
  const size_t end = text.rfind(')');
  if (end == std::string::npos || end + 2 > text.size()) return {};
  return absl::StrSplit(text.substr(end + 2), ' ');
}

double BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    double seconds = 0;
    if (line.rfind("btime ", 0) == 0 && absl::SimpleAtod(line.substr(6), &seconds)) return seconds;
  }
  return 0;
}

void AddFromProc(MetricPage& page) {
  // Numbers of proc(5), less the two fields before.
  constexpr size_t kStartTicks = 22 - 3;
  constexpr size_t kResidentPages = 24 - 3;
  const std::vector<std::string> stat = ReadStat();
  double ticks = 0;
  double pages = 0;
  if (stat.size() <= kResidentPages || !absl::SimpleAtod(stat[kStartTicks], &ticks) ||
      !absl::SimpleAtod(stat[kResidentPages], &pages)) {
    return;
  }
  page.Set("process_resident_memory_bytes", pages * sysconf(_SC_PAGESIZE));
  if (const double boot = BootTime(); boot > 0) {
    page.Set("process_start_time_seconds", boot + ticks / sysconf(_SC_CLK_TCK));
  }
  std::error_code failed;
  const auto files = std::filesystem::directory_iterator("/proc/self/fd", failed);
  if (failed) return;
  page.Set("process_open_fds", static_cast<double>(std::distance(begin(files), end(files))));
}

void AddExpiry(const std::string& name, const std::string& path, MetricPage& page) {
  if (path.empty()) return;
  const absl::StatusOr<absl::Time> expiry = CertificateExpiry(path);
  if (!expiry.ok()) return;
  page.Set("kaon_certificate_expiry_timestamp_seconds",
           static_cast<double>(absl::ToUnixSeconds(*expiry)), {name});
}

}  // namespace

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& path) {
  const std::unique_ptr<BIO, Delete> file(BIO_new_file(path.c_str(), "r"));
  std::unique_ptr<X509, Delete> certificate;
  if (file != nullptr) {
    certificate.reset(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  }
  tm time = {};
  if (certificate == nullptr ||
      ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &time) != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", proto::OneLine(path), "' has no certificate"));
  }
  return absl::FromTimeT(timegm(&time));
}

void AddProcess(const v1::TlsConfig& tls, const monitor::EventCounts& counts,
                const monitor::ServiceHealth& health, MetricPage& page) {
  const proto::Version version = proto::ThisVersion();
  page.Set("kaon_build_info", 1, {version.version, version.commit, version.build});
  for (const v1::EventCount& event : counts.Happened()) {
    page.Set("kaon_events_total", static_cast<double>(event.count()), {event.name()});
  }
  page.Set("kaon_serving", health.serving());
  AddExpiry("certificate", tls.certificate_file(), page);
  AddExpiry("ca", tls.ca_file(), page);
  AddFromProc(page);
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    page.Set("process_cpu_seconds_total", SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime));
  }
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    page.Set("process_max_fds", static_cast<double>(files.rlim_cur));
  }
}

}  // namespace kaon::metrics
