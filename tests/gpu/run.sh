#!/usr/bin/env bash
# Proves the CUDA backend on a GPU machine, inside an unpacked test bundle
# (make bundle-tests), which fetches nothing:
#
#   tests/gpu/run.sh                  everything
#   tests/gpu/run.sh --part N/M       the Nth of M parts, each under 8 minutes
#   tests/gpu/run.sh --list           what would run, and in which part
#   tests/gpu/run.sh --only REGEX     the tasks whose "kind name" matches
#   tests/gpu/run.sh --jobs N         N tasks of compute-sanitizer at once, all
#                                     but refused (1)
#
# Kinds: suite (the CUDA tests of each program), server (the server suites that
# name no device, on cuda:0), clients (load testers of others, where they are
# installed), driver (suites over a driver that says when it is asked to wait,
# watched_driver.cc: no thread may then that must not), memcheck, refused,
# racecheck, initcheck and synccheck (compute-sanitizer over the device and
# operator suites; refused is memcheck over tests whose calls the driver is to
# refuse), bench, and soak (five minutes of constant load: what memory does; runs
# with --only soak alone, as it takes a run's time). Prints a table and exits 1 if
# anything failed, was skipped for no reason of may_skip or did not fit into the
# time, 2 if no task is what was asked for. Logs go to
# $WEIR_GPU_LOGS (default: gpu-logs in the bundle).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

root="$PWD"
logs="${WEIR_GPU_LOGS:-$root/gpu-logs}"
limit_s="${WEIR_GPU_LIMIT:-470}"
part=1
parts=1
only=""
list=no
jobs=1

fail_usage() {
  printf 'run.sh: %s\n' "$1" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case "$1" in
    --part)
      [[ "${2:-}" =~ ^([0-9]+)/([0-9]+)$ ]] ||
        fail_usage "--part needs N/M, for example 1/3"
      part="${BASH_REMATCH[1]}"
      parts="${BASH_REMATCH[2]}"
      { [ "$part" -ge 1 ] && [ "$part" -le "$parts" ]; } ||
        fail_usage "there is no part $part of $parts"
      shift 2
      ;;
    --only)
      only="${2:-}"
      [ -n "$only" ] || fail_usage "--only needs a regular expression"
      shift 2
      ;;
    --jobs)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] ||
        fail_usage "--jobs needs a number, for example 8"
      jobs="$2"
      shift 2
      ;;
    --list)
      list=yes
      shift
      ;;
    *) fail_usage "unknown argument '$1'" ;;
  esac
done

