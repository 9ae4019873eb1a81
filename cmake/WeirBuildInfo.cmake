# Generates "kernels/base/build_info.h" (kVersion, kBuildId). The build id
# names what must be equal for two of our libraries to share C++ classes:
# version, source revision, compiler, build type and sanitizers.

find_package(Git QUIET)
set(revision "release")
if(Git_FOUND)
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" rev-parse --short=12 HEAD
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE git_failed ERROR_QUIET)
  if(git_failed)
    set(revision "release")
  endif()
endif()

string(CONCAT WEIR_BUILD_ID
  "${PROJECT_VERSION}-${revision}-${CMAKE_CXX_COMPILER_ID}"
  "${CMAKE_CXX_COMPILER_VERSION}-${CMAKE_BUILD_TYPE}${WEIR_SANITIZE}")
set(WEIR_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
configure_file("${PROJECT_SOURCE_DIR}/cmake/build_info.h.in"
  "${WEIR_GENERATED_DIR}/kernels/base/build_info.h" @ONLY)
