# Everything Slotwise links, found once, by the names the rooms use:
#   Threads::Threads  TBB::tbb  MPI::MPI_C  gRPC::grpc++  gRPC::grpc++_reflection  protobuf::libprotobuf
#   spdlog::spdlog  CLI11::CLI11  xxHash::xxhash  GTest::gtest  GTest::gtest_main  GTest::gmock
#   nlohmann_json::nlohmann_json
find_package(Threads REQUIRED)
find_package(TBB REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(Protobuf 3.21 REQUIRED)
find_package(gRPC 1.51 CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

# Neither Debian nor Ubuntu ships a CMake package for xxHash.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
mark_as_advanced(XXHASH_INCLUDE_DIR XXHASH_LIBRARY)
add_library(xxHash::xxhash UNKNOWN IMPORTED)
set_target_properties(xxHash::xxhash PROPERTIES
  IMPORTED_LOCATION ${XXHASH_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${XXHASH_INCLUDE_DIR})

if(SLOTWISE_TESTS)
  find_package(GTest REQUIRED)
endif()
