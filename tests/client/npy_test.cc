// Files of rows equal NumPy's own, and other files are refused.
#include "client/ctl/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace slotwise::ctl {
namespace {

class NpyTest : public testing::Test {
 protected:
  NpyTest() { std::filesystem::create_directories(folder_); }
  ~NpyTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& bytes) {
    const std::string path = folder_ / "written.npy";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string Refusal(const std::string& bytes, bool matrix = true) {
    return NpyReader::Open(Write(bytes), "<f4", matrix).status().message();
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("slotwise_npy_" + std::to_string(getpid()));
};

TEST_F(NpyTest, GivesBackWhatItWrote) {
  const std::string path = folder_ / "values.npy";
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  NpyWriter writer(path, "<f4", 3);
  writer.Append(1, std::as_bytes(std::span(values).first(3)));
  writer.Append(1, std::as_bytes(std::span(values).last(3)));
  ASSERT_TRUE(writer.Close().ok());

  auto reader = NpyReader::Open(path, "<f4", true);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->shape(), (NpyShape{.rows = 2, .width = 3}));
  std::vector<float> read(6);
  ASSERT_TRUE(reader->Read(std::as_writable_bytes(std::span(read).first(2))).ok());
  ASSERT_TRUE(reader->Read(std::as_writable_bytes(std::span(read).last(4))).ok());
  EXPECT_EQ(read, values);
  EXPECT_FALSE(reader->Read(std::as_writable_bytes(std::span(read).first(1))).ok());
}

TEST_F(NpyTest, WritesTheHeaderThatNumPyWrites) {
  const std::string header = NpyHeader("<u8", {.rows = 7, .width = std::nullopt});
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(header.substr(10, 60).find("{'descr': '<u8', 'fortran_order': False, 'shape': (7, ), }"), 0u);
  EXPECT_EQ(header.back(), '\n');
}

TEST_F(NpyTest, ReadsRowsOfNoWidthAndFilesOfNoRows) {
  EXPECT_TRUE(NpyReader::Open(Write(NpyHeader("<f4", {.rows = 9, .width = 0})), "<f4", true).ok());
  EXPECT_TRUE(NpyReader::Open(Write(NpyHeader("<f4", {.rows = 0, .width = 5})), "<f4", true).ok());
}

TEST_F(NpyTest, ReadsTheSecondVersionsLongerLength) {
  std::string header = NpyHeader("<f4", {.rows = 1, .width = 1});
  header[6] = '\x02';
  header.insert(10, 2, '\0');
  EXPECT_TRUE(NpyReader::Open(Write(header + "abcd"), "<f4", true).ok());
}

TEST_F(NpyTest, RefusesWhatItCannotReadAndSaysWhy) {
  const auto ends = [](const std::string& message, const std::string& end) {
    EXPECT_TRUE(message.ends_with(end)) << message;
  };
  const std::string good = NpyHeader("<f4", {.rows = 2, .width = 1});
  EXPECT_EQ(Refusal(good + "12345678"), "");
  ends(Refusal(""), "not a .npy file");
  ends(Refusal("PK\x03\x04 a zip archive"), "not a .npy file");
  ends(Refusal(good.substr(0, 60)), "its header is cut short");
  ends(Refusal(good + "1234567"), "it holds 7 bytes, not 2 rows of 4");
  ends(Refusal(good + "12345678", false), "it has two dimensions");
  ends(Refusal(NpyHeader("<f8", {.rows = 0, .width = 1})), "the type is not '<f4'");
  ends(NpyReader::Open(folder_ / "none.npy", "<f4", true).status().message(), "none.npy");
  const std::string huge = NpyHeader("<f4", {.rows = ~std::uint64_t{0}, .width = ~std::uint64_t{0}});
  EXPECT_NE(Refusal(huge + "1234"), "");
  // The bytes of a row would be 0, or 4, if they ran over.
  for (const std::uint64_t width : {std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 1}) {
    const std::string bytes = width % 2 == 0 ? "" : "1234";
    ends(Refusal(NpyHeader("<f4", {.rows = 1, .width = width}) + bytes), "rows of " + std::to_string(width));
  }
}

TEST_F(NpyTest, ReadsDictionariesOfAnySpacingAndOrder) {
  const auto shape = [](std::string_view text) { return ParseNpyDictionary(text, "<f4"); };
  EXPECT_EQ(*shape("{'shape': (3,4), 'descr':'<f4','fortran_order':False}"),
            (NpyShape{.rows = 3, .width = 4}));
  EXPECT_EQ(*shape("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }   \n"),
            (NpyShape{.rows = 3, .width = std::nullopt}));
  for (const char* bad :
       {"", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3", "{'descr' '<f4'}"}) {
    EXPECT_FALSE(shape(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace slotwise::ctl