export WEIR_TEST_DATA="$root/tests"
export WEIR_BIN_DIR="$root/bin"
# NVIDIA's libraries that travel beside the bundle, then those of Python wheels.
if [ -z "${WEIR_CUDA_LIBRARY_PATH:-}" ]; then
  paths="$root/lib/nvidia"
  wheels="$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' \
    2>/dev/null || true)"
  for folder in "$wheels"/*/lib; do
    [ -d "$folder" ] && paths+=":$folder"
  done
  export WEIR_CUDA_LIBRARY_PATH="$paths"
fi

sanitizer="$(command -v compute-sanitizer ||
  ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null || true)"
cuda_tests='*cuda*:*Cuda*:*CUDA*'
# Tests that lose the device on purpose say nothing under the sanitizer.
lost='*Death*:*Poison*'
# Whose calls the driver refuses: they ask for more memory than there is, and
# for a device that there is not. Memcheck reports what it refuses of the others.
refused_tests='*ExhaustionIsNotSticky/*uda*'
refused_tests+=':*CudaStreamTest.ADeviceWithoutThatNumberIsAnError'
memchecked_tests="$cuda_tests:-$lost:$refused_tests"
# Hundreds of decoders at once take minutes of a tool, and more memory than it
# leaves.
many_pictures='*PicturesOfManyLanesWaitForOneAnother'
memchecked_tests+=":$many_pictures"
# The many works of these run no kernels but copies: nothing for the others.
sanitized_tests="$cuda_tests:-$lost:*Stress*:*UnderLoad*:$refused_tests"
sanitized_tests+=":$many_pictures"
# A copy to the host waits, under initcheck, for all that is before it, in the
# call that enqueues it: behind a stream that is held it stands still.
initchecked_tests="$sanitized_tests:*AWaitOnTheDeviceOrdersTwoStreams*"
# It does not see what nvJPEG writes: where memory is not filled before, as the
# operators' tests do, a picture is nothing to it.
initchecked_tests+=":*WhatAPictureTookIsGivenBackOnce"

# Why a case may be skipped where all is there: it is another device's, or wants
# a second one.
may_skip="^(the CPU's library|programs of text run on the CPU|needs two GPUs: )"

# Of a server suite, what is not on cuda:0: its device is lost in words of the
# CPU's, which gpu_fault_bench sees of a GPU.
server_tests() {
  case "$1" in
    server_health_test) printf '%s' '-*ALostDeviceIsNeitherReadyNorLive' ;;
    *) printf '%s' '*' ;;
  esac
}

# What is run over the watched driver: of suites that take either device, the
# GPU's part.
driver_tests() {
  case "$1" in
    eval_* | watched_*) printf '%s' "$cuda_tests" ;;
    *) server_tests "$1" ;;
  esac
}

# Names of programs with tests that match the filter $1, and of those that cannot
# say which they have, which fail as tasks; with a second argument, only those
# whose name matches it.
programs_with_tests() {
  local name labels listed
  while IFS=$'\t' read -r name labels _; do
    [[ ",$labels," == *,fuzz,* ]] && continue
    [[ "$name" =~ ${2:-.} ]] || continue
    [ -x "test-bin/$name" ] || continue
    listed="$("test-bin/$name" --gtest_list_tests --gtest_filter="$1" \
      2>/dev/null)" && [[ "$listed" != *$'\n  '* ]] && continue
    printf '%s\n' "$name"
  done <tests/list.tsv
}

# Names, without _test, of the programs that call into spaces over the wire.
space_suites() {
  cut -f1 tests/list.tsv |
    sed -nE 's/^(services_(space|commands|session).*)_test$/\1/p'
}

# What compute-sanitizer looks at by a tool.
tests_of() {
  case "$1" in
    memcheck) printf '%s' "$memchecked_tests" ;;
    refused) printf '%s' "$refused_tests" ;;
    initcheck) printf '%s' "$initchecked_tests" ;;
    *) printf '%s' "$sanitized_tests" ;;
  esac
}

tasks=()
add_tasks() {
  local name
  while read -r name; do
    [ "$name" = watched_driver_test ] || tasks+=("suite $name")
  done < <(programs_with_tests "$cuda_tests")
  for name in services_evaluator services_kserve_infer services_catalog \
    services_kserve_info services_admin observe_metrics server_bad_input \
    server_cancel server_health server_hostile server_limits server_drain \
    server_mixed_load server_statistics server_text $(space_suites); do
    tasks+=("server ${name}_test")
  done
  tasks+=("clients perf_analyzer")
  for name in watched_driver cuda_waits $(programs_with_tests "$cuda_tests" '^eval_') \
    services_evaluator services_kserve_infer services_admin server_cancel \
    server_drain server_health server_mixed_load $(space_suites); do
    tasks+=("driver ${name%_test}_test")
  done
  local tool filter
  for tool in memcheck refused racecheck initcheck synccheck; do
    filter="$(tests_of "$tool")"
    while read -r name; do tasks+=("$tool $name"); done \
      < <(programs_with_tests "$filter" \
        '^ops_|conformance|^cuda_|^onnx_cases')
  done
  for name in bench-bin/gpu_* bench-bin/picture_bench bench-bin/server_bench \
    bench-bin/space_bench bench-bin/hostile_bench bench-bin/model_bench; do
    [ -x "$name" ] && tasks+=("bench $(basename "$name")")
  done
  # As long as a run may take: it is asked for by name.
  [[ "soak soak" =~ ${only:-^$} ]] && [ -x bench-bin/soak ] &&
    tasks+=("soak soak")
}

# What a benchmark is told here beside its name. torch compiles for minutes, so
# docs/benchmarks.md has the whole comparison.
bench_arguments() {
  case "$1" in
    model_bench)
      printf '%s\n' --device=cuda --precision=fp16 --batch=1 \
        --rivals=torch-eager --seconds=1
      ;;
    space_bench) printf '%s\n' cuda:0 ;;
    hostile_bench) printf '%s\n' --device=cuda ;;
  esac
}

needs_sanitizer() { [[ "$1" == @(*check|refused) ]]; }

# Whether it may have company: it measures nothing and leaves memory to others.
runs_beside() { [[ "$1" == *check ]]; }

# Prints the folder in which libcuda.so.1 is the watched driver.
watched_driver() {
  local folder="$logs/driver" real
  real="$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*x86-64.* => //p' |
    head -n 1)"
  [ -n "$real" ] || return 1
  mkdir -p "$folder"
  ln -sf "$(readlink -f "$real")" "$folder/libcuda_real.so"
  cp "test-bin/libwatched_driver.so" "$folder/libcuda.so.1"
  printf '%s' "$folder"
}

run_task() {
  local kind="$1" name="$2" seconds="$3"
  case "$kind" in
    suite)
      timeout "$seconds" "test-bin/$name" --gtest_filter="$cuda_tests"
      ;;
    server)
      WEIR_TEST_DEVICE=cuda:0 timeout "$seconds" "test-bin/$name" \
        --gtest_filter="$(server_tests "$name")"
      ;;
    driver)
      local folder
      folder="$(watched_driver)" || return 1
      WEIR_WATCHED_DRIVER=1 WEIR_TEST_DEVICE=cuda:0 \
        LD_LIBRARY_PATH="$folder" timeout "$seconds" "test-bin/$name" \
        --gtest_filter="$(driver_tests "$name")"
      ;;
    memcheck | refused)
      local report=explicit
      [ "$kind" = memcheck ] || report=no
      timeout "$seconds" "$sanitizer" --tool memcheck --leak-check no \
        --report-api-errors "$report" --error-exitcode 9 "test-bin/$name" \
        --gtest_filter="$(tests_of "$kind")"
      ;;
    racecheck | synccheck)
      timeout "$seconds" "$sanitizer" --tool "$kind" --error-exitcode 9 \
        "test-bin/$name" --gtest_filter="$(tests_of "$kind")"
      ;;
    # nvJPEG makes RGB of RGBA and reads the A that nobody wrote.
    initcheck)
      timeout "$seconds" "$sanitizer" --tool initcheck --error-exitcode 9 \
        --kernel-name-exclude kernel_substring=rgba2rgb \
        "test-bin/$name" --gtest_filter="$(tests_of "$kind")"
      ;;
    clients)
      timeout "$seconds" python3 "tests/server/$name.py" --device cuda:0
      ;;
    soak)
      timeout "$seconds" "bench-bin/$name" cuda:0 300
      ;;
    bench)
      local arguments
      mapfile -t arguments < <(bench_arguments "$name")
      timeout "$seconds" "bench-bin/$name" "${arguments[@]}"
      ;;
  esac
}

# Prints the cases that the log $1 says were skipped for no reason of may_skip.
skipped_amiss() {
  awk -v may_skip="$may_skip" '
    /^\[ RUN      \]/ { fine = 0 }
    told { fine = $0 ~ may_skip; reason = $0; told = 0 }
    /: Skipped$/ { told = 1 }
    /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ && !fine { print $4 ": " reason }
  ' "$1"
}

# Runs a task in what is left of the time, and prints its row of the table.
judge() {
  local kind="$1" name="$2"
  local log="$logs/$kind-$name.log"
  local left=$((limit_s - SECONDS)) start=$SECONDS result=ok code tests
  local skipped
  if [ "$left" -le 5 ]; then
    result="NO TIME"
  elif needs_sanitizer "$kind" && [ -z "$sanitizer" ]; then
    result="NO TOOL"
  else
    run_task "$kind" "$name" "$left" >"$log" 2>&1
    code=$?
    if [ "$kind" = clients ] && [ $code = 77 ]; then
      result="not here"
    elif [ $code != 0 ]; then
      result="FAILED ($code)"
    # A program may not pass by skipping everything, nor a case for want of
    # what is to be there.
    elif [[ "$kind" = bench || "$kind" = soak ]]; then
      ! grep -q '^skipped: ' "$log" || result=SKIPPED
    elif [ "$kind" != clients ] &&
      { ! grep -q '^\[  PASSED  \] [1-9]' "$log" ||
        [ -n "$(skipped_amiss "$log")" ]; }; then
      result=SKIPPED
    fi
  fi
  [[ "$result" = ok || "$result" = "not here" ]] || printf '.' >>"$failures"
  tests="$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests*.*/\1/p' "$log" \
    2>/dev/null | tail -n 1)"
  skipped="$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests*, .*/\1/p' "$log" \
    2>/dev/null | tail -n 1)"
  printf '%-10s %-34s %-12s %5s tests %4s skipped %5d s\n' "$kind" "$name" \
    "$result" "${tests:--}" "${skipped:-0}" "$((SECONDS - start))" |
    tee -a "$table"
  if [[ "$kind" = bench || "$kind" = soak || "$kind" = clients ]] &&
    [ -e "$log" ]; then
    sed 's/^/    /' "$log" | tee -a "$table"
  elif [ "$result" != ok ] && [ -e "$log" ]; then
    skipped_amiss "$log" | sed 's/^/    skipped /'
    grep -E '^\[  FAILED|^\[  SKIPPED|Failure|ERROR SUMMARY|=========' "$log" |
      head -n 20 | sed 's/^/    /'
    tail -n 5 "$log" | sed 's/^/    /'
  fi
}

