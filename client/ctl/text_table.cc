#include "client/ctl/text_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace slotwise::ctl {

TextTable::TextTable(const std::vector<std::string>& header) : rows_(1) {
  for (const std::string& name : header) {
    right_.push_back(name.starts_with('>'));
    rows_[0].push_back(right_.back() ? name.substr(1) : name);
  }
}

std::string TextTable::Text() const {
  std::vector<std::size_t> widths(right_.size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      line += (c > 0 ? "  " : "") + (right_[c] ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string Format(const char* format, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string BytesText(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return Format(unit == 0 ? "%.0f " : "%.1f ", value) + kUnits[unit];
}

std::string CountText(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t place = text.size(); place > 3; place -= 3) text.insert(place - 3, ",");
  return text;
}

}  // namespace slotwise::ctl
