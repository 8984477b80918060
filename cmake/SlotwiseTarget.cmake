# One room, one target. These functions give every target of ours the same language, warnings and arithmetic.
#
#   slotwise_room(<name> SOURCES <file>... [CUDA_SOURCES <file>...] [DEPENDS <target>...] [PRIVATE_DEPENDS <target>...])
#       A static library. DEPENDS are what its headers include, PRIVATE_DEPENDS what only its sources include.
#       CUDA_SOURCES are compiled in builds with SLOTWISE_CUDA and left out of others; where they are compiled, the
#       macro SLOTWISE_CUDA is defined for all sources of the target.
#
#   slotwise_program(<name> SOURCES <file>... [CUDA_SOURCES <file>...] [DEPENDS <target>...])
#       An executable.
#
#   slotwise_test(<name> SOURCES <file>... [CUDA_SOURCES <file>...] [DEPENDS <target>...] [LABELS <label>...]
#                 [RANKS <n>...] [ALONE] [OWN_MAIN] [TIMEOUT <seconds>])
#       A GoogleTest program. Without RANKS each TEST in it becomes a CTest test; with `RANKS 1 2 4` the whole program
#       runs once under `mpirun -n 1`, `-n 2` and `-n 4`, and needs OWN_MAIN to call MPI_Init; with ALONE, each TEST is a
#       CTest test without mpirun too. Its labels are its folder below tests/ and LABELS; it is built with -O1, because compiling tests takes longer than running them.
#
# Room headers are included from the repository's root ("kernels/shard.h"), the contracts from include/
# ("slotwise/batch.h"). Which room may include which is checked by cmake/check_includes.py.

# What holds for every target of ours, and for no code of others (generated protobuf code, say).
function(slotwise_common_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)

  set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wvla)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND warnings -Wno-restrict)  # GCC 12 sees overlaps in `"literal" + std::string` that are not there
  endif()
  if(SLOTWISE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code hides from GCC what is initialised.
    list(APPEND warnings -Wno-maybe-uninitialized)
  endif()
  if(SLOTWISE_WERROR)
    list(APPEND warnings -Werror)
  endif()

  # The same inputs give the same bytes on every backend, so a·b+c is rounded twice wherever fma() is not written out.
  # The two -fno- flags change no value; they let loops with √ and with conditions vectorise.
  set(arithmetic -ffp-contract=off -fno-math-errno -fno-trapping-math)

  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-Wpedantic;-Wcast-align;-Wundef;${arithmetic}>")
  if(SLOTWISE_CUDA)
    set(host_flags ${warnings} ${arithmetic})
    list(JOIN host_flags "," host_flags)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_flags};-fmad=false;--extended-lambda;--expt-relaxed-constexpr>"
      "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${SLOTWISE_WERROR}>>:-Werror=all-warnings>")
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)  # a quarter of the size: programs travel in a bundle
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>")
    endif()
  endif()
endfunction()

# Adds the CUDA sources, if this build has CUDA, and says so to the target's other sources: SLOTWISE_CUDA is defined.
function(slotwise_cuda_sources target)
  if(SLOTWISE_CUDA AND ARGN)
    target_sources(${target} PRIVATE ${ARGN})
    target_compile_definitions(${target} PRIVATE SLOTWISE_CUDA=1)
  endif()
endfunction()

# Adds the target's C++ sources to the target `tidy`: clang-tidy runs again on a source when its object was built again.
function(slotwise_tidy target)
  if(NOT SLOTWISE_CLANG_TIDY)
    return()
  endif()
  set(sources ${ARGN})
  list(FILTER sources EXCLUDE REGEX "^(\\$<|/)")  # a source only some builds have, and one that the build made
  set(stamps)
  foreach(source IN LISTS sources)
    string(REPLACE "../" "__/" name ${source})  # as CMake names objects of other folders' sources
    set(object ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/${name}.o)
    set(stamp ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/${name}.tidy)
    add_custom_command(OUTPUT ${stamp}
      COMMAND sh -c "\"$@\" 2> ${stamp}.log || { cat ${stamp}.log && exit 1; }" --
        ${SLOTWISE_CLANG_TIDY} -p ${CMAKE_BINARY_DIR} --quiet ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
      DEPENDS ${object} ${PROJECT_SOURCE_DIR}/.clang-tidy
      COMMENT "Tidying ${target}: ${source}"
      VERBATIM)
    list(APPEND stamps ${stamp})
  endforeach()
  add_custom_target(${target}-tidy DEPENDS ${stamps})
  add_dependencies(tidy ${target}-tidy)
endfunction()

function(slotwise_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CUDA_SOURCES;DEPENDS;PRIVATE_DEPENDS")
  add_library(${name} STATIC ${arg_SOURCES})
  slotwise_cuda_sources(${name} ${arg_CUDA_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
  slotwise_common_options(${name})
  slotwise_tidy(${name} ${arg_SOURCES})
endfunction()

function(slotwise_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CUDA_SOURCES;DEPENDS")
  add_executable(${name} ${arg_SOURCES})
  slotwise_cuda_sources(${name} ${arg_CUDA_SOURCES})
  if(SLOTWISE_SANITIZE)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/sanitizer_options.cc)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/cmake/sanitizer_options.cc
      PROPERTY COMPILE_DEFINITIONS SLOTWISE_ROOT="${PROJECT_SOURCE_DIR}")
  endif()
  if(SLOTWISE_SANITIZE STREQUAL "thread")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/tsan_grpc.cc)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  slotwise_common_options(${name})
  slotwise_tidy(${name} ${arg_SOURCES})
endfunction()

function(slotwise_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;OWN_MAIN" "TIMEOUT" "SOURCES;CUDA_SOURCES;DEPENDS;LABELS;RANKS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(discovery_timeout 60)
  if(SLOTWISE_SANITIZE)  # several times slower
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 6")
    set(discovery_timeout 600)
  endif()
  if(arg_RANKS AND NOT arg_OWN_MAIN)
    message(FATAL_ERROR "slotwise_test(${name}): a test with RANKS needs OWN_MAIN, a main() that calls MPI_Init")
  endif()

  slotwise_program(${name}
    SOURCES ${arg_SOURCES}
    CUDA_SOURCES ${arg_CUDA_SOURCES}
    DEPENDS ${arg_DEPENDS} $<IF:$<BOOL:${arg_OWN_MAIN}>,GTest::gtest,GTest::gtest_main>)
  target_compile_options(${name} PRIVATE -O1)

  file(RELATIVE_PATH room ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  list(APPEND arg_LABELS ${room})

  if(NOT arg_RANKS OR arg_ALONE)
    include(GoogleTest)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT ${discovery_timeout}
      PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}_on_${ranks}_ranks
      COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none -n ${ranks}
        $<TARGET_FILE:${name}>)
    set_tests_properties(${name}_on_${ranks}_ranks PROPERTIES
      LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS 2)
  endforeach()
endfunction()
