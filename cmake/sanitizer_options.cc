// What the sanitizers are told. Builds with SLOTWISE_SANITIZE link this into every program, so tests, ranks under mpirun
// and servers that Python tests start have it however they are started; the environment's TSAN_OPTIONS, ASAN_OPTIONS and
// so on come on top.

// The runtimes look these functions up by their names; each build has those of its own sanitizers.
extern "C" {

const char* __tsan_default_options() {
  return "suppressions=" SLOTWISE_ROOT "/cmake/tsan.supp second_deadlock_stack=1 history_size=4";
}

const char* __asan_default_options() {
  return "detect_leaks=1 strict_string_checks=1 detect_stack_use_after_return=1 check_initialization_order=1";
}

const char* __lsan_default_options() {
  return "suppressions=" SLOTWISE_ROOT "/cmake/lsan.supp print_suppressions=0";
}

const char* __ubsan_default_options() { return "print_stacktrace=1"; }

}  // extern "C"
