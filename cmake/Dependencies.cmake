# Everything Slotwise links, found once, by the names the rooms use:
#   Threads::Threads  TBB::tbb  MPI::MPI_C  gRPC::grpc++  protobuf::libprotobuf
#   spdlog::spdlog  CLI11::CLI11  xxHash::xxhash  GTest::gtest  GTest::gtest_main  GTest::gmock
#   OpenSSL::SSL  nlohmann_json::nlohmann_json  Asio::asio  prometheus-cpp::pull  civetweb::civetweb-cpp
find_package(Threads REQUIRED)
find_package(TBB REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(Protobuf 3.21 REQUIRED)
find_package(gRPC 1.51 CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)  # it serves by civetweb, which it finds

# Neither Debian nor Ubuntu ships a CMake package for xxHash. Its header alone is used, which has the functions too.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
mark_as_advanced(XXHASH_INCLUDE_DIR)
add_library(xxHash::xxhash INTERFACE IMPORTED)
set_target_properties(xxHash::xxhash PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${XXHASH_INCLUDE_DIR})

# Asio is headers alone, and has no CMake package either.
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)
mark_as_advanced(ASIO_INCLUDE_DIR)
add_library(Asio::asio INTERFACE IMPORTED)
set_target_properties(Asio::asio PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ${ASIO_INCLUDE_DIR}
  INTERFACE_COMPILE_DEFINITIONS "ASIO_STANDALONE;ASIO_NO_DEPRECATED"
  INTERFACE_LINK_LIBRARIES Threads::Threads)

if(SLOTWISE_TESTS)
  find_package(GTest REQUIRED)
endif()
