// Draws plots with gnuplot (Debian: gnuplot-nox) as SVG that fits where it is shown: it takes the
// page's text colour, black on paper, and says in words what it shows.
//
//   draw_plots("report/plots", plots);   // writes NAME.svg, and plots.gp to change and draw again
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

struct Plot {
  std::string name;         // of the file, without .svg
  std::string title;        // a line
  std::string description;  // what it shows, for those who cannot see it
  int width = 720, height = 320;
  std::string script;  // between the terminal and the next plot; kInk is the text's colour
};

/// Stands in scripts for the colour of text and axes.
inline constexpr std::string_view kInk = "\"#010203\"";
/// The n-th of ten colours that are seen on white and on black, as a script writes it.
std::string_view series_colour(size_t n);
/// A text as a script writes it.
std::string gnuplot_text(std::string_view text);

/// Throws Error where gnuplot is not installed, Failure with its message where it fails.
void draw_plots(const std::filesystem::path& folder, std::span<const Plot> plots);

}  // namespace coppice
