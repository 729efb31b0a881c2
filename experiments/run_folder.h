// The folder a run writes to. Whole files appear complete or not at all; lines are appended whole.
//
//   RunFolder folder("results/quickstart", Existing::resume);
//   folder.append("prompts.jsonl", line);
//   folder.write_whole("report.md", text);
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace coppice {

enum class Existing { refuse, overwrite, resume };

/// Writes beside the file and renames. Throws Failure naming the file and the system's reason.
void write_whole_file(const std::filesystem::path& path, std::string_view text);
/// Throws Failure when the file cannot be read.
std::string read_whole_file(const std::filesystem::path& path);

class RunFolder {
 public:
  /// Makes the folder. Throws Error when it holds files and `existing` is refuse, Failure when it
  /// cannot be made or written. `overwrite` removes the files of an earlier run, no others.
  RunFolder(std::filesystem::path path, Existing existing);

  const std::filesystem::path& path() const { return path_; }
  bool has(std::string_view name) const;
  std::string read(std::string_view name) const { return read_whole_file(path_ / name); }
  void write_whole(std::string_view name, std::string_view text) const {
    write_whole_file(path_ / name, text);
  }
  /// Appends to the file and hands it to the system. When not all of it fits, none of it stays and
  /// a Failure says how to resume.
  void append(std::string_view name, std::string_view lines) const;

 private:
  std::filesystem::path path_;
};

}  // namespace coppice
