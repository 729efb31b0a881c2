// See train_options.h.
#include "experiments/training/train_options.h"

#include <nlohmann/json.hpp>

#include "experiments/config_json.h"
#include "experiments/toml_source.h"

namespace coppice {

TrainConfig read_train_config(const std::filesystem::path& path) {
  TrainConfig config;
  config.folder = path.parent_path();
  for (const ConfigTable& table : read_toml(path)) {
    if (table.name == "data") {
      config.data = read_options<DataOptions>(table.entries, table.place);
    } else if (table.name == "head") {
      config.head = read_options<HeadOptions>(table.entries, table.place);
    } else if (table.name == "train") {
      config.loop = read_options<LoopOptions>(table.entries, table.place);
    } else if (!table.entries.empty() || !table.name.empty()) {
      throw Error("{}: table [{}] is unknown; there are [data], [head] and [train]", table.place,
                  table.name);
    }
  }
  if (config.data.prompts.empty()) {
    throw Error("{}: [data] prompts is empty; name files of prompts", path.string());
  }
  return config;
}

std::string train_config_text(const TrainConfig& config) {
  return config_to_json({{"data", "", dump_options(config.data)},
                         {"head", "", dump_options(config.head)},
                         {"train", "", dump_options(config.loop)}})
      .dump();
}

}  // namespace coppice
