// The entry point for libFuzzer. It stops Protobuf from logging each name that is not UTF-8, because a fuzzer
// tries thousands a second.
#include <google/protobuf/stubs/common.h>

#if GOOGLE_PROTOBUF_VERSION < 4022000  // later versions log through Abseil
#include <google/protobuf/stubs/logging.h>
#endif

#include "tests/fuzz/fuzz.h"

// Both are libFuzzer's to call, which has no header for them: once, before any input, and with each input.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  google::protobuf::SetLogHandler(nullptr);
#endif
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  slotwise::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
