// What the sanitizers are told. Builds with SLOTWISE_SANITIZE link this into every program, so tests, ranks
// under mpirun and servers that Python tests start have it however they are started; the environment's
// TSAN_OPTIONS, ASAN_OPTIONS and so on come on top.
#ifdef __SANITIZE_ADDRESS__
#include <dlfcn.h>
#include <sanitizer/lsan_interface.h>

namespace {

// Open MPI's own function, behind ours of the same name.
template <class Function>
Function Own(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace
#endif

// The runtimes look these functions up by their names; each build has those of its own sanitizers.
extern "C" {

const char* __tsan_default_options() {
  return "suppressions=" SLOTWISE_ROOT "/cmake/tsan.supp second_deadlock_stack=1 history_size=4";
}

// Up to GCC 13 the runtime takes some thread-local memory for that of an old C library, and the search for
// leaks reads wherever a word of it points: github.com/google/sanitizers/issues/1322.
const char* __asan_default_options() {
  return "detect_leaks=1 strict_string_checks=1 detect_stack_use_after_return=1 check_initialization_order=1 "
         "intercept_tls_get_addr=0";
}

const char* __lsan_default_options() {
  return "suppressions=" SLOTWISE_ROOT "/cmake/lsan.supp print_suppressions=0";
}

const char* __ubsan_default_options() { return "print_stacktrace=1"; }

#ifdef __SANITIZE_ADDRESS__
// What Open MPI allocates while it starts is its own, and it does not free all of it.
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const __lsan::ScopedDisabler disabler;
  return Own<int (*)(int*, char***, int, int*)>("MPI_Init_thread")(argc, argv, required, provided);
}

// Leaks are looked for here, and then not at the program's end: MPI_Finalize unloads libraries, and forgets
// with them what they allocated.
int MPI_Finalize() {
  __lsan_do_leak_check();
  return Own<int (*)()>("MPI_Finalize")();
}
#endif

}  // extern "C"
