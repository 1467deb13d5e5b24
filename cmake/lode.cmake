# Build rules shared by all folders: one object library per layer, one test program per layer.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(LODE_BIN_DIR "${CMAKE_BINARY_DIR}/bin" CACHE PATH "where the lode binary goes")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

find_program(LODE_CCACHE ccache)
if(LODE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LODE_CCACHE})
endif()

add_library(lode_flags INTERFACE)
target_compile_options(lode_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers -fno-math-errno)
# GCC 12 warns falsely about std::variant and std::optional (GCC bugs 80635, 105562).
target_compile_options(lode_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
target_include_directories(lode_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(lode_flags INTERFACE Threads::Threads)

set(LODE_SANITIZE "" CACHE STRING "sanitizers, as for -fsanitize=")
if(LODE_SANITIZE)
  target_compile_options(lode_flags INTERFACE -fsanitize=${LODE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(lode_flags INTERFACE -fsanitize=${LODE_SANITIZE})
endif()

set_property(GLOBAL PROPERTY LODE_LAYERS "")

# lode_layer(NAME SOURCES a.cc ... [LIBRARIES lib ...]): the object library lode_NAME of folder src/NAME. Its libraries
# (private: third-party headers stay inside the sources) are linked by everything that uses the layer's objects.
function(lode_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(lode_${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(lode_${name} PRIVATE lode_flags ${ARG_LIBRARIES})
  set_property(TARGET lode_${name} PROPERTY LODE_LIBRARIES "${ARG_LIBRARIES}")
  set_property(GLOBAL APPEND PROPERTY LODE_LAYERS ${name})
endfunction()

# lode_link_layers(TARGET layer ...): links the objects of the named layers and their libraries.
function(lode_link_layers target)
  target_link_libraries(${target} PRIVATE lode_flags)
  foreach(layer ${ARGN})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:lode_${layer}>)
    get_target_property(libraries lode_${layer} LODE_LIBRARIES)
    if(libraries)
      target_link_libraries(${target} PRIVATE ${libraries})
    endif()
  endforeach()
endfunction()

# lode_test(NAME SOURCES a_test.cc ... LAYERS core ...): the GoogleTest program NAME_tests, registered with CTest.
function(lode_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS" ${ARGN})
  add_executable(${name}_tests ${ARG_SOURCES})
  lode_link_layers(${name}_tests ${ARG_LAYERS})
  target_include_directories(${name}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name}_tests PRIVATE GTest::gtest_main)
  target_compile_definitions(${name}_tests PRIVATE LODE_TEST_DIR="${CMAKE_SOURCE_DIR}/tests"
                                                   LODE_BINARY="${LODE_BIN_DIR}/lode"
                                                   LODE_ASSET_DIR="${CMAKE_SOURCE_DIR}/build/assets")
  add_test(NAME ${name} COMMAND ${name}_tests)
endfunction()
