// What a benchmark found: for people on stdout, for programs as JSON.
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

// One operation that was timed.
struct Line {
  std::string name;
  double keys = 0;  // a run, over all ranks
  std::vector<double> seconds;
  double bytes = 0;          // the least that must move through a rank's memory
  double floor_seconds = 0;  // and how long that takes
  std::vector<PeerTime> peers;
};

struct Report {
  std::string benchmark;
  std::string title;  // one line: what was measured on what
  nlohmann::ordered_json options;
  std::string device;
  int ranks = 1;
  int threads = 1;                     // a rank
  double copy_bytes_per_second = 0;    // of a rank's memory
  double random_lines_per_second = 0;  // likewise
  std::vector<Line> lines;
  std::vector<std::string> notes;  // what the reader must know: a peer that is missing, what a line includes
};

// Speed of ours over the peer's, by medians; and the same a thread.
double Speedup(const Line& line, const PeerTime& peer);
double SpeedupPerThread(const Report& report, const Line& line, const PeerTime& peer);

void Print(const Report& report);

// Throws std::runtime_error if the file cannot be written.
void WriteJson(const Report& report, const std::string& path);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_REPORT_H_
