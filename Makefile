# A thin front over the CMake presets. `make help` lists the targets.
#
#   CMAKE_ARGS   more arguments for every configure step
#   WEIR_CUDA    0: never CUDA, 1: fetch a toolkit if none is installed

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CTEST_PARALLEL_LEVEL ?= $(shell nproc)
export CTEST_PARALLEL_LEVEL

ifeq ($(WEIR_CUDA),0)
override CMAKE_ARGS += -DWEIR_CUDA=OFF
endif

# A new setup script, or another wish for CUDA, runs the setup again.
SETUP := build/.setup-cuda-$(or $(WEIR_CUDA),auto)
SETUP_PROGRAMS := $(SETUP)-programs
SETUP_IMAGE := $(SETUP)-image

.PHONY: help demo build programs test test-release test-asan \
  test-asan-rest test-tsan test-tsan-rest test-fuzz test-all test-slow \
  test-dev test-clang mutants lint tidy bench \
  bundle bundle-tests clean

help:
	@printf '%s\n' \
	  'make demo          install what is missing, build, run the demo' \
	  'make build         build everything; programs land in build/bin' \
	  'make programs      weir-server and weir alone, without tests' \
	  'make test          release, ASan+UBSan and TSan suites, 30 s per fuzzer' \
	  'make test-all      make test, more under sanitizers, slow tests, Debug, lint' \
	  'make mutants       breaks the product in small ways; do the tests see it?' \
	  'make lint          layer rules, names, clang-format, clang-tidy' \
	  'make bench         run every benchmark in build/bench-bin' \
	  'make bundle        dist/weir-VERSION-linux-x86_64.tar.gz' \
	  'make bundle-tests  the same with tests, benchmarks and their data' \
	  'make image-cpu     build the container image and prove it; image-cuda' \
	  'make clean         remove build/ and dist/' \
	  '' \
	  'One suite alone: make test-release | test-asan | test-tsan | test-fuzz |' \
	  '                 test-asan-rest | test-tsan-rest | test-slow | test-dev |' \
	  '                 test-clang'

# Exit code 3: something could not be fetched. Most works without it, and the
# next make tries again.
run-setup = mkdir -p build && { deploy/setup.sh $(1) && touch $@ || [ $$? = 3 ]; }

$(SETUP): deploy/setup.sh deploy/pins.txt
	$(call run-setup)

$(SETUP_PROGRAMS): deploy/setup.sh deploy/pins.txt
	$(call run-setup,--programs)

$(SETUP_IMAGE): deploy/setup.sh deploy/pins.txt
	$(call run-setup,--image)

# configure-PRESET, then build what the preset names.
build-%: $(SETUP)
	cmake --preset $* -DBUILD_TESTING=ON $(CMAKE_ARGS)
	cmake --build --preset $*

build: build-release

# The release build without its tests and benchmarks, nor what they need.
programs: $(SETUP_PROGRAMS)
	cmake --preset release \
	  $(if $(wildcard build/CMakeCache.txt),,-DBUILD_TESTING=OFF) $(CMAKE_ARGS)
	cmake --build --preset release --target programs

demo: programs
	deploy/demo/demo.sh build

test: test-release test-asan test-tsan test-fuzz

# Benchmarks are left to `make build`.
test-release: $(SETUP)
	cmake --preset release -DBUILD_TESTING=ON $(CMAKE_ARGS)
	cmake --build --preset tests
	ctest --preset release

test-asan: build-asan
	ctest --preset asan

# What test-asan leaves out: operators and client, slow under a sanitizer.
test-asan-rest: build-asan
	cmake --build --preset asan-rest
	ctest --preset asan-rest

test-tsan: build-tsan
	ctest --preset tsan

# What of the server ThreadSanitizer can see.
test-tsan-rest: build-tsan
	cmake --build --preset tsan-rest
	ctest --preset tsan-rest

# A fuzz target keeps one core busy, so they may run side by side.
test-fuzz: build-asan
	ctest --preset fuzz

test-all: test test-asan-rest test-tsan-rest test-slow test-dev lint

test-slow: build-release $(SETUP_IMAGE)
	ctest --preset slow

# Builds the image on a base that debootstrap makes, runs it, throws it away.
image-%: $(SETUP_IMAGE)
	tests/deploy/run.sh image_test.py $*

test-dev: build-dev
	ctest --preset dev

test-clang: build-clang
	ctest --preset clang

# MUTANTS: arguments for it, as in MUTANTS='--only "point_*" --resume'.
mutants: $(SETUP)
	tests/mutants/run.py $(MUTANTS) -- $(CMAKE_ARGS)

lint: tidy
	tests/lint/check_tree.py
	tests/lint/check_named_tests.py
	tests/lint/check_format.sh
	tests/mutants/run.py --check
	tests/sim/reintroduced/prove.py --check

# clang-tidy needs the generated protobuf headers and clang's own flags; it also
# holds the annotations of -Wthread-safety. Tests stay out: half of what it finds
# there are GoogleTest's macros.
tidy: $(SETUP)
	cmake --preset clang $(CMAKE_ARGS)
	cmake --build --preset clang --target weir_generated
	run-clang-tidy -quiet -p build/clang -j $$(nproc) \
	  "^$(CURDIR)/(kernels|server|client)/" >build/tidy.log 2>&1 || \
	  { grep -E '(warning|error):' build/tidy.log | sort -u; exit 1; }

bench: build-release
	tests/bench/run_all.sh build/bench-bin

bundle: $(SETUP) programs
	deploy/bundle.sh

bundle-tests: build-release
	deploy/bundle.sh --tests

clean:
	rm -rf build dist
