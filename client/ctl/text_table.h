// Formats rows of text in aligned columns.
// Thread-safety: for one thread.
#ifndef SLOTWISE_CLIENT_CTL_TEXT_TABLE_H_
#define SLOTWISE_CLIENT_CTL_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace slotwise::ctl {

class TextTable {
 public:
  // A name that begins with '>' heads a column that is aligned to the right.
  explicit TextTable(const std::vector<std::string>& header);

  // REQUIRES: `row` has as many cells as the header.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // Returns lines that end in '\n'; columns are two spaces apart.
  std::string Text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // the first one is the header
};

// Formats a number as printf does. REQUIRES: the result has fewer than 64 characters.
std::string Format(const char* format, double value);

// Formats 1536 as "1.5 KiB".
std::string BytesText(std::uint64_t bytes);

// Formats 1234567 as "1,234,567".
std::string CountText(std::uint64_t count);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_TEXT_TABLE_H_
