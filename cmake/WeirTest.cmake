# Tests, benchmarks and fuzz targets. WEIR_TEST_LAYER (kernels and core, server,
# client, set by tests/CMakeLists.txt for each folder) becomes CTest labels
# beside the given ones, and the target `tests-LABEL` builds what a label
# selects: that is how a sanitizer build stays small.

# weir_test(NAME SRCS x_test.cc ... [LIBS ...] [LABELS unit ...] [ARGS ...]
#           [PROGRAMS weir-server ...] [TIMEOUT seconds] [OWN_MAIN])
#
# One GoogleTest program per test file. Labels: unit (default), gpu, slow,
# parser, threads (what of the server ThreadSanitizer can see). PROGRAMS are the targets that the test starts; it finds them in
# $WEIR_BIN_DIR, and data below $WEIR_TEST_DATA (the folder tests/).
function(weir_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg
    "OWN_MAIN" "TIMEOUT" "SRCS;LIBS;LABELS;ARGS;PROGRAMS")
  _weir_refuse_unparsed(weir_test ${name} "${arg_UNPARSED_ARGUMENTS}")
  _weir_program(${name} test-bin "${arg_SRCS}" "${arg_LIBS}")
  set(headers gtest_headers)
  foreach(library IN LISTS arg_LIBS)
    if(TARGET ${library}_headers)
      set(headers ${library}_headers)
    endif()
  endforeach()
  target_precompile_headers(${name} REUSE_FROM ${headers})
  _weir_test_options(${name})
  if(arg_OWN_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gmock)
  else()
    target_link_libraries(${name} PRIVATE GTest::gmock_main)
  endif()
  if(arg_PROGRAMS)
    add_dependencies(${name} ${arg_PROGRAMS})
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  _weir_register(${name} "${arg_LABELS}" "${arg_TIMEOUT}")
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
    "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/reports/${name}.xml")
  _weir_build_with_labels(${name})
endfunction()

# weir_test_headers(NAME HEADER ... [LIBS ...]): precompiled headers. With the
# name LIB_headers they serve the tests that link LIB; `gtest_headers` serves
# the others. Each of these tests includes them anyway, and spends half of its
# time to compile on them.
function(weir_test_headers target)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS")
  set(source "${PROJECT_BINARY_DIR}/generated/${target}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  add_library(${target} OBJECT "${source}")
  weir_target_defaults(${target})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} Threads::Threads)
  # As programs are compiled, so that they can use it.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE)
  target_precompile_headers(${target} PRIVATE ${arg_UNPARSED_ARGUMENTS})
  _weir_test_options(${target})
  if(WEIR_CCACHE)
    get_target_property(launcher ${target} CXX_COMPILER_LAUNCHER)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${PROJECT_SOURCE_DIR}/cmake/precompile.sh;${launcher}")
  endif()
endfunction()

