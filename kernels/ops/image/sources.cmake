# Image functions over raw buffers; the operators in kernels/ops wrap them.
set(WEIR_IMAGE_SOURCES
  image/crop_flip_normalize.cc
  image/decode.cc
  image/image_header.cc
  image/jpeg_decoder.cc
  image/orientation.cc
  image/png_decoder.cc
  image/resize.cc
  image/resize_geometry.cc)
# Packages the sources above need (PRIVATE).
set(WEIR_IMAGE_PACKAGES libjpeg-turbo::jpeg PkgConfig::spng hwy::hwy)
