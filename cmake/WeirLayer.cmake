# weir_layer(NAME SRCS a.cc ... [LIBS target ...])
#
# One layer of kernels/: an object library weir_NAME (alias weir::NAME) whose
# objects end up in libweir.so. LIBS are the layers to its left and the
# packages whose types its headers show; a layer that is linked passes on its
# include paths and packages, never its objects.
function(weir_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;LIBS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "weir_layer(${name}): what is "
      "'${arg_UNPARSED_ARGUMENTS}'?")
  endif()
  add_library(weir_${name} OBJECT ${arg_SRCS})
  add_library(weir::${name} ALIAS weir_${name})
  weir_target_defaults(weir_${name})
  target_link_libraries(weir_${name} PUBLIC ${arg_LIBS} Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY WEIR_KERNEL_LAYERS weir_${name})
endfunction()

# What every library and program of ours shares: includes are written from the
# repository root, warnings are errors.
set(WEIR_TESTS_DIR "${PROJECT_SOURCE_DIR}/tests")
function(weir_target_defaults target)
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
    "$<BUILD_INTERFACE:${WEIR_GENERATED_DIR}>")
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:weir::warnings>)
  # No user gets a test.
  cmake_path(IS_PREFIX WEIR_TESTS_DIR "${CMAKE_CURRENT_SOURCE_DIR}" is_test)
  if(NOT is_test)
    target_link_libraries(${target} PRIVATE
      $<BUILD_INTERFACE:weir_dependencies>)
  endif()
endfunction()
