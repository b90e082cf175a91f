// Pieces of HTML. Every text that comes from outside passes through Escape. Pure functions; any
// thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_HTML_H_
#define KAON_SERVER_COORDINATOR_PAGE_HTML_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kaon::coordinator {

// Returns the text for an element or a quoted attribute.
std::string Escape(absl::string_view text);

// Returns a field of a CSV file. A text that a spreadsheet would take for a formula is disarmed.
std::string CsvField(absl::string_view text);

// Returns the number with 4 digits, "-" without one.
std::string Number(std::optional<double> value);

// A cell of a table.
struct Cell {
  std::string html;
  bool is_number = false;
};

// Return cells of a text, which is escaped, of a link, and of a number.
Cell TextCell(absl::string_view text);
Cell LinkCell(absl::string_view target, absl::string_view text);
Cell NumberCell(absl::string_view text);
// Returns a cell with a bar of `part` of `whole`, and the text.
Cell MeterCell(double part, double whole, absl::string_view text);

class HtmlTable {
 public:
  // `caption` and `columns` are plain text.
  HtmlTable(absl::string_view caption, const std::vector<std::string>& columns);
  // The first cell is the header of the row.
  void AddRow(const std::vector<Cell>& cells);
  // Returns the table, or "" without rows.
  std::string Html() const;

 private:
  const std::string caption_;
  const std::vector<std::string> columns_;
  // Tells which columns have numbers, as the first row does.
  std::vector<bool> is_number_;
  std::string rows_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_HTML_H_
