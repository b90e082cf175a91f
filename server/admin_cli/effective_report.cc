#include "server/admin_cli/effective_report.h"

#include "job/effective_values.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {

Json EffectiveJson(const v1::JobDescription& job) {
  Json values = Json::array();
  for (const job::EffectiveValue& value : job::EffectiveValues(job)) {
    values.push_back({{"group", value.group},
                      {"field", value.field},
                      {"value", value.value},
                      {"origin", value.origin}});
  }
  return {{"job", job.definition().name()},
          {"config_revision", job.config_revision()},
          {"values", values}};
}

std::string EffectiveText(const v1::JobDescription& job) {
  Table table({{"GROUP"}, {"FIELD"}, {"VALUE"}, {"FROM"}});
  for (const job::EffectiveValue& value : job::EffectiveValues(job)) {
    table.AddRow({value.group.empty() ? "-" : value.group, value.field, value.value, value.origin});
  }
  return table.ToString();
}

}  // namespace kaon::admin_cli
