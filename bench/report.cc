#include "bench/report.h"

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "bench/timing.h"

namespace slotwise::bench {
namespace {

nlohmann::ordered_json TimesToJson(const std::vector<double>& seconds) {
  return {{"seconds", Quantile(seconds, 0.5)},
          {"seconds_quartiles", {Quantile(seconds, 0.25), Quantile(seconds, 0.75)}},
          {"repeats", seconds.size()}};
}

nlohmann::ordered_json LineToJson(const Report& report, const Line& line) {
  nlohmann::ordered_json out{{"name", line.name}, {"keys", line.keys}};
  out.update(TimesToJson(line.seconds));
  const double median = Quantile(line.seconds, 0.5);
  out["keys_per_second"] = line.keys / median;
  out["keys_per_second_per_thread"] = line.keys / median / (report.ranks * report.threads);
  out["floor"] = {{"bytes", line.bytes}, {"seconds", line.floor_seconds}};
  out["times_floor"] = median / line.floor_seconds;
  out["peers"] = nlohmann::ordered_json::array();
  for (const PeerTime& peer : line.peers) {
    nlohmann::ordered_json p{{"name", peer.name}, {"threads", peer.threads}};
    p.update(TimesToJson(peer.seconds));
    p["keys_per_second"] = line.keys / Quantile(peer.seconds, 0.5);
    p["speedup"] = Speedup(line, peer);
    p["speedup_per_thread"] = SpeedupPerThread(report, line, peer);
    out["peers"].push_back(std::move(p));
  }
  return out;
}

nlohmann::ordered_json FigureToJson(const Figure& figure) {
  nlohmann::ordered_json out{{"name", figure.name}, {"value", figure.value}};
  if (figure.at_least != 0) out["at_least"] = figure.at_least;
  if (figure.at_most != 0) out["at_most"] = figure.at_most;
  if (out.size() > 2) out["met"] = figure.is_met();
  return out;
}

void PrintFigure(const Figure& figure) {
  std::printf("%-62s %10.3f", figure.name.c_str(), figure.value);
  if (figure.at_least != 0) std::printf("   goal: at least %.2f", figure.at_least);
  if (figure.at_most != 0) std::printf("   goal: at most %.2f", figure.at_most);
  if (!figure.is_met()) std::printf(": missed");
  std::printf("\n");
}

void PrintRow(const std::string& name, const std::vector<double>& seconds, double keys) {
  const double median = Quantile(seconds, 0.5);
  std::printf("%-28s %10.3f ms %8.3f - %-8.3f %10.2f", name.c_str(), median * 1e3,
              Quantile(seconds, 0.25) * 1e3, Quantile(seconds, 0.75) * 1e3, keys / median / 1e6);
}

}  // namespace

double Speedup(const Line& line, const PeerTime& peer) {
  return Quantile(peer.seconds, 0.5) / Quantile(line.seconds, 0.5);
}

double SpeedupPerThread(const Report& report, const Line& line, const PeerTime& peer) {
  return Speedup(line, peer) * peer.threads / (report.ranks * report.threads);
}

void Print(const Report& report) {
  std::printf("%s\n", report.title.c_str());
  std::printf("%s, %d rank%s of %d thread%s; a rank's memory: copy %.1f GB/s, %.1f M random lines/s\n\n",
              report.device.c_str(), report.ranks, report.ranks == 1 ? "" : "s", report.threads,
              report.threads == 1 ? "" : "s", report.copy_bytes_per_second / 1e9,
              report.random_lines_per_second / 1e6);
  std::printf("%-28s %13s %19s %10s   %s\n", "", "median", "quartiles, ms", "M keys/s", "ours is");
  for (const Line& line : report.lines) {
    PrintRow(line.name, line.seconds, line.keys);
    std::printf("   %.2f x the floor of %.3f ms\n", Quantile(line.seconds, 0.5) / line.floor_seconds,
                line.floor_seconds * 1e3);
    for (const PeerTime& peer : line.peers) {
      PrintRow("  " + peer.name, peer.seconds, line.keys);
      std::printf("   %.2f times as fast, %.2f times a thread\n", Speedup(line, peer),
                  SpeedupPerThread(report, line, peer));
    }
  }
  if (!report.figures.empty()) std::printf("\n");
  for (const Figure& figure : report.figures) PrintFigure(figure);
  for (const std::string& note : report.notes) std::printf("\n%s\n", note.c_str());
}

void WriteJson(const Report& report, const std::string& path) {
  nlohmann::ordered_json out{{"benchmark", report.benchmark},
                             {"version", SLOTWISE_VERSION},
                             {"options", report.options},
                             {"device", report.device},
                             {"ranks", report.ranks},
                             {"threads", report.threads},
                             {"checked", true},  // a wrong result prevents the report
                             {"memory",
                              {{"copy_bytes_per_second", report.copy_bytes_per_second},
                               {"random_lines_per_second", report.random_lines_per_second}}},
                             {"results", nlohmann::ordered_json::array()},
                             {"figures", nlohmann::ordered_json::array()},
                             {"notes", report.notes}};
  for (const Line& line : report.lines) out["results"].push_back(LineToJson(report, line));
  for (const Figure& figure : report.figures) out["figures"].push_back(FigureToJson(figure));
  std::ofstream file(path);
  file << out.dump(2) << "\n";
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace slotwise::bench
