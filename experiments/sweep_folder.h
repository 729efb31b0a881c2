// The folder of a sweep: OUT/sweep.json says what is swept and how far it is; OUT/cells/HASH is the
// run folder of a cell, and cell.json in it says, once it is there, how the cell ended.
//
//   SweepFolder folder("results/draft_length", Existing::refuse);
//   if (folder.state(cell.hash).status == CellStatus::done) continue;
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "experiments/run_folder.h"
#include "experiments/sweep.h"

namespace coppice {

enum class CellStatus { waiting, done, failed };

struct CellState {
  CellStatus status = CellStatus::waiting;
  double seconds = 0;
  std::string error;            // of a failed one: one line
  std::optional<double> drift;  // see baseline_drift()
};

/// Holds a folder for one process while it lives, across machines where the file system locks.
class FolderLock {
 public:
  /// Throws Error when another process holds it.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;

 private:
  int fd_;
};

class SweepFolder {
 public:
  /// A folder that holds a sweep is gone on with, unless `existing` is overwrite: its cells are
  /// then removed. Any other folder with files in it is refused. Throws Error or Failure.
  SweepFolder(std::filesystem::path path, Existing existing);

  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path cell(std::string_view hash) const { return path() / "cells" / hash; }
  CellState state(std::string_view hash) const;
  /// Makes the cell's folder where it is missing. Throws Failure when it cannot be written.
  void set_state(const Sweep& sweep, const SweepCell& cell, const CellState& state) const;
  void forget_state(std::string_view hash) const;
  /// Writes sweep.json and report.md from what the cells' folders hold.
  void write_report(const Sweep& sweep) const;

 private:
  RunFolder folder_;
};

bool holds_sweep(const std::filesystem::path& folder);

}  // namespace coppice
