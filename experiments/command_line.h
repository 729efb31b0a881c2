// A command's line: options declared from the structs they fill, parsed with Boost.Program_options,
// with one help page for all of them.
//
//   CommandLine line("coppice generate", "Streams a model's answer.", kExamples);
//   line.add<GenerateOptions>("Request");
//   if (!line.parse(args)) return 0;          // --help was printed
//   auto options = line.read<GenerateOptions>();
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.h"

namespace coppice {

class CommandLine {
 public:
  CommandLine(std::string command, std::string summary, std::string examples);

  /// Every field of Options as --its-key VALUE; a boolean field is a switch.
  template <class Options>
  void add(std::string heading) {
    add_group(std::move(heading), describe_options<Options>());
  }
  /// An argument without a dash, for the field of that key: `coppice inspect FILE`. `many`: all
  /// that follow; the field is a list of texts.
  void positional(std::string key, bool many = false);

  /// False when --help was asked for and printed. Throws Error for what is no option.
  bool parse(std::span<const std::string> args);
  template <class Options>
  Options read() const {
    return read_options<Options>(given(describe_options<Options>()), command_);
  }
  bool has(std::string_view key) const;
  std::string help() const;

 private:
  struct Group {
    std::string heading;
    std::vector<OptionDoc> docs;
  };
  void add_group(std::string heading, std::vector<OptionDoc> docs);
  OptionMap given(std::span<const OptionDoc> docs) const;
  const OptionDoc* find(std::string_view key) const;

  std::string command_, summary_, examples_;
  std::vector<Group> groups_;
  std::string positional_;
  bool positional_many_ = false;
  OptionMap given_;
};

}  // namespace coppice