# weir_script_test(NAME COMMAND ... [LABELS ...] [TIMEOUT seconds]): a check
# that needs no program of its own. It exits with 77 where it cannot run, and
# says why.
function(weir_script_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS")
  _weir_refuse_unparsed(weir_script_test ${name} "${arg_UNPARSED_ARGUMENTS}")
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  _weir_register(${name} "${arg_LABELS}" "${arg_TIMEOUT}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# weir_benchmark(NAME SRCS ... [LIBS ...] [OWN_MAIN]): a Google Benchmark
# program in bench-bin/, built by the target `benchmarks`, run by `make bench`.
function(weir_benchmark name)
  if(NOT BUILD_TESTING OR WEIR_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "OWN_MAIN" "" "SRCS;LIBS")
  _weir_refuse_unparsed(weir_benchmark ${name} "${arg_UNPARSED_ARGUMENTS}")
  _weir_program(${name} bench-bin "${arg_SRCS}" "${arg_LIBS}")
  target_link_libraries(${name} PRIVATE benchmark::benchmark)
  if(NOT arg_OWN_MAIN)
    target_link_libraries(${name} PRIVATE benchmark::benchmark_main)
  endif()
  _weir_collect(benchmarks ${name})
endfunction()

# weir_fuzz_test(NAME SRCS x_fuzz.cc ... SEEDS folder [LIBS ...])
#
# A libFuzzer program, built only with WEIR_FUZZ by the target `fuzzers`. Its
# CTest entry runs for WEIR_FUZZ_SECONDS from its seeds on; NAME_seeds sees that
# the seeds reach what tests/fuzz/floors.json says. The fuzzer searches
# its list of what is rare from end to end for whatever an input reaches; by its
# own threshold nearly everything is rare for as long as a test runs, and a
# target of much code comes to a third of the runs, or a tenth.
set(WEIR_FUZZ_SECONDS 30 CACHE STRING "Seconds each fuzz target runs in CTest")
function(weir_fuzz_test name)
  if(NOT BUILD_TESTING OR NOT WEIR_FUZZ)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SEEDS" "SRCS;LIBS")
  _weir_refuse_unparsed(weir_fuzz_test ${name} "${arg_UNPARSED_ARGUMENTS}")
  _weir_program(${name} fuzz-bin "${arg_SRCS}" "${arg_LIBS}")
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  cmake_path(ABSOLUTE_PATH arg_SEEDS
    BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  set(found "${PROJECT_BINARY_DIR}/fuzz-corpus/${name}")
  file(MAKE_DIRECTORY "${found}")
  add_test(NAME ${name} COMMAND ${name} -max_total_time=${WEIR_FUZZ_SECONDS}
    -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
    -entropic_feature_frequency_threshold=16
    -artifact_prefix=${PROJECT_BINARY_DIR}/fuzz-crash-${name}-
    "${found}" "${arg_SEEDS}")
  math(EXPR timeout "${WEIR_FUZZ_SECONDS} + 60")
  _weir_register(${name} fuzz ${timeout})
  weir_script_test(${name}_seeds LABELS fuzz
    COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/fuzz/seeds_test.py"
            $<TARGET_FILE:${name}> "${arg_SEEDS}")
  _weir_collect(fuzzers ${name})
endfunction()

if(BUILD_TESTING AND WEIR_SANITIZE STREQUAL "thread")
  add_library(weir_tsan_status OBJECT
    "${PROJECT_SOURCE_DIR}/cmake/tsan_status.cc")
  weir_target_defaults(weir_tsan_status)
  # For libraries that the program loads.
  set_target_properties(weir_tsan_status PROPERTIES
    CXX_VISIBILITY_PRESET default)
  target_link_libraries(weir_tsan_status PUBLIC absl::status)
endif()

# The presets build these even where no test carries the label yet.
foreach(collection IN ITEMS tests-all tests-kernels tests-core tests-server
                            tests-parser tests-threads tests-client benchmarks
                            fuzzers)
  add_custom_target(${collection})
endforeach()

function(_weir_refuse_unparsed function name unparsed)
  if(unparsed)
    message(FATAL_ERROR "${function}(${name}): what is '${unparsed}'?")
  endif()
endfunction()

# A test need not be fast, and compiles in half the time; under AddressSanitizer,
# whose checks the optimizer reads too, in a third. Under ThreadSanitizer those
# of operators would take too long. What a fuzzer is to reach is the product's.
# Precompiled headers and their users must agree on all of these.
function(_weir_test_options target)
  if(WEIR_SANITIZE MATCHES "address")
    set(fast -O0)
  else()
    set(fast $<$<CONFIG:Release>:-O1>)
  endif()
  if(WEIR_FUZZ)
    list(APPEND fast -fno-sanitize=fuzzer-no-link)
  endif()
  target_compile_options(${target} PRIVATE -pthread
    "$<$<COMPILE_LANGUAGE:CXX>:${fast}>")
endfunction()

function(_weir_program name folder sources libraries)
  add_executable(${name} ${sources})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${folder}")
  # Every change renews the build id in libweir.so: without this, hundreds of
  # programs would be linked anew for it. What its headers promise is seen when
  # they are compiled.
  set_target_properties(${name} PROPERTIES LINK_DEPENDS_NO_SHARED ON)
  weir_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${libraries} Threads::Threads)
  if(TARGET weir_tsan_status)
    target_link_libraries(${name} PRIVATE weir_tsan_status)
  endif()
endfunction()

function(_weir_register name labels timeout)
  if(NOT labels)
    set(labels unit)
  endif()
  list(APPEND labels ${WEIR_TEST_LAYER})
  list(REMOVE_DUPLICATES labels)
  if(NOT timeout)
    set(timeout 120)
  endif()
  # The longest start first, so that nobody waits for them alone in the end.
  # A filter that matches nothing is a failure.
  set_tests_properties(${name} PROPERTIES LABELS "${labels}"
    TIMEOUT ${timeout} COST ${timeout}
    FAIL_REGULAR_EXPRESSION "Running 0 tests from 0 test suites")
  set_property(TEST ${name} PROPERTY ENVIRONMENT
    "WEIR_TEST_DATA=${PROJECT_SOURCE_DIR}/tests"
    "WEIR_BIN_DIR=${PROJECT_BINARY_DIR}/bin"
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp:second_deadlock_stack=1")
  # One GPU test at a time: they share the card, and some fill its memory.
  if("gpu" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()

function(_weir_build_with_labels name)
  get_test_property(${name} LABELS labels)
  foreach(label IN LISTS labels)
    _weir_collect(tests-${label} ${name})
  endforeach()
  _weir_collect(tests-all ${name})
endfunction()

function(_weir_collect collection name)
  if(NOT TARGET ${collection})
    add_custom_target(${collection})
  endif()
  add_dependencies(${collection} ${name})
endfunction()
