#include "server/ops/config_errors.h"

#include <algorithm>
#include <utility>

namespace slotwise {
namespace {

// Text from a file may have any bytes: none of them may end a line or move a terminal's cursor.
std::string OnOneLine(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte != 0x7f) {
      line += c;
    } else {
      line.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    }
  }
  return line;
}

}  // namespace

std::string ConfigPlace::str() const {
  if (source.empty()) return {};
  if (line == 0) return source + ": ";
  return source + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
}

void ConfigErrors::Add(const ConfigPlace& place, const std::string& what) {
  errors_.push_back({place.line, place.column, OnOneLine(place.str() + what)});
}

void ConfigErrors::Warn(const ConfigPlace& place, const std::string& what) {
  warnings_.push_back({place.line, place.column, OnOneLine(place.str() + what)});
}

std::vector<std::string> ConfigErrors::Sorted(std::vector<Sentence> sentences) {
  std::ranges::stable_sort(sentences, {},
                           [](const Sentence& one) { return std::pair(one.line, one.column); });
  std::vector<std::string> texts;
  for (Sentence& one : sentences) texts.push_back(std::move(one.text));
  return texts;
}

Status ConfigErrors::status() const {
  std::string all;
  for (const std::string& error : Errors()) all += (all.empty() ? "" : "\n") + error;
  return empty() ? Status() : InvalidArgument(all);
}

}  // namespace slotwise
