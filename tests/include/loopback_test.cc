#include "slotwise/loopback.h"

#include <gtest/gtest.h>

namespace slotwise {
namespace {

TEST(Loopback, KnowsWhichAddressesNoOtherMachineReaches) {
  for (const char* host : {"localhost", "127.0.0.1", "127.255.3.4", "[::1]", "[0:0:0:0:0:0:0:1]"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host :
       {"0.0.0.0",    "[::]",       "128.0.0.1",         "126.0.0.1",         "1.0.0.127",   "10.0.0.1",
        "[::2]",      "[fe80::1]",  "localhost.example", "127.0.0.1.example", "127.0.0.256", "127.0.0.01",
        "127.0.0.1.", "127.0.0.-1", "127.0.0.+1",        "127..0.1",          "node1",       "127.1",
        "127",        "0",          "[127.0.0.1]",       "[::ffff:10.0.0.1]", "[::1",        "::1]",
        "",           "[]"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace slotwise
