// A timeline of steps that Perfetto (ui.perfetto.dev) and chrome://tracing open: the engine's
// phases on one lane, and a lane for each request. Source of the format: Google, "Trace Event
// Format", 2016: complete events ("ph": "X") in microseconds.
//
//   StepTrace trace("steps.json");
//   trace.begin("prompt_lookup");                   // a decoder: a process of the timeline
//   engine.on_step = [&](const StepRecord& r) { trace.add(r, "qa-02"); };
//   trace.end();
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "core/step_record.h"

namespace coppice {

class StepTrace {
 public:
  /// Throws Failure when the file cannot be written.
  explicit StepTrace(std::filesystem::path path);

  /// What follows is of another engine. Its clock is set behind all that was written before.
  void begin(std::string_view decoder);
  /// Records of one step come one after the other.
  void add(const StepRecord& step, std::string_view request);
  /// Throws Failure when not all could be written.
  void end();

 private:
  void event(std::string_view name, int lane, double start_ms, double ms, std::string_view args);
  void name(std::string_view kind, int process, int lane, std::string_view text);

  std::filesystem::path path_;
  std::ofstream out_;
  bool first_ = true;
  std::map<std::string, int, std::less<>> processes_;  // by decoder
  std::map<std::pair<int, std::string>, int> lanes_;
  int process_ = 0;
  double offset_ms_ = 0, engine_start_ms_ = -1, last_ms_ = 0, step_start_ms_ = -1;
};

}  // namespace coppice
