# What other projects find: find_package(slotwise) gives slotwise::client, the C++ client (include/slotwise/client.h).
# `cmake --install BUILD --component client` installs the client alone.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/slotwise)
foreach(part client wire proto contract)
  set_target_properties(slotwise_${part} PROPERTIES EXPORT_NAME ${part})
  install(TARGETS slotwise_${part} EXPORT slotwise ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
endforeach()
install(EXPORT slotwise NAMESPACE slotwise:: FILE slotwise-targets.cmake DESTINATION ${package_dir} COMPONENT client)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/slotwise-config.cmake.in
  ${PROJECT_BINARY_DIR}/slotwise-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/slotwise-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/slotwise-config.cmake ${PROJECT_BINARY_DIR}/slotwise-config-version.cmake
  DESTINATION ${package_dir} COMPONENT client)
