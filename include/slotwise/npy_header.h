// Makes the header of NumPy's .npy files (https://numpy.org/neps/nep-0001-npy-format.html), as Slotwise
// writes them: format 1.0, 128 bytes.
// Thread-safety: free functions and plain values.
#ifndef SLOTWISE_NPY_HEADER_H_
#define SLOTWISE_NPY_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "slotwise/sizing.h"

namespace slotwise {

// A file begins with the magic. In format 1.0, kNpyPreambleBytes bytes stand before the header's dictionary:
// the magic, the version and the dictionary's length.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
inline constexpr std::size_t kNpyPreambleBytes = 10;

// The shape in a file's header. `width` is the numbers a row, or nullopt for an array of one dimension.
struct NpyShape {
  std::uint64_t rows = 0;
  std::optional<std::uint64_t> width = {};

  friend bool operator==(const NpyShape&, const NpyShape&) = default;
};

// Returns the header of a file of `type`: "<u8", "<f4", ...
inline std::string NpyHeader(std::string_view type, const NpyShape& shape) {
  std::string header(kNpyMagic);
  header += {'\x01', '\x00', static_cast<char>(sizing::kNpyHeaderBytes - kNpyPreambleBytes), '\x00'};
  header += "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (" +
            std::to_string(shape.rows) + ", " + (shape.width ? std::to_string(*shape.width) : "") + "), }";
  header.resize(sizing::kNpyHeaderBytes - 1, ' ');
  return header + '\n';
}

}  // namespace slotwise

#endif  // SLOTWISE_NPY_HEADER_H_
