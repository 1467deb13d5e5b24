# `make package`: a .deb whose dependencies dpkg-shlibdeps works out, and a tarball that brings its shared libraries along.
option(LODE_PACKAGE "build the shared library and the packages" OFF)
if(NOT LODE_PACKAGE)
  return()
endif()

include(GNUInstallDirs)

# The library as one file: the same objects as lode_static, showing only what LODE_API marks.
get_property(LODE_LAYERS GLOBAL PROPERTY LODE_LAYERS)
add_library(lode_shared SHARED)
set_target_properties(lode_shared PROPERTIES OUTPUT_NAME lode LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION 0)
lode_link_layers(lode_shared ${LODE_LAYERS})
target_link_options(lode_shared PRIVATE -Wl,-z,defs -Wl,--exclude-libs,ALL)

# The tarball keeps its libraries in lib/lode, a folder that does not exist where the .deb is installed. RPATH and not
# RUNPATH: the libraries' own dependencies must be found there too.
set_target_properties(lode PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/lode")
set_target_properties(lode_shared PROPERTIES INSTALL_RPATH "$ORIGIN/lode")
target_link_options(lode PRIVATE -Wl,--disable-new-dtags)
target_link_options(lode_shared PRIVATE -Wl,--disable-new-dtags)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME lode)
install(TARGETS lode RUNTIME DESTINATION bin)
install(TARGETS lode_shared LIBRARY DESTINATION lib)
install(DIRECTORY include/lode DESTINATION include FILES_MATCHING PATTERN "*.h")
install(DIRECTORY docs/ DESTINATION share/doc/lodestone/docs FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples DESTINATION share/doc/lodestone)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION share/doc/lodestone)

install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES "${CMAKE_INSTALL_PREFIX}/bin/lode"
    LIBRARIES "${CMAKE_INSTALL_PREFIX}/lib/liblode.so"
    RESOLVED_DEPENDENCIES_VAR found
    UNRESOLVED_DEPENDENCIES_VAR lost
    # glibc belongs to the system it runs on.
    POST_EXCLUDE_REGEXES "/lib(c|m|dl|rt|pthread|resolv|util)\\.so\\.[0-9]+$" "/ld-linux[^/]*$" "/liblode\\.so")
  if(lost)
    message(FATAL_ERROR "shared libraries not found: ${lost}")
  endif()
  file(INSTALL ${found} DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/lode" FOLLOW_SYMLINK_CHAIN)
]] COMPONENT bundle EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME lodestone)
set(CPACK_PACKAGE_VENDOR "Lodestone developers")
set(CPACK_PACKAGE_CONTACT "Lodestone developers <lodestone@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train large language models from the command line")
set(CPACK_PACKAGE_DESCRIPTION
    "A native engine and command line that trains language models on the CPU and reads and writes Hugging Face files.")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_SOURCE_DIR}/build/package")
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_SYSTEM_NAME "linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_LODE_BUILD_DIR "${CMAKE_BINARY_DIR}")
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_SOURCE_DIR}/cmake/package_config.cmake")
include(CPack)
