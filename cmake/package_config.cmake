# Read by CPack once per generator: only the tarball takes the shared libraries along, and it has no /usr in front.
if(CPACK_GENERATOR STREQUAL "TGZ")
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS "${CPACK_LODE_BUILD_DIR};lodestone;bundle;/")
  set(CPACK_PACKAGING_INSTALL_PREFIX "/")
endif()
