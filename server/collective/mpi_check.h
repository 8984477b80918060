// One macro checks every MPI call, and throws MPI's message with the call's file and line.
#ifndef SLOTWISE_SERVER_COLLECTIVE_MPI_CHECK_H_
#define SLOTWISE_SERVER_COLLECTIVE_MPI_CHECK_H_

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace slotwise {

[[noreturn]] inline void ThrowMpiError(int error, const char* call, const char* file, int line) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " + text);
}

#define SLOTWISE_MPI_TRY(call)                                     \
  do {                                                             \
    if (const int error = (call); error != MPI_SUCCESS)            \
      ::slotwise::ThrowMpiError(error, #call, __FILE__, __LINE__); \
  } while (false)

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_MPI_CHECK_H_
