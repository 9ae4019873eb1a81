#!/usr/bin/env bash
# Builds the programs and lays out what the container image adds to its base:
#
#   stage_image.sh FOLDER [CMAKE_ARGUMENT...]
#   stage_image.sh --parts ROOT FOLDER
#
# FOLDER gets usr/local/bin, usr/local/lib, an empty models/, and in
# usr/local/share/weir the LICENSE, build_parts.txt (what the build id is of),
# install_packages.sh, which installs the Debian packages whose libraries the
# programs load, and same_packages.sh, by which that fails unless they are those
# of build_parts.txt; as packages, they are seen by scanners and renewed by a
# rebuild.
# A build with CUDA adds the libraries of NVIDIA's that libweir_cuda.so opens.
#
# --parts adds sbom.cdx.json, the list of parts (sbom.py), to a FOLDER that was made
# so. ROOT has /var/lib/dpkg/status and /usr/share/doc of the image in which the
# packages are installed.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: stage_image.sh [--parts ROOT] FOLDER [CMAKE_ARGUMENT...]"
root=
if [ "${1:-}" = --parts ]; then
  root="${2:?$usage}"
  shift 2
fi
stage="${1:?$usage}"
shift
tools="${WEIR_TEST_TOOLS:-/opt/weir/test-tools}"
extras="${WEIR_CUDA_EXTRAS:-/opt/weir/cuda-wheels}"

# Opened by name at run time, and those that they open or load in turn. cuDNN's
# libcudnn_adv (attention, recurrent networks) is left out: no operator of ours
# calls it.
cuda_libraries=(
  libnvrtc.so libnvrtc-builtins.so libcublasLt.so libnvjpeg.so
  libcudnn.so libcudnn_graph.so libcudnn_ops.so libcudnn_cnn.so
  libcudnn_heuristic.so libcudnn_engines_precompiled.so
  libcudnn_engines_runtime_compiled.so
)

fail() {
  printf 'stage_image: %s\n' "$*" >&2
  exit 1
}

build() {
  cmake --preset release -DBUILD_TESTING=OFF "$@"
  cmake --build --preset release --target programs
}

# The build tree's run paths are relative to bin/ and lib/, as here.
copy_programs() {
  local file
  install -d "$stage/models" "$stage/usr/local/bin" "$stage/usr/local/lib"
  install --strip build/bin/weir-server build/bin/weir "$stage/usr/local/bin"
  for file in build/lib/libweir.so build/lib/libweir_cuda.so; do
    [ ! -e "$file" ] || install --strip -m 644 "$file" "$stage/usr/local/lib"
  done
}

# Prints the path of a library with its version in the name.
find_cuda_library() {
  local folder nvcc
  nvcc="$(sed -n 's/^WEIR_NVCC:.*=//p' build/CMakeCache.txt)"
  for folder in "$(dirname "$nvcc")/.." "$extras"; do
    ls "$folder"/lib{,64}/"$1".[0-9]* 2>/dev/null || true
  done | head -n 1
}

# Beside libweir_cuda.so, where it and cuDNN look first.
copy_cuda_libraries() {
  local library path license licenses="$stage/usr/local/share/weir/licenses"
  for library in "${cuda_libraries[@]}"; do
    path="$(find_cuda_library "$library")"
    [ -n "$path" ] || fail "the CUDA toolkit has no $library"
    install -m 644 "$path" "$stage/usr/local/lib"
  done
  # Of wheels; another toolkit has its license where it came from.
  for license in "$extras"/toolkit/licenses/*; do
    [ ! -e "$license" ] || install -D -m 644 -t "$licenses" "$license"
  done
}

# Prints the Debian packages that own the libraries which the staged files
# load, our own and NVIDIA's left out.
needed_packages() {
  local path
  LD_LIBRARY_PATH="$stage/usr/local/lib" ldd "$stage"/usr/local/bin/* \
    "$stage"/usr/local/lib/* | awk '$2 == "=>" { print $1, $3 }' | sort -u |
    while read -r soname path; do
      case "$path" in
        "$stage"/*) ;;
        /*) dpkg -S "$(realpath "$path")" 2>/dev/null || dpkg -S "$path" ;;
        *) fail "$soname is not installed here" ;;
      esac
    done | cut -d: -f1 | sort -u
}

write_package_script() {
  local folder="$stage/usr/local/share/weir" packages
  packages="$(needed_packages)"
  install -d "$folder"
  cat >"$folder/install_packages.sh" <<SCRIPT
#!/bin/sh
# Installs the shared libraries that weir loads. Written by stage_image.sh.
set -e
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \\
$(sed 's/^/  /; $!s/$/ \\/' <<<"$packages")
sh "\$(dirname "\$0")/same_packages.sh"
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/lib/dpkg/*-old \\
  /var/log/apt /var/log/dpkg.log
ldconfig
SCRIPT
  chmod 755 "$folder/install_packages.sh"
  install -m 755 deploy/same_packages.sh "$folder"
}

if [ -n "$root" ]; then
  "$tools/sbom-python/bin/python" deploy/sbom.py --build build --root "$root" \
    --libraries "$stage/usr/local/lib" \
    --out "$stage/usr/local/share/weir/sbom.cdx.json"
  exit
fi
build "$@"
deploy/of_one_build.sh build
copy_programs
install -D -m 644 build/generated/build_parts.txt \
  "$stage/usr/local/share/weir/build_parts.txt"
install -D -m 644 LICENSE "$stage/usr/local/share/weir/LICENSE"
# What is in the programs is no package of the image.
for package in $(awk '!/^#/ && $2 == "part" { print $1 }' \
  cmake/linked_packages.txt); do
  install -D -m 644 "/usr/share/doc/$package/copyright" \
    "$stage/usr/local/share/weir/licenses/$package.txt"
done
[ ! -e "$stage/usr/local/lib/libweir_cuda.so" ] || copy_cuda_libraries
write_package_script
