#include "client/ctl/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>
#include <vector>

namespace slotwise::ctl {
namespace {

constexpr std::uint32_t kLargestDictionary = 1 << 16;

std::string_view Trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Returns the text after `'key':`, up to the dictionary's end.
std::string_view TextAfterKey(std::string_view dictionary, std::string_view key) {
  const auto place = dictionary.find("'" + std::string(key) + "'");
  if (place == std::string_view::npos) return {};
  const std::string_view rest = Trim(dictionary.substr(place + key.size() + 2));
  return rest.starts_with(':') ? Trim(rest.substr(1)) : std::string_view();
}

// Parses the numbers between the brackets of "(3, 4)" or "(3,)".
std::optional<std::vector<std::uint64_t>> Tuple(std::string_view text) {
  const auto end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) return std::nullopt;
  std::string_view inside = Trim(text.substr(1, end - 1));
  std::vector<std::uint64_t> numbers;
  while (!inside.empty()) {
    std::uint64_t number = 0;
    const auto [rest, error] = std::from_chars(inside.data(), inside.data() + inside.size(), number);
    if (error != std::errc()) return std::nullopt;
    numbers.push_back(number);
    inside = Trim(inside.substr(static_cast<std::size_t>(rest - inside.data())));
    if (inside.empty()) break;
    if (!inside.starts_with(',')) return std::nullopt;
    inside = Trim(inside.substr(1));
  }
  return numbers;
}

std::uint64_t ElementBytes(std::string_view type) { return type == "<u8" ? 8 : 4; }

}  // namespace

Result<NpyShape> ParseNpyDictionary(std::string_view dictionary, std::string_view type) {
  const std::string_view text = Trim(dictionary);
  if (!text.starts_with('{') || !text.ends_with('}')) return InvalidArgument("the header has no dictionary");
  const std::string wanted = "'" + std::string(type) + "'";
  if (!TextAfterKey(text, "descr").starts_with(wanted)) return InvalidArgument("the type is not " + wanted);
  if (!TextAfterKey(text, "fortran_order").starts_with("False"))
    return InvalidArgument("the order is Fortran's, not C's");
  const auto numbers = Tuple(TextAfterKey(text, "shape"));
  if (!numbers || numbers->empty() || numbers->size() > 2) {
    return InvalidArgument("the shape is not of one or two dimensions");
  }
  NpyShape shape{.rows = (*numbers)[0], .width = std::nullopt};
  if (numbers->size() == 2) shape.width = (*numbers)[1];
  return shape;
}

NpyWriter::NpyWriter(const std::string& path, std::string type, std::optional<std::uint64_t> width)
    : path_(path), type_(std::move(type)), shape_{.rows = 0, .width = width}, file_(path, std::ios::binary) {
  file_ << NpyHeader(type_, shape_);
}

void NpyWriter::Append(std::uint64_t rows, std::span<const std::byte> bytes) {
  file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  shape_.rows += rows;
}

Status NpyWriter::Close() {
  file_.seekp(0);
  file_ << NpyHeader(type_, shape_);
  file_.close();
  return file_ ? Status() : Unavailable("cannot write " + path_);
}

Result<NpyReader> NpyReader::Open(const std::string& path, std::string_view type, bool matrix) {
  auto file = RegularFile::Open(path);
  if (!file.ok()) return file.status();
  NpyReader reader(path, std::move(*file));
  std::uint64_t begins = kNpyPreambleBytes;
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument(path + " is no array of rows: " + why);
  };

  std::array<char, kNpyPreambleBytes> preamble{};
  if (!reader.file_.Read(std::as_writable_bytes(std::span(preamble))) ||
      std::string_view(preamble.data(), kNpyMagic.size()) != kNpyMagic)
    return refuse("not a .npy file");
  const auto byte = [](char c) { return std::uint32_t{static_cast<unsigned char>(c)}; };
  std::uint32_t length = byte(preamble[8]) | byte(preamble[9]) << 8;
  if (preamble[6] >= 2) {
    std::array<char, 2> upper{};
    if (!reader.file_.Read(std::as_writable_bytes(std::span(upper))))
      return refuse("its header is cut short");
    begins += upper.size();
    length |= byte(upper[0]) << 16 | byte(upper[1]) << 24;
  }
  if (length > kLargestDictionary) return refuse("its header is too long");
  std::string dictionary(length, '\0');
  if (!reader.file_.Read(std::as_writable_bytes(std::span(dictionary))))
    return refuse("its header is cut short");
  begins += length;
  const auto shape = ParseNpyDictionary(dictionary, type);
  if (!shape.ok()) return refuse(shape.status().message());
  if (shape->width.has_value() != matrix)
    return refuse(matrix ? "it has one dimension" : "it has two dimensions");
  reader.shape_ = *shape;

  // A file that was changed after it was opened may have had fewer bytes.
  const std::uint64_t left = std::max(reader.file_.size(), begins) - begins;
  // Dividing first avoids overflow, because a header may name any number.
  const std::uint64_t width = shape->width.value_or(1);
  if (width > std::numeric_limits<std::uint64_t>::max() / ElementBytes(type)) {
    return refuse("64 bits do not count the bytes of its rows of " + std::to_string(width));
  }
  const std::uint64_t row_bytes = ElementBytes(type) * width;
  if (row_bytes == 0 ? left != 0 : left % row_bytes != 0 || left / row_bytes != shape->rows) {
    return refuse("it holds " + std::to_string(left) + " bytes, not " + std::to_string(shape->rows) +
                  " rows of " + std::to_string(row_bytes));
  }
  return reader;
}

Status NpyReader::Read(std::span<std::byte> bytes) {
  return file_.Read(bytes) ? Status() : Unavailable("cannot read " + path_);
}

}  // namespace slotwise::ctl
