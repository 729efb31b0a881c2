// A table of a report, and the ways it is written: Markdown, LaTeX (booktabs) and HTML. Cells are
// text as it is shown; figures for other programs are in the CSV files (report_csv.h).
//
//   Table table({"method", "speedup"});
//   table.add({"suffix", "1.25 [1.14, 1.41]"});
//   std::string text = table.markdown();
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

class Table {
 public:
  /// The first `text_columns` are text, the others numbers.
  explicit Table(std::vector<std::string> header, size_t text_columns = 1)
      : header_(std::move(header)), text_columns_(text_columns) {}
  /// As many cells as the header has.
  void add(std::vector<std::string> cells);
  /// The same table with a first column of text before it: `cell` in every row.
  Table under(const std::string& name, const std::string& cell) const;
  /// The rows of a table with the same header.
  void append(const Table& other);

  bool empty() const { return rows_.empty(); }
  std::string markdown() const;
  std::string latex() const;  // a tabular; needs \usepackage{booktabs}
  std::string html() const;

 private:
  std::vector<std::string> header_;
  size_t text_columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A figure as reports show it: "1.25", "98.0 %"; "n/a" where there is none.
std::string number_text(const std::optional<double>& value, int digits);
std::string percent_text(const std::optional<double>& share);

/// Characters that mean something to LaTeX, escaped.
std::string escape_latex(std::string_view text);

}  // namespace coppice
