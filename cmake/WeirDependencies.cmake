# Third-party packages, found once for the whole tree. A package stands here
# with what it saves us; deploy/setup.sh installs the same list.

find_package(absl CONFIG REQUIRED)       # Status, strings, time, containers
find_package(Protobuf REQUIRED)          # the wire format
find_package(gRPC CONFIG REQUIRED)       # HTTP/2 transport
find_package(OpenSSL REQUIRED)           # checks of TLS files before use
find_package(ZLIB REQUIRED)              # compressed messages, bounded
find_package(hwy CONFIG REQUIRED)        # portable vector code
find_package(ONNX CONFIG REQUIRED)       # the ONNX protobuf messages
find_package(libjpeg-turbo CONFIG REQUIRED)    # JPEG on the CPU
find_package(prometheus-cpp CONFIG REQUIRED)   # metric types and text format
find_package(CLI11 CONFIG REQUIRED)            # command lines
find_package(spdlog CONFIG REQUIRED)           # log levels, sinks, time stamps
find_package(nlohmann_json CONFIG REQUIRED)    # JSON
find_package(PkgConfig REQUIRED)
pkg_check_modules(spng REQUIRED IMPORTED_TARGET spng)            # PNG
pkg_check_modules(microhttpd REQUIRED IMPORTED_TARGET libmicrohttpd)  # HTTP/1.1

# gRPC as part of the programs that ask for it (the property WEIR_OWN_GRPC of an
# executable), otherwise shared: what a shared library keeps for each thread it
# has to ask for by calls, some 250 in a request.
set(grpc_archives)
foreach(name IN ITEMS grpc++_reflection grpc++ grpc gpr upb address_sorting)
  find_library(WEIR_ARCHIVE_${name} lib${name}.a REQUIRED)
  list(APPEND grpc_archives "${WEIR_ARCHIVE_${name}}")
endforeach()
set(grpc_needs)
foreach(name IN ITEMS grpc++ grpc gpr)
  get_target_property(needs gRPC::${name} INTERFACE_LINK_LIBRARIES)
  list(APPEND grpc_needs ${needs})
endforeach()
list(FILTER grpc_needs EXCLUDE REGEX "^gRPC::")
list(REMOVE_DUPLICATES grpc_needs)
add_library(weir_grpc_archives INTERFACE)
target_link_libraries(weir_grpc_archives INTERFACE
  ${grpc_archives} ${grpc_needs})
set(own "$<BOOL:$<TARGET_PROPERTY:WEIR_OWN_GRPC>>")
add_library(weir_grpc INTERFACE)
add_library(weir::grpc ALIAS weir_grpc)
target_link_libraries(weir_grpc INTERFACE
  $<${own}:weir_grpc_archives>
  $<$<NOT:${own}>:gRPC::grpc++_reflection>
  $<$<NOT:${own}>:gRPC::grpc++>)

# spdlog and its fmt as headers alone: no library more to ship.
add_library(weir_spdlog INTERFACE)
target_compile_definitions(weir_spdlog INTERFACE SPDLOG_FMT_EXTERNAL_HO)
target_link_libraries(weir_spdlog INTERFACE fmt::fmt-header-only)

# oneDNN: CPU matmul, convolution, pooling. Debian's package file asks for
# OpenCL, which the library itself does not need.
find_path(WEIR_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(WEIR_DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES
  IMPORTED_LOCATION "${WEIR_DNNL_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${WEIR_DNNL_INCLUDE}")

if(BUILD_TESTING)
  find_package(GTest CONFIG REQUIRED)      # tests and mocks
  find_package(benchmark CONFIG REQUIRED)  # micro-benchmarks
endif()
