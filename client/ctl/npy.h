// Reads and writes NumPy's .npy files (https://numpy.org/neps/nep-0001-npy-format.html) of one number type,
// in pieces, so that this process never holds a whole table in memory.
// Thread-safety: for one thread.
#ifndef SLOTWISE_CLIENT_CTL_NPY_H_
#define SLOTWISE_CLIENT_CTL_NPY_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "client/ctl/regular_file.h"
#include "slotwise/npy_header.h"
#include "slotwise/status.h"

namespace slotwise::ctl {

// Parses the shape in a header's dictionary, as NumPy writes it: "{'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }". INVALID_ARGUMENT: another type or order, or not such a dictionary.
Result<NpyShape> ParseNpyDictionary(std::string_view dictionary, std::string_view type);

// Writes rows of `type`. Close writes the number of rows, which is known only then, into the header.
class NpyWriter {
 public:
  NpyWriter(const std::string& path, std::string type, std::optional<std::uint64_t> width);

  void Append(std::uint64_t rows, std::span<const std::byte> bytes);
  std::uint64_t rows() const { return shape_.rows; }
  // Returns UNAVAILABLE, with the file's name, if a part of the file could not be written.
  Status Close();

 private:
  const std::string path_;
  const std::string type_;
  NpyShape shape_;
  std::ofstream file_;
};

class NpyReader {
 public:
  // Opens a file, and never blocks. NOT_FOUND: there is no file. INVALID_ARGUMENT: the file is not a regular
  // one, is not a .npy file of `type`, does not have one dimension (two if `matrix`), or does not have the
  // length that its header says.
  static Result<NpyReader> Open(const std::string& path, std::string_view type, bool matrix);

  const NpyShape& shape() const { return shape_; }
  // Reads the next bytes of the array. Returns UNAVAILABLE if they cannot be read.
  Status Read(std::span<std::byte> bytes);

 private:
  NpyReader(std::string path, RegularFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  RegularFile file_;
  NpyShape shape_;
};

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_NPY_H_
