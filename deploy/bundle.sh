#!/usr/bin/env bash
# Packs the release build into dist/weir-VERSION-linux-x86_64.tar.gz, which
# runs on any x86-64 Linux with glibc 2.36 or newer from wherever it is
# unpacked. With --tests: the same plus tests, benchmarks and their data, as
# dist/weir-VERSION-tests-linux-x86_64.tar.xz: by gzip it would be over the
# limit. Beside an archive it leaves its list of parts (sbom.py), and dist/SHA256SUMS
# is of all that is there. What does not pass the checks is not kept, and leaves
# what was there.
#
# The bundle carries every shared library but glibc's and NVIDIA's. The same build
# packs to the same bytes: SOURCE_DATE_EPOCH or 1980 is the time of all files.
#
# Environment: WEIR_BUILD_DIR, the build (build); WEIR_DIST_DIR, where bundles go
# (dist).
set -euo pipefail
cd "$(dirname "$0")/.."

build="${WEIR_BUILD_DIR:-build}"
dist="${WEIR_DIST_DIR:-dist}"
tools="${WEIR_TEST_TOOLS:-/opt/weir/test-tools}"
max_bytes=$((60 * 1000 * 1000))
newest_glibc="2.36"

glibc='^(ld-linux-x86-64|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nss_.*))\.so'
# A test's stand-in for the driver loads that as cuda_real.
nvidia='^lib(cuda|cuda_real|cudart|nvrtc|nvrtc-builtins|cublas|cublasLt|cufft|cudnn.*'
nvidia+='|nvjpeg|nvJitLink|nvidia-.*)\.so'
# Where they may be on the target, beside the linker's own paths.
cuda_paths='/usr/local/cuda/lib64:/opt/weir/cuda-wheels/lib'
cuda_paths+=':/opt/weir/cuda-wheels/toolkit/lib'

fail() {
  printf 'bundle: %s\n' "$*" >&2
  exit 1
}

