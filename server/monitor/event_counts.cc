#include "server/monitor/event_counts.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/config/log_facts.h"
#include "server/monitor/audit_log.h"
#include "server/monitor/wall_clock.h"

namespace kaon::monitor {

namespace {

constexpr size_t kMaxRefusalBytes = 400;

enum class Apart { kNothing, kCode, kReason };

struct Named {
  const char* name;
  Apart apart;
};

constexpr Named kEvents[] = {
#define KAON_EVENT_OF(enumerator, name, apart) {name, Apart::apart},
    KAON_EVENTS(KAON_EVENT_OF)
#undef KAON_EVENT_OF
};

std::string NameOf(const Named& event, size_t apart) {
  switch (event.apart) {
    case Apart::kNothing:
      return event.name;
    case Apart::kCode:
      return absl::StrCat(
          event.name, ".",
          absl::AsciiStrToLower(absl::StatusCodeToString(static_cast<absl::StatusCode>(apart))));
    case Apart::kReason:
      break;
  }
  const std::string& reason = v1::RefusalReason_Name(static_cast<v1::RefusalReason>(apart));
  return absl::StrCat(event.name, ".",
                      absl::AsciiStrToLower(absl::StripPrefix(reason, "REFUSAL_REASON_")));
}

}  // namespace

void EventCounts::AddApart(Event event, size_t apart) {
  counts_[static_cast<size_t>(event)][std::min(apart, kMaxApart - 1)].fetch_add(
      1, std::memory_order_relaxed);
}

std::vector<v1::EventCount> EventCounts::Happened() const {
  std::vector<v1::EventCount> happened;
  for (size_t event = 0; event < kNumEvents; ++event) {
    for (size_t apart = 0; apart < kMaxApart; ++apart) {
      const uint64_t count = counts_[event][apart].load(std::memory_order_relaxed);
      if (count == 0) continue;
      v1::EventCount& one = happened.emplace_back();
      one.set_name(NameOf(kEvents[event], apart));
      one.set_count(count);
    }
  }
  std::sort(happened.begin(), happened.end(),
            [](const v1::EventCount& a, const v1::EventCount& b) { return a.name() < b.name(); });
  return happened;
}

std::string ForLog(const absl::Status& status) {
  return absl::CHexEscape(status.ToString().substr(0, kMaxRefusalBytes));
}

void NoteUnauthorized(EventCounts& counts, absl::string_view peer, const absl::Status& refusal) {
  counts.Add(Event::kCallUnauthorized);
  if (AuditLog* const audit = counts.audit(); audit != nullptr)
    audit->Refusal(peer, refusal, WallNow());
  const config::LogPeer from(peer);
  LOG_EVERY_T(WARNING, 1) << "call of " << peer << " refused: " << ForLog(refusal);
}

void NoteEnd(EventCounts& counts, absl::string_view peer, absl::string_view method,
             const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status)) return;
  if (absl::IsPermissionDenied(status)) return NoteUnauthorized(counts, peer, status);
  counts.Add(Event::kCallRefused, status.code());
  const config::LogPeer from(peer);
  LOG_EVERY_T(WARNING, 1) << method << " of " << peer << " refused: " << ForLog(status);
}

void NoteAdminAct(EventCounts& counts, absl::string_view peer, absl::string_view act,
                  const absl::Status& result) {
  if (result.ok()) {
    counts.Add(Event::kAdminAct);
  } else {
    counts.Add(Event::kAdminRefused, result.code());
  }
  if (AuditLog* const audit = counts.audit(); audit != nullptr)
    audit->Act(peer, act, result, WallNow());
  const config::LogPeer from(peer);
  // Another act must not hide it.
  const config::LogAlways act_is_logged;
  LOG(INFO) << peer << ": " << act << ": " << ForLog(result);
}

}  // namespace kaon::monitor
