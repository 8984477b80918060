/* What a C program does with the client: connects, looks up in the table "ads", and frees everything. */
#ifndef SLOTWISE_TESTS_CLIENT_C_PROGRAM_H_
#define SLOTWISE_TESTS_CLIENT_C_PROGRAM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the code that the last call ended with, and its message in `message`, which has room for `size`. */
int LookUpInC(const char* address, const uint64_t* keys, size_t count, float* values, size_t floats,
              char* message, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* SLOTWISE_TESTS_CLIENT_C_PROGRAM_H_ */
