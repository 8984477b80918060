/* A program of C alone: that slotwise.h is C is tested by compiling this. */
#include "tests/client/c_program.h"

#include <string.h>

#include "slotwise/slotwise.h"

int LookUpInC(const char* address, const uint64_t* keys, size_t count, float* values, size_t floats,
              char* message, size_t size) {
  slotwise_client_options options = {.timeout_ms = 10000};
  slotwise_call* call = slotwise_connect(&address, 1, &options, NULL);
  int code = slotwise_call_wait(call, -1);
  slotwise_client* client = code == SLOTWISE_OK ? slotwise_call_client(call) : NULL;
  if (client != NULL) {
    slotwise_batch batch = {
        .table = "ads", .keys = keys, .keys_count = count, .values = values, .values_count = floats};
    slotwise_call_free(call);
    call = slotwise_lookup(client, &batch, 1, SLOTWISE_TRAIN, NULL, NULL, NULL);
    code = slotwise_call_wait(call, -1);
  }
  strncpy(message, slotwise_call_message(call), size - 1);
  message[size - 1] = 0;
  slotwise_call_free(call);
  slotwise_client_free(client);
  return code;
}
