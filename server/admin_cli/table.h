// Text tables for terminals: a header line, then rows. Columns are padded to their widest cell. A
// value type; one thread.
#ifndef KAON_SERVER_ADMIN_CLI_TABLE_H_
#define KAON_SERVER_ADMIN_CLI_TABLE_H_

#include <string>
#include <vector>

namespace kaon::admin_cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

// Returns "-" for an empty text.
std::string OrDash(const std::string& text);

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  // Adds a row; CHECKs that it has one cell per column. Shows control characters as '?', so that a
  // cell stays on its line.
  void AddRow(std::vector<std::string> cells);

  // Returns the lines, each with a newline and without trailing spaces. A table without rows is its
  // header.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_TABLE_H_