add_tasks
mkdir -p "$logs"
table="$logs/table-$part-of-$parts.txt"
failures="$logs/failures-$part-of-$parts"  # a character each
: >"$table"
: >"$failures"
index=0
matched=0
for task in "${tasks[@]}"; do
  mine=$((index % parts + 1))
  index=$((index + 1))
  kind="${task%% *}"
  name="${task#* }"
  if [ -n "$only" ] && ! [[ "$task" =~ $only ]]; then continue; fi
  matched=$((matched + 1))
  if [ $list = yes ]; then
    printf '%d/%d %s %s\n' "$mine" "$parts" "$kind" "$name"
    continue
  fi
  [ "$mine" = "$part" ] || continue
  if runs_beside "$kind" && [ "$jobs" -gt 1 ]; then
    [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
    judge "$kind" "$name" &
  else
    wait
    judge "$kind" "$name"
  fi
done
wait
[ "$matched" != 0 ] || fail_usage "no task matches '$only'"
[ $list = yes ] && exit 0
failed="$(wc -c <"$failures")"
if [ "$failed" != 0 ]; then
  printf 'part %d/%d: %d failed\n' "$part" "$parts" "$failed"
  exit 1
fi
printf 'part %d/%d: all passed in %d s\n' "$part" "$parts" "$SECONDS"
