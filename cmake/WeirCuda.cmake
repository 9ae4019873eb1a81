# Decides whether the CUDA backend is built and where its toolkit is. Sets
# WEIR_CUDA_ENABLED and, if on, WEIR_CUDA_ROOT and WEIR_CUDA_VERSION_FILES, whose
# contents tell the toolkit's version; `weir_cuda_toolkit` carries headers and
# flags. Host code alone is compiled here: kernels are, by NVRTC,
# where they run. deploy/setup.sh puts what a toolkit lacks (nvJPEG,
# cudnn-frontend) into WEIR_CUDA_EXTRAS.

set(extras_help "Where deploy/setup.sh unpacked what the CUDA toolkit lacks")
set(WEIR_CUDA_EXTRAS "$ENV{WEIR_CUDA_EXTRAS}" CACHE PATH "${extras_help}")
if(NOT WEIR_CUDA_EXTRAS)
  # Into the cache, where deploy/sbom.py reads it.
  set(WEIR_CUDA_EXTRAS "/opt/weir/cuda-wheels"
    CACHE PATH "${extras_help}" FORCE)
endif()

set(WEIR_CUDA_ENABLED FALSE)
if(WEIR_CUDA STREQUAL "OFF")
  return()
endif()

find_program(WEIR_NVCC nvcc
  HINTS "${WEIR_CUDA_EXTRAS}/toolkit/bin" ENV CUDACXX ENV CUDA_HOME
  PATHS /usr/local/cuda/bin PATH_SUFFIXES bin)
if(NOT WEIR_NVCC)
  if(WEIR_CUDA STREQUAL "AUTO")
    message(STATUS "weir: no nvcc, building for the CPU only")
    return()
  endif()
  message(FATAL_ERROR "WEIR_CUDA=ON but there is no nvcc: install a CUDA "
    "toolkit or run WEIR_CUDA=1 deploy/setup.sh")
endif()

file(REAL_PATH "${WEIR_NVCC}" nvcc)
cmake_path(GET nvcc PARENT_PATH WEIR_CUDA_ROOT)
cmake_path(GET WEIR_CUDA_ROOT PARENT_PATH WEIR_CUDA_ROOT)
set(WEIR_CUDA_ENABLED TRUE)

add_library(weir_cuda_toolkit INTERFACE)
add_library(weir::cuda_toolkit ALIAS weir_cuda_toolkit)

function(_weir_cuda_header variable header)
  find_path(${variable} ${header} NO_DEFAULT_PATH
    PATHS "${WEIR_CUDA_ROOT}" "${WEIR_CUDA_EXTRAS}"
          "${WEIR_CUDA_EXTRAS}/toolkit" /usr
    PATH_SUFFIXES include include/cccl)
  if(${variable})
    target_include_directories(weir_cuda_toolkit SYSTEM INTERFACE
      "${${variable}}")
  endif()
endfunction()

# Libraries other than the static runtime are opened by name when the first
# program needs them, so only headers are needed to build.
_weir_cuda_header(WEIR_CUDART_INCLUDE cuda_runtime.h)
_weir_cuda_header(WEIR_CUB_INCLUDE cub/cub.cuh)
_weir_cuda_header(WEIR_NVRTC_INCLUDE nvrtc.h)
_weir_cuda_header(WEIR_CUBLASLT_INCLUDE cublasLt.h)
_weir_cuda_header(WEIR_CUFFT_INCLUDE cufft.h)
_weir_cuda_header(WEIR_CUDNN_INCLUDE cudnn.h)
_weir_cuda_header(WEIR_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h)
_weir_cuda_header(WEIR_NVJPEG_INCLUDE nvjpeg.h)

foreach(required IN ITEMS CUDART NVRTC CUBLASLT)
  if(NOT WEIR_${required}_INCLUDE)
    message(FATAL_ERROR "The CUDA toolkit at ${WEIR_CUDA_ROOT} has no "
      "${required} headers; configure with -DWEIR_CUDA=OFF or complete it")
  endif()
endforeach()

find_library(WEIR_CUDART_STATIC cudart_static REQUIRED NO_DEFAULT_PATH
  PATHS "${WEIR_CUDA_ROOT}" PATH_SUFFIXES lib64 lib)
set(WEIR_CUDA_VERSION_FILES "${WEIR_CUDART_STATIC}")
foreach(pair IN ITEMS CUDART/cuda.h CUDART/cuda_runtime_api.h NVRTC/nvrtc.h
        CUBLASLT/cublasLt.h CUBLASLT/cublas_api.h CUFFT/cufft.h
        CUDNN/cudnn_version.h CUDNN_FRONTEND/cudnn_frontend_version.h
        NVJPEG/nvjpeg.h)
  string(REPLACE "/" ";" pair "${pair}")
  list(GET pair 0 part)
  list(GET pair 1 header)
  if(EXISTS "${WEIR_${part}_INCLUDE}/${header}")
    list(APPEND WEIR_CUDA_VERSION_FILES "${WEIR_${part}_INCLUDE}/${header}")
  endif()
endforeach()

# Code asks #if WEIR_HAVE_NVJPEG; what is missing answers UNIMPLEMENTED.
set(missing "")
foreach(optional IN ITEMS CUB CUFFT CUDNN CUDNN_FRONTEND NVJPEG)
  if(WEIR_${optional}_INCLUDE)
    target_compile_definitions(weir_cuda_toolkit INTERFACE
      WEIR_HAVE_${optional}=1)
  else()
    target_compile_definitions(weir_cuda_toolkit INTERFACE
      WEIR_HAVE_${optional}=0)
    list(APPEND missing ${optional})
  endif()
endforeach()
message(STATUS "weir: CUDA from ${WEIR_CUDA_ROOT}")
if(missing)
  message(STATUS "weir: without ${missing} (deploy/setup.sh fetches them)")
endif()
