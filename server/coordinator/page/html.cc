#include "server/coordinator/page/html.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace kaon::coordinator {

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string CsvField(absl::string_view text) {
  const bool is_formula =
      !text.empty() && absl::string_view("=+-@\t\r").find(text.front()) != absl::string_view::npos;
  const std::string field = absl::StrCat(is_formula ? "'" : "", text);
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  return absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
}

std::string Number(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%.4g", *value) : "-";
}

Cell TextCell(absl::string_view text) { return {Escape(text)}; }

Cell LinkCell(absl::string_view target, absl::string_view text) {
  return {absl::StrCat("<a href=\"", Escape(target), "\">", Escape(text), "</a>")};
}

Cell NumberCell(absl::string_view text) { return {Escape(text), true}; }

Cell MeterCell(double part, double whole, absl::string_view text) {
  if (whole <= 0) return NumberCell(text);
  const int percent = static_cast<int>(100 * std::clamp(part / whole, 0.0, 1.0));
  // An SVG needs no style attribute, which the page's policy forbids.
  return {
      absl::StrCat(Escape(text), "<svg class=\"meter\" viewBox=\"0 0 100 6\" ",
                   "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"rail\" ",
                   "width=\"100\" height=\"6\"/><rect class=\"", percent >= 90 ? "full" : "used",
                   "\" width=\"", percent, "\" height=\"6\"/></svg>"),
      true};
}

HtmlTable::HtmlTable(absl::string_view caption, const std::vector<std::string>& columns)
    : caption_(Escape(caption)), columns_(columns) {}

void HtmlTable::AddRow(const std::vector<Cell>& cells) {
  absl::StrAppend(&rows_, "<tr>");
  for (size_t i = 0; i < cells.size(); ++i) {
    if (is_number_.size() == i) is_number_.push_back(cells[i].is_number);
    const char* const tag = i == 0 ? "th" : "td";
    absl::StrAppend(&rows_, "<", tag, i == 0 ? " scope=\"row\"" : "",
                    cells[i].is_number ? " class=\"n\"" : "", ">", cells[i].html, "</", tag, ">");
  }
  absl::StrAppend(&rows_, "</tr>\n");
}

std::string HtmlTable::Html() const {
  if (rows_.empty()) return "";
  std::string html =
      absl::StrCat("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"", caption_,
                   "\"><table><caption>", caption_, "</caption><thead><tr>");
  for (size_t i = 0; i < columns_.size(); ++i) {
    const bool is_number = i < is_number_.size() && is_number_[i];
    absl::StrAppend(&html, "<th scope=\"col\"", is_number ? " class=\"n\"" : "", ">",
                    Escape(columns_[i]), "</th>");
  }
  return absl::StrCat(html, "</tr></thead><tbody>", rows_, "</tbody></table></div>\n");
}

}  // namespace kaon::coordinator