is_elf() { [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }

# Prints "soname path" of everything the given files load, NVIDIA's and
# glibc's left out.
needed_libraries() {
  local file
  for file in "$@"; do
    LD_LIBRARY_PATH="$build/lib" ldd "$file"
  done | awk '$2 == "=>" { print $1, $3 }' | sort -u |
    awk -v skip="$glibc|$nvidia" '$1 !~ skip'
}

copy_libraries() {
  local stage="$1" soname path
  needed_libraries "$stage"/bin/* "$stage"/lib/* "$stage"/*-bin/* |
    while read -r soname path; do
      [ -e "$stage/lib/$soname" ] && continue
      [ "$path" != not ] || fail "$soname is not installed here"
      cp -L "$path" "$stage/lib/$soname"
      copy_license "$stage" "$path"
    done
}

# Every library travels with the copyright file of its Debian package.
copy_license() {
  local stage="$1" path="$2" package
  package="$({ dpkg -S "$(realpath "$path")" || dpkg -S "$path"; } 2>/dev/null |
    head -n 1 | cut -d: -f1)"
  [ -n "$package" ] || fail "no package owns $path: its license is unknown"
  mkdir -p "$stage/share/licenses"
  cp -L "/usr/share/doc/$package/copyright" \
    "$stage/share/licenses/$package.txt"
}

# What is in it: for people who compare builds, and for scanners.
write_parts() {
  local stage="$1" packages=() license
  for license in "$stage"/share/licenses/*.txt; do
    packages+=("$(basename "$license" .txt)")
  done
  cp "$build/generated/build_parts.txt" "$stage/share/"
  "$tools/sbom-python/bin/python" deploy/sbom.py --build "$build" \
    --libraries "$stage/lib" --out "$stage/share/sbom.cdx.json" "${packages[@]}"
  add_licenses_of_parts "$stage/share/licenses"
}

# Of what is in our programs, so that no library of it is copied.
add_licenses_of_parts() {
  local licenses="$1" package
  for package in $(awk '!/^#/ && $2 == "part" { print $1 }' \
    cmake/linked_packages.txt); do
    cp -L "/usr/share/doc/$package/copyright" "$licenses/$package.txt"
  done
  [ -e "$build/lib/libweir_cuda.so" ] || return 0
  local extras root
  extras="$(cached WEIR_CUDA_EXTRAS)"
  root="$(dirname "$(dirname "$(realpath "$(cached WEIR_CUDART_STATIC)")")")"
  add_license_of_cuda "$licenses" nvidia_cuda_runtime "$extras" \
    "$root/EULA.txt" "$root/LICENSE"
  [[ "$(cached WEIR_CUDNN_FRONTEND_INCLUDE)" = *NOTFOUND ]] ||
    add_license_of_cuda "$licenses" nvidia_cudnn_frontend "$extras"
}

# The first that is there: of the wheel, or FILE...
add_license_of_cuda() {
  local licenses="$1" name="$2" extras="$3" file
  shift 3
  for file in "$extras"/{toolkit/,}licenses/"$name.txt" "$@"; do
    [ -f "$file" ] || continue
    cp -L "$file" "$licenses/$name.txt"
    return
  done
  printf 'bundle: WARNING: no license of %s is on this machine: add it\n' "$name"
}

# What CMake keeps of the build.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# Neither names nor times of this machine, so that the same build has the same
# bytes.
pack() {
  local name="$1" archive="$2"
  shift 2
  tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
    --mode=u+rwX,go+rX,go-w,a-s --mtime="@${SOURCE_DATE_EPOCH:-315532800}" \
    -C "$dist" -cf - "$name" | "$@" >"$archive"
}

strip_and_relocate() {
  local stage="$1" file origin
  for file in "$stage"/bin/* "$stage"/lib/* "$stage"/*-bin/*; do
    is_elf "$file" || continue
    chmod u+w "$file"
    strip --strip-unneeded "$file"
    # shellcheck disable=SC2016 # $ORIGIN is for the dynamic linker.
    case "$file" in
      */lib/libweir_cuda.so) origin="\$ORIGIN:$cuda_paths" ;;
      */lib/*) origin='$ORIGIN' ;;
      *) origin='$ORIGIN/../lib' ;;
    esac
    patchelf --set-rpath "$origin" "$file"
  done
}

# What CTest would run, for machines that have no CTest: one line a program,
# "name<TAB>labels<TAB>timeout<TAB>arguments".
write_test_list() {
  ctest --test-dir "$build" --show-only=json-v1 | python3 -c '
import json, pathlib, sys
for test in json.load(sys.stdin)["tests"]:
    command = test.get("command", [])
    if not command or pathlib.Path(command[0]).parent.name != "test-bin":
        continue
    values = {p["name"]: p["value"] for p in test["properties"]}
    print(test["name"], ",".join(values.get("LABELS", [])),
          int(values.get("TIMEOUT", 120)), " ".join(command[1:]), sep="\t")
'
}

add_tests() {
  local stage="$1" file
  cp -r "$build/test-bin" "$build/bench-bin" "$stage/" ||
    fail "no tests in $build: build the release preset first"
  git ls-files --cached --others --exclude-standard tests |
    grep -vE '(\.(cc|h|cu|cuh)|CMakeLists\.txt)$' |
    while read -r file; do
      [ -f "$file" ] || continue
      mkdir -p "$stage/$(dirname "$file")"
      cp "$file" "$stage/$file"
    done
  write_test_list >"$stage/tests/list.tsv"
  keep_what_runs "$stage"
}

# Programs that tests/gpu/run.sh does not run stay out: they would take the
# archive over its limit.
keep_what_runs() {
  local stage="$1" logs tasks file
  logs="$(mktemp -d)"
  tasks="$(WEIR_GPU_LOGS="$logs" "$stage/tests/gpu/run.sh" --list --only .)"
  rm -r "$logs"
  for file in "$stage"/{test,bench}-bin/*; do
    [[ "$file" != *.so ]] || continue  # what programs there load
    grep -q " $(basename "$file")\$" <<<"$tasks" || rm -r "$file"
  done
}

# Nothing may come from this machine but glibc and NVIDIA's libraries; no program
# tells where it was built.
verify() {
  local archive="$1" name="$2" work root file found version
  work="$(mktemp -d)"
  tar -xf "$archive" -C "$work"
  root="$work/$name"
  for file in "$root"/bin/* "$root"/lib/* "$root"/*-bin/*; do
    is_elf "$file" || continue
    found="$(env -u LD_LIBRARY_PATH ldd "$file" |
      awk -v root="$root/" -v skip="$glibc|$nvidia" \
        '$2 == "=>" && $1 !~ skip && index($3, root) != 1')"
    [ -z "$found" ] || fail "${file#"$root/"} loads from outside: $found"
    version="$(objdump -T "$file" |
      sed -n 's/.*(\?GLIBC_\([0-9.]*\)).*/\1/p' | sort -Vu | tail -n 1)"
    [ "$(printf '%s\n' "$version" "$newest_glibc" | sort -V | tail -n 1)" = \
      "$newest_glibc" ] || fail "${file#"$root/"} needs glibc $version"
  done
  found="$(grep -rlE "$PWD/(kernels|server|client|proto)/|$(realpath "$build")/" \
    "$root/bin" "$root/lib" || true)"
  [ -z "$found" ] || fail "has the path of the build in it: $found"
  for file in weir-server weir; do
    env -i "$root/bin/$file" --version >/dev/null ||
      fail "bin/$file does not start from the unpacked bundle"
  done
  rm -rf "$work"
}

