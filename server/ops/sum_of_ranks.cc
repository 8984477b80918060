#include "server/ops/sum_of_ranks.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <unordered_map>

#include "server/ops/metrics_text.h"

namespace slotwise {
namespace {

enum class How { kSum, kLargest, kSmallest, kNone };

How HowToAdd(std::string_view name) {
  // Every rank counts these alike, or they belong to the whole server, or the worst rank's value matters.
  constexpr std::array<std::string_view, 16> kLargest{"slotwise_ranks",
                                                      "slotwise_start_time_seconds",
                                                      "slotwise_round_busy_seconds",
                                                      "slotwise_table_max_rows",
                                                      "slotwise_table_evicts",
                                                      "slotwise_table_steps_total",
                                                      "slotwise_table_youngest_evicted_age_steps",
                                                      "slotwise_incomplete_steps",
                                                      "slotwise_journal_failed",
                                                      "slotwise_journal_blocked",
                                                      "slotwise_journal_appended_round",
                                                      "slotwise_checkpoint_under_way",
                                                      "slotwise_checkpoint_age_seconds",
                                                      "slotwise_checkpoint_bytes",
                                                      "slotwise_data_folder_bytes",
                                                      "slotwise_table_batches_total"};
  if (name == "slotwise_table_hot_keys_share") return How::kNone;
  // All ranks see one data folder.
  if (name == "slotwise_journal_durable_round" || name == "slotwise_data_folder_free_bytes")
    return How::kSmallest;
  const bool largest = std::ranges::count(kLargest, name) > 0 || name == "slotwise_checkpoint_rows" ||
                       name == "slotwise_checkpoints_total" ||
                       name.starts_with("slotwise_checkpoint_duration_seconds");
  return largest ? How::kLargest : How::kSum;
}

// Returns a series, "NAME{LABELS}", without the rank's label, which is the first label.
std::string WithoutRank(std::string_view series) {
  constexpr std::string_view kRank = "{rank=\"";
  const std::size_t at = series.find(kRank);
  if (at == std::string_view::npos) return std::string(series);
  const std::size_t end = series.find('"', at + kRank.size());
  if (end == std::string_view::npos) return std::string(series);
  std::string_view rest = series.substr(end + 1);
  if (rest == "}") return std::string(series.substr(0, at));
  if (rest.starts_with(',')) rest.remove_prefix(1);
  return std::string(series.substr(0, at)) + "{" + std::string(rest);
}

struct Line {
  std::string series;  // of a comment: the whole line
  bool is_comment = false;
  double value = 0;
  How how = How::kSum;
};

std::vector<Line> LinesOf(std::string_view text) {
  std::vector<Line> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    if (line.starts_with('#')) {
      // "# HELP NAME ..." and "# TYPE NAME ..."
      const std::string_view behind = line.substr(std::min(line.size(), std::size_t{7}));
      lines.push_back({.series = std::string(line),
                       .is_comment = true,
                       .how = HowToAdd(behind.substr(0, behind.find(' ')))});
      continue;
    }
    const std::size_t space = line.rfind(' ');
    if (space == std::string_view::npos) continue;
    const std::string_view series = line.substr(0, space);
    lines.push_back({.series = WithoutRank(series),
                     .value = std::strtod(std::string(line.substr(space + 1)).c_str(), nullptr),
                     .how = HowToAdd(series.substr(0, series.find('{')))});
  }
  return lines;
}

}  // namespace

std::string SumOfRanks(const std::vector<std::string>& texts) {
  std::vector<Line> sums = LinesOf(texts.front());
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < sums.size(); ++i) places.emplace(sums[i].series, i);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    for (Line& line : LinesOf(texts[rank])) {
      // A series that only another rank has, such as a new table's, is added at the end.
      const auto [place, is_new] = places.emplace(line.series, sums.size());
      if (is_new) {
        sums.push_back(std::move(line));
        continue;
      }
      if (line.is_comment) continue;
      double& value = sums[place->second].value;
      value = line.how == How::kLargest    ? std::max(value, line.value)
              : line.how == How::kSmallest ? std::min(value, line.value)
                                           : value + line.value;
    }
  }
  std::string text;
  for (const Line& line : sums) {
    if (line.how == How::kNone) continue;
    text += line.series;
    if (!line.is_comment) text.append(" ").append(NumberText(line.value));
    text += '\n';
  }
  return text;
}

}  // namespace slotwise
