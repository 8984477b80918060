// A Report holds a benchmark's results. It is printed on stdout for people, and written as JSON for programs.
#ifndef SLOTWISE_BENCH_REPORT_H_
#define SLOTWISE_BENCH_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace slotwise::bench {

struct PeerTime {
  std::string name;
  int threads = 1;
  std::vector<double> seconds;
};

// A timed operation.
struct Line {
  std::string name;
  double keys = 0;  // in one run, over all ranks
  std::vector<double> seconds;
  double bytes = 0;          // the least that must move through a rank's memory
  double floor_seconds = 0;  // the least time that moving the bytes takes
  std::vector<PeerTime> peers;
};

// A number that has a goal, or that belongs to no line.
struct Figure {
  std::string name;
  double value = 0;
  // The goal: at least or at most this value; 0: there is no goal.
  double at_least = 0;
  double at_most = 0;

  bool is_met() const { return value >= at_least && (at_most == 0 || value <= at_most); }
};

struct Report {
  std::string benchmark;
  std::string title;  // one line: what was measured, and on what
  nlohmann::ordered_json options;
  std::string device;
  int ranks = 1;
  int threads = 1;                     // of each rank
  double copy_bytes_per_second = 0;    // of a rank's memory
  double random_lines_per_second = 0;  // of a rank's memory
  std::vector<Line> lines;
  std::vector<Figure> figures;
  // Notes for the reader: for example a missing peer, or what a line includes.
  std::vector<std::string> notes;
};

// Returns the peer's median time divided by ours; the second function scales both to one thread.
double Speedup(const Line& line, const PeerTime& peer);
double SpeedupPerThread(const Report& report, const Line& line, const PeerTime& peer);

void Print(const Report& report);

// Throws std::runtime_error if the file cannot be written.
void WriteJson(const Report& report, const std::string& path);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_REPORT_H_
