// Keeps protobuf from writing a line about each name that is not UTF-8: a fuzzer tries thousands a second.
#include <google/protobuf/stubs/common.h>

#if GOOGLE_PROTOBUF_VERSION < 4022000  // later versions log through Abseil
#include <google/protobuf/stubs/logging.h>
#endif

// libFuzzer calls this function once, before any input.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  google::protobuf::SetLogHandler(nullptr);
#endif
  return 0;
}
