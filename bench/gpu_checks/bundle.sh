#!/usr/bin/env bash
# bundle.sh BUILD BUNDLE: makes the folder BUNDLE of what was compiled into BUILD, to be carried to a host that has
# Open MPI, a C++ runtime and Python, and perhaps CUDA and NCCL, but nothing else of ours: `./dev bundle`.
#
#   bin/         slotwise-server, slotwise-ctl, slotwise-bench and the C++ tests of some rooms, stripped; tests.txt lists
#                those
#   lib/         the libraries they bring along: LD_LIBRARY_PATH=BUNDLE/lib
#   python/      the Python client: PYTHONPATH=BUNDLE/python
#   examples/    the Adult demo with its data, and the synthetic one
#   deploy/      what starts and stops a server of several ranks
#   bench/       the checks and the plots
#   run-gpu-checks
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:?the folder of a build}
bundle=${2:?the folder to make}

# What a host with Open MPI, a C++ runtime and perhaps CUDA has of its own; everything else travels along.
host_libraries='^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|z|mpi.*|open-(rte|pal)|pmix|hwloc|event.*'
host_libraries+='|udev|cap|nccl|cuda|nvidia.*))\.so'

# Whose tests touch a device, or speak between ranks; and those that do neither all the same.
rooms=(kernels contract collective engine)
host_tests='/(round_scheduler|allocation_failure|array_pool|heartbeat|request_queue|incomplete_steps|rank_limit|read_beside|ready_rounds|stage'
host_tests+='|watchdog)_test$'

copy_programs() {
  local programs=("$build/server/slotwise-server" "$build/client/ctl/slotwise-ctl" "$build/bench/slotwise-bench")
  mapfile -t -O 3 programs < <(find "${rooms[@]/#/$build/tests/}" -name '*_test' -type f -executable |
    grep -Ev "$host_tests")
  install -s -t "$bundle/bin" "${programs[@]}"
}

# The library that the Python client is made of finds its own in lib/.
copy_client() {
  tar -C "$repository/client/python" --exclude __pycache__ -c slotwise | tar -C "$bundle/python" -x
  install -s -D -t "$bundle/python/slotwise/_native" "$build/client/c/libslotwise.so"
}

copy_libraries() {
  local library
  while read -r library; do
    [[ $(basename "$library") =~ $host_libraries ]] || install -s -m 644 -t "$bundle/lib" "$library"
  done < <(ldd "$bundle"/bin/*_test "$bundle"/bin/slotwise-* "$bundle"/python/slotwise/_native/*.so | sed -n 's/.* => \(\/[^ ]*\) (.*/\1/p' | sort -u)
}

# A line a test program: its room, its name, and the numbers of ranks that CTest runs it on.
list_tests() {
  local program name room ranks
  for program in "$bundle"/bin/*_test; do
    name=$(basename "$program")
    room=$(basename "$(dirname "$(find "$build/tests" -name "$name" -type f -executable)")")
    mapfile -t ranks < <(sed -n "s/^add_test(.*${name}_on_\([0-9]*\)_ranks[] ].*/\1/p" \
      "$build/tests/$room/CTestTestfile.cmake")
    echo "$room $name ${ranks[*]}"
  done
}

copy_sources() { # PATH...: from the repository, to the same place; without what Python leaves behind
  tar -C "$repository" --exclude __pycache__ --exclude 'test_*.py' --exclude bundle.sh -c "$@" | tar -C "$bundle" -x
}

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/python"
copy_programs
copy_client
copy_libraries
list_tests >"$bundle/bin/tests.txt"
copy_sources examples/adult examples/synthetic bench/gpu_checks bench/plot.py \
  bench/peers/torch_embedding.py \
  deploy/entrypoint.sh deploy/ranks.sh
mv "$bundle/bench/gpu_checks/run-gpu-checks" "$bundle/"
