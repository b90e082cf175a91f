#include "server/coordinator/page/parameter_page.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/page/html.h"
#include "server/monitor/units.h"

namespace kaon::coordinator {

namespace {

std::string RouteOf(const v1::ParameterRow& row) {
  if (row.rule() == v1::RULE_UNSPECIFIED) return "frozen";
  return absl::AsciiStrToLower(v1::Rule_Name(row.rule()).substr(sizeof("RULE_") - 1));
}

std::string ShapeOf(const v1::ParameterRow& row) {
  return absl::StrJoin(row.spec().shape(), " x ");
}

// Escapes a text for an argument of a query.
std::string Argument(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
    absl::StrAppend(&escaped,
                    plain ? std::string(1, c)
                          : absl::StrCat("%", absl::BytesToHexString(absl::string_view(&c, 1))));
  }
  return escaped;
}

std::string Form(absl::string_view search) {
  return absl::StrCat(
      "<h2>Parameters</h2><form method=\"get\" action=\"/parameters\" role=\"search\"><label>Name ",
      "contains (regular expression) <input name=\"q\" maxlength=\"1000\" value=\"", Escape(search),
      "\"></label><button>Search</button> <a href=\"/parameters.csv?q=", Argument(search),
      "\" download>Download as CSV</a></form>");
}

}  // namespace

std::string ParametersHtml(const v1::ListParametersResponse& page, absl::string_view search,
                           absl::string_view first) {
  HtmlTable table("Routing table", {"Name", "Route", "Group", "Shard", "Shape", "Tier", "State",
                                    "Updates", "Newton-Schulz", "Reason"});
  for (const v1::ParameterRow& row : page.parameters()) {
    const bool known = row.has_state();
    const v1::ParameterState& state = row.state();
    table.AddRow({LinkCell(absl::StrCat("/parameter?id=", row.placement().parameter_id()),
                           row.spec().name()),
                  TextCell(RouteOf(row)), TextCell(row.placement().group()),
                  NumberCell(absl::StrCat(row.placement().shard())), TextCell(ShapeOf(row)),
                  TextCell(known ? state.tier() : "-"),
                  NumberCell(known ? monitor::Bytes(state.state_bytes()) : "-"),
                  NumberCell(known ? absl::StrCat(state.updates_applied()) : "-"),
                  NumberCell(known ? absl::StrCat(state.newton_schulz_updates()) : "-"),
                  TextCell(row.placement().route_reason().substr(0, 120))});
  }
  std::string html = absl::StrCat(Form(search), table.Html());
  if (page.parameters().empty()) absl::StrAppend(&html, "<p class=\"none\">None.</p>");
  absl::StrAppend(&html, "<nav aria-label=\"Pages of the table\">");
  const std::string link = absl::StrCat("<a href=\"/parameters?q=", Argument(search));
  if (!first.empty()) absl::StrAppend(&html, link, "\">First page</a>");
  if (!page.next_page_token().empty()) {
    absl::StrAppend(&html, link, "&amp;first=", Argument(page.next_page_token()),
                    "\" rel=\"next\">Next page</a>");
  }
  return absl::StrCat(html, "</nav>");
}

std::string ParametersProblemHtml(absl::string_view problem, absl::string_view search) {
  return absl::StrCat(Form(search), "<p class=\"bad\">", Escape(problem), "</p>");
}

std::string ParametersCsvHeader() {
  return "parameter_id,name,route,group,shard,shape,tier,state_bytes,updates_applied,"
         "newton_schulz_updates,reason\r\n";
}

std::string ParametersCsvRows(const v1::ListParametersResponse& page) {
  std::string csv;
  for (const v1::ParameterRow& row : page.parameters()) {
    const bool known = row.has_state();
    const auto count = [known](uint64_t value) { return known ? absl::StrCat(value) : ""; };
    absl::StrAppend(&csv, row.placement().parameter_id(), ",", CsvField(row.spec().name()), ",",
                    RouteOf(row), ",", CsvField(row.placement().group()), ",",
                    row.placement().shard(), ",", CsvField(ShapeOf(row)), ",");
    absl::StrAppend(&csv, CsvField(row.state().tier()), ",", count(row.state().state_bytes()), ",",
                    count(row.state().updates_applied()), ",",
                    count(row.state().newton_schulz_updates()), ",",
                    CsvField(row.placement().route_reason()), "\r\n");
  }
  return csv;
}

}  // namespace kaon::coordinator
