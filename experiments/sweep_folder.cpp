// See sweep_folder.h.
#include "experiments/sweep_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "experiments/sweep_report.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kStatusNames[] = {"waiting", "done", "failed"};

Existing existing_for(const fs::path& path, Existing asked) {
  return asked != Existing::overwrite && holds_sweep(path) ? Existing::resume : asked;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Failure("{}: cannot be made: {}", path.string(), error.message());
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) throw Failure("{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  throw Error("{}: another process is at work here; wait for it, or name another folder with --out",
              folder.string());
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

bool holds_sweep(const fs::path& folder) {
  std::error_code error;
  // The second: a kill came while the first record was written.
  return fs::exists(folder / "sweep.json", error) ||
         fs::exists(folder / "sweep.json.writing", error);
}

SweepFolder::SweepFolder(fs::path path, Existing existing)
    : folder_(path, existing_for(path, existing)) {
  std::error_code error;
  if (existing == Existing::overwrite) fs::remove_all(path / "cells", error);
}

CellState SweepFolder::state(std::string_view hash) const {
  CellState state;
  std::error_code error;
  const fs::path path = cell(hash) / "cell.json";
  if (!fs::exists(path, error)) return state;
  const json read = json::parse(read_whole_file(path), nullptr, false);
  if (!read.is_object()) return state;
  const std::string status = read.value("status", "");
  state.status = status == "done"     ? CellStatus::done
                 : status == "failed" ? CellStatus::failed
                                      : CellStatus::waiting;
  state.seconds = read.value("seconds", 0.0);
  state.error = read.value("error", "");
  if (read.contains("drift")) state.drift = read["drift"].get<double>();
  return state;
}

void SweepFolder::set_state(const Sweep& sweep, const SweepCell& cell,
                            const CellState& state) const {
  ordered_json axes = ordered_json::object();
  for (size_t i = 0; i < sweep.axes.size(); ++i) axes[sweep.axes[i].key] = cell.values[i];
  ordered_json out = {{"schema", 1},
                      {"axes", std::move(axes)},
                      {"status", kStatusNames[static_cast<size_t>(state.status)]},
                      {"seconds", state.seconds}};
  if (!state.error.empty()) out["error"] = state.error;
  if (state.drift) out["drift"] = *state.drift;
  make_folder(this->cell(cell.hash));
  write_whole_file(this->cell(cell.hash) / "cell.json", out.dump(2) + "\n");
}

void SweepFolder::forget_state(std::string_view hash) const {
  std::error_code error;
  fs::remove(cell(hash) / "cell.json", error);
}

void SweepFolder::write_report(const Sweep& sweep) const {
  ordered_json axes = ordered_json::array(), cells = ordered_json::array();
  for (const SweepAxis& axis : sweep.axes) {
    axes.push_back({{"key", axis.key}, {"path", axis.path}, {"values", axis.values}});
  }
  for (const SweepCell& cell : sweep.cells) {
    const CellState now = state(cell.hash);
    cells.push_back({{"cell", cell.hash},
                     {"values", cell.values},
                     {"status", kStatusNames[static_cast<size_t>(now.status)]}});
    if (!now.error.empty()) cells.back()["error"] = now.error;
  }
  const ordered_json record = {{"schema", 1},
                               {"name", sweep.name},
                               {"combine", sweep.combine},
                               {"axes", std::move(axes)},
                               {"cells", std::move(cells)}};
  folder_.write_whole("sweep.json", record.dump(2) + "\n");
  folder_.write_whole("report.md", sweep_report(path()));
}

}  // namespace coppice
