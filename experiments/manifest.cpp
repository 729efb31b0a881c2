// See manifest.h.
#include "experiments/manifest.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "core/model_file.h"
#include "experiments/config_json.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Those that decide which kernels run.
constexpr std::string_view kFlags[] = {"avx2",        "fma",      "f16c",  "avx512f", "avx512bw",
                                       "avx512_vnni", "avx_vnni", "asimd", "asimddp"};

/// "model name	: AMD EPYC" of /proc/cpuinfo; empty when there is none.
std::string cpuinfo(std::string_view key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    return colon + 2 <= line.size() ? line.substr(colon + 2) : "";
  }
  return "";
}

/// An absolute path says where it lay on one machine: only the file's name is kept.
std::string without_folders(const std::string& text) {
  const fs::path path(text);
  return path.is_absolute() ? path.filename().string() : text;
}

}  // namespace

ordered_json describe_machine() {
  const std::string model = cpuinfo("model name");
  std::istringstream words(cpuinfo("flags") + " " + cpuinfo("Features"));
  std::set<std::string, std::less<>> has;
  for (std::string word; words >> word;) has.insert(word);
  ordered_json flags = ordered_json::array();
  for (const std::string_view flag : kFlags) {
    if (has.contains(flag)) flags.push_back(flag);
  }
  return {{"cpu", model.empty() ? "unknown" : model},
          {"cores", std::thread::hardware_concurrency()},
          {"flags", std::move(flags)}};
}

ordered_json describe_model(const LoadedModel& model) {
  const ModelIdentity identity = identify_model(model.path);
  return {{"name", model.name},
          {"file", model.path.filename().string()},
          {"bytes", identity.bytes},
          {"sha256", identity.sha256}};
}

ordered_json make_manifest(const BenchConfig& config, const LoadedModel& target,
                           const LoadedModel* draft, const Backend& backend,
                           std::span<const ArmInfo> arms, std::span<const Prompt* const> prompts) {
  BenchConfig portable = config;
  portable.model.path = without_folders(portable.model.path);
  portable.model.draft = without_folders(portable.model.draft);
  for (std::string& source : portable.bench.prompts) source = without_folders(source);

  ordered_json out = {{"schema", 1}, {"model", describe_model(target)}};
  if (draft != nullptr) out["draft_model"] = describe_model(*draft);
  out["machine"] = describe_machine();
  out["backend"] = backend.describe();
  out["versions"] = {{"coppice", COPPICE_VERSION}, {"compiler", __VERSION__}};
  for (const ArmInfo& arm : arms) {
    out["arms"].push_back({{"name", arm.name},
                           {"method", arm.method},
                           {"rule", arm.rule},
                           {"lossless", arm.lossless},
                           {"valid", arm.valid}});
  }
  out["config"] = config_to_json(dump_bench_config(portable));
  for (const Prompt* prompt : prompts) out["prompts"].push_back(prompt->id);
  return out;
}

std::vector<ArmInfo> arms_of(const ordered_json& manifest, std::string_view place) {
  std::vector<ArmInfo> arms;
  try {
    for (const auto& arm : manifest.at("arms")) {
      arms.push_back({arm.at("name"), arm.at("method"), arm.at("rule"), arm.at("lossless"),
                      arm.value("valid", true)});
    }
  } catch (const nlohmann::json::exception&) {
    arms.clear();
  }
  if (arms.empty()) throw Error("{}: lists no arms; give the folder of a run", place);
  return arms;
}

void check_same_run(const ordered_json& earlier, const ordered_json& now, std::string_view place) {
  for (const char* part : {"config", "model", "draft_model", "machine", "backend", "prompts"}) {
    const ordered_json before = earlier.value(part, ordered_json());
    const ordered_json after = now.value(part, ordered_json());
    if (before == after) continue;
    const ordered_json changes = ordered_json::diff(before, after);
    throw Error(
        "{}: the earlier run differs in {}{}; give its config again, or start anew with "
        "--overwrite",
        place, part, changes.at(0).at("path").get<std::string>());
  }
}

}  // namespace coppice
