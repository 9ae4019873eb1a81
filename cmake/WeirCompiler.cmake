# Language level, warnings, sanitizers, linker, compiler cache and the layout
# of the build tree, for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# bin/ and lib/ stand side by side in the build tree as in the bundle, so the
# same relative run path serves both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")

find_package(Threads REQUIRED)

find_program(WEIR_CCACHE ccache)
if(WEIR_CCACHE)
  foreach(language IN ITEMS C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      # The sloppiness is what ccache asks for where headers are precompiled.
      set(CMAKE_${language}_COMPILER_LAUNCHER
        env "CCACHE_SLOPPINESS=pch_defines,time_macros" "${WEIR_CCACHE}")
    endif()
  endforeach()
  add_compile_options(
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>"
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

find_program(WEIR_MOLD mold)
if(WEIR_MOLD)
  add_link_options($<$<LINK_LANGUAGE:C,CXX>:-fuse-ld=mold>)
endif()

if(WEIR_SANITIZE)
  set(sanitize -fsanitize=${WEIR_SANITIZE} -fno-omit-frame-pointer)
  if(WEIR_SANITIZE MATCHES "undefined")
    list(APPEND sanitize -fno-sanitize-recover=undefined)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With sanitizers, GCC no longer sees that Abseil's inlined vectors are
    # initialized where they are read.
    list(APPEND sanitize -Wno-maybe-uninitialized)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>")
  add_link_options("$<$<LINK_LANGUAGE:C,CXX>:${sanitize}>")
endif()

# For what runs once, at start: it need not be fast, and libraries that are all
# headers compile in half the time.
set(WEIR_COMPILE_FAST $<IF:$<CONFIG:Release>,-O1,-O0>)

# Coverage counters for the fuzzers go into all code; the fuzzer's main only
# into the fuzz targets (weir_fuzz_test).
if(WEIR_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "WEIR_FUZZ needs clang: use the preset 'asan'")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
  # For what no fuzzer is to reach: its tests hardly feel whether it is fast,
  # and it compiles in half the time.
  set(WEIR_COMPILE_UNFUZZED -fno-sanitize=fuzzer-no-link -O0)
endif()

# Linked PRIVATE by every target of ours.
add_library(weir_warnings INTERFACE)
add_library(weir::warnings ALIAS weir_warnings)
set(warnings -Wall -Wextra -Wsign-conversion -Werror)
set(clang_warnings -Wthread-safety)
list(JOIN warnings "," host_warnings)
target_compile_options(weir_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:${warnings}>"
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:${clang_warnings}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
