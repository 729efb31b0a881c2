// See command_line.h.
#include "experiments/command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>

#include "core/quote.h"
#include "experiments/toml_source.h"

namespace coppice {
namespace {

namespace po = boost::program_options;

std::string dashed(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string underscored(std::string_view name) {
  std::string key(name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

bool is_switch(const OptionDoc& doc) {
  return doc.type == "true or false";
}

OptionValue value_of(const OptionDoc& doc, const std::string& text) {
  if (doc.type == "text") return text;
  const bool is_word = !text.empty() && std::isalpha(static_cast<unsigned char>(text.front()));
  if (doc.type == kIntegerOrWord && is_word) return text;
  return parse_value(doc.type.starts_with("list") ? "[" + text + "]" : text);  // --ids 1,2,3
}

}  // namespace

CommandLine::CommandLine(std::string command, std::string summary, std::string examples)
    : command_(std::move(command)), summary_(std::move(summary)), examples_(std::move(examples)) {}

void CommandLine::add_group(std::string heading, std::vector<OptionDoc> docs) {
  groups_.push_back({std::move(heading), std::move(docs)});
}

void CommandLine::positional(std::string key, bool many) {
  COPPICE_CHECK(find(key) != nullptr);
  positional_ = std::move(key);
  positional_many_ = many;
}

const OptionDoc* CommandLine::find(std::string_view key) const {
  for (const Group& group : groups_) {
    for (const OptionDoc& doc : group.docs) {
      if (doc.key == key) return &doc;
    }
  }
  return nullptr;
}

bool CommandLine::parse(std::span<const std::string> args) {
  po::options_description options;
  options.add_options()("help,h", "");
  std::vector<std::string> names = {"--help"};
  for (const Group& group : groups_) {
    for (const OptionDoc& doc : group.docs) {
      const std::string name = dashed(doc.key);
      names.push_back("--" + name);
      if (is_switch(doc)) {
        options.add_options()(name.c_str(), "");
      } else {
        options.add_options()(name.c_str(), po::value<std::vector<std::string>>(), "");
      }
    }
  }
  po::positional_options_description positions;
  if (!positional_.empty()) positions.add(dashed(positional_).c_str(), positional_many_ ? -1 : 1);

  po::parsed_options parsed(&options);
  try {
    using Style = po::command_line_style::style_t;
    // Guessing is off: --temperatur is no --temperature.
    const auto style = static_cast<Style>(po::command_line_style::default_style &
                                          ~po::command_line_style::allow_guessing);
    parsed = po::command_line_parser(std::vector<std::string>(args.begin(), args.end()))
                 .options(options)
                 .positional(positions)
                 .style(style)
                 .run();
  } catch (const po::unknown_option& unknown) {
    const std::vector<std::string_view> known(names.begin(), names.end());
    throw Error("{}: unknown option {}{}", command_, quote(unknown.get_option_name()),
                suggest_word(unknown.get_option_name(), known));
  } catch (const po::too_many_positional_options_error&) {
    throw Error("{}: too many arguments; see {} --help", command_, command_);
  } catch (const po::error& error) {
    throw Error("{}: {}; see {} --help", command_, error.what(), command_);
  }
  given_.clear();
  for (const po::option& option : parsed.options) {
    if (option.string_key == "help") {
      fmt::print("{}", help());
      return false;
    }
    const std::string key = underscored(option.string_key);
    const OptionDoc& doc = *find(key);
    const std::string place = "--" + option.string_key;
    const auto earlier = std::find_if(given_.begin(), given_.end(),
                                      [&](const OptionEntry& entry) { return entry.key == key; });
    if (is_switch(doc)) {
      given_.push_back({key, true, place});
    } else if (doc.type == "list of texts") {  // --stop A --stop B
      if (earlier == given_.end()) given_.push_back({key, std::vector<std::string>(), place});
      OptionEntry& entry = *std::find_if(given_.begin(), given_.end(),
                                         [&](const OptionEntry& e) { return e.key == key; });
      auto& values = std::get<std::vector<std::string>>(entry.value);
      values.insert(values.end(), option.value.begin(), option.value.end());
    } else {
      if (earlier != given_.end()) throw Error("{}: given twice; give it once", place);
      const std::string& text = option.value.front();
      given_.push_back({key, value_of(doc, text), place});
    }
  }
  return true;
}

OptionMap CommandLine::given(std::span<const OptionDoc> docs) const {
  OptionMap map;
  for (const OptionEntry& entry : given_) {
    const bool wanted = std::any_of(docs.begin(), docs.end(),
                                    [&](const OptionDoc& doc) { return doc.key == entry.key; });
    if (wanted) map.push_back(entry);
  }
  return map;
}

bool CommandLine::has(std::string_view key) const {
  return std::any_of(given_.begin(), given_.end(),
                     [&](const OptionEntry& entry) { return entry.key == key; });
}

std::string CommandLine::help() const {
  std::string text = fmt::format("{}\n\nusage: {}", summary_, command_);
  if (!positional_.empty()) {
    std::string name = positional_;
    std::transform(name.begin(), name.end(), name.begin(), ::toupper);
    text += fmt::format(" [{}{}]", name, positional_many_ ? "..." : "");
  }
  text += " [options]\n";
  for (const Group& group : groups_) {
    text += fmt::format("\n{}:\n", group.heading);
    for (const OptionDoc& doc : group.docs) {
      const std::string value = is_switch(doc) ? "" : " VALUE";
      std::string notes;
      const bool has_default = !doc.default_value.empty() && doc.default_value != "\"\"" &&
                               doc.default_value != "[]" && !is_switch(doc);
      if (has_default) notes = "default " + doc.default_value;
      if (!doc.range.empty()) notes += (notes.empty() ? "" : ", ") + doc.range;
      text += fmt::format("  {:<26} {}{}\n", "--" + dashed(doc.key) + value, doc.help,
                          notes.empty() ? "" : fmt::format(" ({})", notes));
    }
  }
  text += fmt::format("  {:<26} this page\n\nexamples:\n{}", "--help", examples_);
  return text;
}

}  // namespace coppice
