// See table.h.
#include "experiments/table.h"

#include <fmt/ranges.h>

#include "experiments/page.h"
#include "kernels/base/error.h"

namespace coppice {

void Table::add(std::vector<std::string> cells) {
  COPPICE_CHECK(cells.size() == header_.size());
  rows_.push_back(std::move(cells));
}

Table Table::under(const std::string& name, const std::string& cell) const {
  Table out = *this;
  out.header_.insert(out.header_.begin(), name);
  ++out.text_columns_;
  for (auto& row : out.rows_) row.insert(row.begin(), cell);
  return out;
}

void Table::append(const Table& other) {
  COPPICE_CHECK(other.header_ == header_);
  rows_.insert(rows_.end(), other.rows_.begin(), other.rows_.end());
}

std::string Table::markdown() const {
  std::string out = fmt::format("| {} |\n", fmt::join(header_, " | "));
  for (size_t i = 0; i < header_.size(); ++i) out += i < text_columns_ ? "|---" : "|---:";
  out += "|\n";
  for (const auto& row : rows_) out += fmt::format("| {} |\n", fmt::join(row, " | "));
  return out;
}

std::string Table::latex() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::vector<std::string> escaped;
    for (const std::string& cell : cells) escaped.push_back(escape_latex(cell));
    return fmt::format("{} \\\\\n", fmt::join(escaped, " & "));
  };
  std::string out = fmt::format("\\begin{{tabular}}{{{}{}}}\n\\toprule\n{}\\midrule\n",
                                std::string(text_columns_, 'l'),
                                std::string(header_.size() - text_columns_, 'r'), line(header_));
  for (const auto& row : rows_) out += line(row);
  return out + "\\bottomrule\n\\end{tabular}\n";
}

std::string Table::html() const {
  const auto cells = [this](const std::vector<std::string>& row, std::string_view tag) {
    std::string out;
    for (size_t i = 0; i < row.size(); ++i) {
      out += fmt::format("<{0}{1}>{2}</{0}>", tag, i < text_columns_ ? " class=\"text\"" : "",
                         escape_html(row[i]));
    }
    return out;
  };
  std::string out =
      fmt::format("<table><thead><tr>{}</tr></thead>\n<tbody>\n", cells(header_, "th"));
  for (const auto& row : rows_) out += fmt::format("<tr>{}</tr>\n", cells(row, "td"));
  return out + "</tbody></table>\n";
}

std::string number_text(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "n/a";
}
std::string percent_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100.0 * *share) : "n/a";
}

std::string escape_latex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\textbackslash{}";
        break;
      case '~':
        out += "\\textasciitilde{}";
        break;
      case '^':
        out += "\\textasciicircum{}";
        break;
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}':
        out += '\\';
        [[fallthrough]];
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace coppice