main() {
  local tests=no kind="" version name archive bytes
  local suffix=gz compress=(gzip -n -6)
  if [ "${1:-}" = --tests ]; then
    tests=yes kind="-tests" suffix=xz
    # Programs repeat one another; one thread would make other bytes.
    compress=(xz --lzma2=preset=2,dict=64MiB -T2)
  fi
  if ! [ -x "$build/bin/weir-server" ] || ! [ -x "$build/bin/weir" ]; then
    fail "no programs in $build/bin: run make bundle"
  fi
  deploy/of_one_build.sh "$build"
  [ -x "$tools/sbom-python/bin/python" ] ||
    fail "no $tools/sbom-python: run deploy/setup.sh"

  version="$(cached CMAKE_PROJECT_VERSION)"
  name="weir-$version$kind-linux-x86_64"
  stage="$dist/$name"
  archive="$dist/$name.tar.$suffix"
  # Nobody's bundle until it was looked at.
  unchecked="$dist/unchecked.tar.$suffix"
  trap 'rm -rf "$stage" "$unchecked"' EXIT
  rm -rf "$stage"
  mkdir -p "$stage/bin" "$stage/lib"
  cp "$build/bin/weir-server" "$build/bin/weir" "$stage/bin/"
  cp "$build"/lib/libweir*.so "$stage/lib/"
  cp LICENSE "$stage/"
  sed '1r deploy/bundle_note.md' README.md >"$stage/README.md"
  # What clients are generated from.
  mkdir -p "$stage/proto/weir/v1" "$stage/docs"
  cp proto/weir/v1/*.proto "$stage/proto/weir/v1/"
  cp docs/*.md "$stage/docs/"
  [ $tests = no ] || add_tests "$stage"
  python3 deploy/drop_dead_links.py "$stage"

  shopt -s nullglob
  copy_libraries "$stage"
  write_parts "$stage"
  strip_and_relocate "$stage"
  pack "$name" "$unchecked" "${compress[@]}"

  bytes="$(stat -c %s "$unchecked")"
  [ "$bytes" -le "$max_bytes" ] ||
    fail "$archive would have $bytes bytes, more than $max_bytes"
  verify "$unchecked" "$name"
  mv "$unchecked" "$archive"
  cp "$stage/share/sbom.cdx.json" "$dist/$name.cdx.json"
  (cd "$dist" && sha256sum weir-*.tar.* weir-*.cdx.json >SHA256SUMS)
  printf 'bundle: %s, %d.%d MB\n' "$archive" \
    $((bytes / 1000000)) $((bytes / 100000 % 10))
}

main "$@"
