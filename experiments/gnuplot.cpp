// See gnuplot.h.
#include "experiments/gnuplot.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "experiments/page.h"
#include "experiments/run_folder.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStyle = R"(reset
set border 3 lc rgb INK
set tics nomirror tc rgb INK
set key tc rgb INK noenhanced Left reverse samplen 2
set grid lc rgb "#8a9199" lw 0.5 dt 3
set title tc rgb INK
)";

std::string replace_all(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

struct Output {
  int status;
  std::string text;
};
/// Of a shell's command line.
Output run_shell(const std::string& line) {
  FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw Failure("no process can be started");
  Output out{0, ""};
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    out.text.append(buffer.data(), n);
  }
  const int ended = ::pclose(pipe);
  out.status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128;
  return out;
}

/// gnuplot's file, made fit for a page: our words, the page's colour, ids that no other plot has.
std::string finished(const Plot& plot, std::string svg) {
  const size_t begin = svg.find("<title>");
  const std::string end_of = "</desc>";
  const size_t end = svg.find(end_of);
  if (begin == std::string::npos || end == std::string::npos) {
    throw Failure("gnuplot wrote no SVG for {}", plot.name);
  }
  svg.replace(begin, end + end_of.size() - begin,
              fmt::format("<title id=\"{0}-title\">{1}</title>\n<desc id=\"{0}-desc\">{2}</desc>",
                          plot.name, escape_html(plot.title), escape_html(plot.description)));
  svg.replace(svg.find("<svg"), 4,
              fmt::format("<svg role=\"img\" aria-labelledby=\"{0}-title {0}-desc\"", plot.name));
  svg = replace_all(std::move(svg), "rgb(  1,   2,   3)", "currentColor");
  svg = replace_all(std::move(svg), "rgb(1,2,3)", "currentColor");
  svg = replace_all(std::move(svg), "color=\"black\"", "color=\"inherit\"");
  for (const char* id : {"gp", "gnuplot_", "textbox", "greybox"}) {
    for (const char* before : {"'", "\"", "#"}) {
      svg = replace_all(std::move(svg), fmt::format("{}{}", before, id),
                        fmt::format("{}{}-{}", before, plot.name, id));
    }
  }
  return svg;
}

}  // namespace

std::string_view series_colour(size_t n) {
  constexpr std::string_view kColours[] = {
      "\"#3b82c4\"", "\"#d9822b\"", "\"#2f9e6e\"", "\"#c0568f\"", "\"#8a6fd1\"",
      "\"#1f9fa8\"", "\"#8f8f2a\"", "\"#d4574e\"", "\"#a9744f\"", "\"#7f8a95\""};
  return kColours[n % std::size(kColours)];
}

std::string gnuplot_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + '"';
}

void draw_plots(const fs::path& folder, std::span<const Plot> plots) {
  if (std::system("command -v gnuplot > /dev/null 2>&1") != 0) {
    throw Error("plots are drawn by gnuplot, which is missing; apt-get install gnuplot-nox");
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Failure("{}: cannot be made: {}", folder.string(), error.message());
  std::string script = "# gnuplot plots.gp\n";
  for (const Plot& plot : plots) {
    script += fmt::format(
        "\n# {}\nset terminal svg size {},{} dynamic noenhanced font \"sans-serif,13\" rounded\n"
        "set output \"{}.svg\"\n{}{}",
        plot.title, plot.width, plot.height, plot.name,
        replace_all(std::string(kStyle), "INK", kInk), plot.script);
  }
  write_whole_file(folder / "plots.gp", script + "set output\n");
  const std::string place = replace_all(folder.string(), "'", "'\\''");
  const Output ran = run_shell(fmt::format("cd '{}' && gnuplot plots.gp 2>&1", place));
  if (ran.status != 0) {
    throw Failure("gnuplot could not draw {}: {}", (folder / "plots.gp").string(), ran.text);
  }
  for (const Plot& plot : plots) {
    const fs::path file = folder / (plot.name + ".svg");
    write_whole_file(file, finished(plot, read_whole_file(file)));
  }
}

}  // namespace coppice
