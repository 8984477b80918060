// The data path's reader against protobuf's own, as tests/rpc/wire_fuzz_test.cc compares them.
#include "tests/fuzz/fuzz.h"
#include "tests/rpc/compare_readers.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = slotwise::fuzz::TextOf(data, size);
  for (const std::size_t slice : {size + 1, size % 40 + 1}) {
    const auto compared = slotwise::CompareWithProtobuf(bytes, slice);
    slotwise::fuzz::Require(compared.difference.empty(), compared.difference.c_str());
  }
  return 0;
}
