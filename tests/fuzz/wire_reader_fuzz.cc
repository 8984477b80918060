// Compares the data path's reader with protobuf's own, like tests/rpc/wire_fuzz_test.cc.
#include "tests/fuzz/fuzz.h"
#include "tests/rpc/compare_readers.h"

namespace slotwise::fuzz {

void Run(std::string_view bytes) {
  for (const std::size_t slice : {bytes.size() + 1, bytes.size() % 40 + 1}) {
    const auto compared = CompareWithProtobuf(bytes, slice);
    Require(compared.difference.empty(), compared.difference.c_str());
  }
}

}  // namespace slotwise::fuzz
