# SPDX-License-Identifier: Apache-2.0
#
# Short names for setup/setup.sh, CMake and CTest. Each target runs the targets it depends on; a second run repeats
# no work. JOBS is the number of cores.

SHELL := /bin/bash
JOBS  ?= $(shell nproc)
CI    ?= false

PRESET := default
BUILD  := build
empty :=
space := $(empty) $(empty)
CONFIGURE_FLAGS := -DTLT_WERROR=$(if $(filter true,$(CI)),ON,OFF)
# A compiler process for the folders that use torch takes up to 1.2 GB.
BUILD_JOBS := $(shell memory=$$(awk '/MemAvailable/ {print int($$2 / 1500000)}' /proc/meminfo); \
                echo $$(( memory < 1 ? 1 : memory < $(JOBS) ? memory : $(JOBS) )))

FAULTS       ?= 1000
SEED         ?= 1
FUZZ_SECONDS ?= 60
PREFIX       ?= /usr/local
DESTDIR      ?=

.DEFAULT_GOAL := help
.PHONY: help setup clients program build test test-plain test-unit test-asan test-tsan fuzz torture hostile tidy demo demo-model headline bench gpu-bundle install wheel release docs clean

help:
	@echo "make setup       install Debian packages and the wheels in .deps/ (root or sudo; once)"
	@echo "make program     build/tlt alone"
	@echo "make build       build/tlt and the test programs"
	@echo "make test        all tests, and the sanitized tests of the folders without torch"
	@echo "make test-plain  the same without the sanitized tests"
	@echo "make test-unit   the unit tests only"
	@echo "make test-asan   the sanitized tests only (build-asan/)"
	@echo "make test-tsan   ThreadSanitizer on the tests of the code with threads (build-tsan/; at home)"
	@echo "make fuzz        libFuzzer on every parser without torch, FUZZ_SECONDS=60 each (build-fuzz/, runs/fuzz/; at home)"
	@echo "make torture     small runs disturbed by FAULTS=1000 random faults (runs/torture/; many hours, resumable)"
	@echo "make hostile     7,000 hostile files and requests through every parser (an hour)"
	@echo "make tidy        clang-tidy on the sources, not the tests: naming, sizes of functions, likely bugs"
	@echo "make demo        the embedded task: recipes/demo.toml with two workers"
	@echo "make demo-model  train models/demo from random weights (about half an hour)"
	@echo "make headline    what speculation gains where it pays: RL steps of a 25 M model, way by way (some 3 hours, one of them for the model; HEADLINE_STEPS=10: 2)"
	@echo "make bench       the CPU benchmarks, one JSON object per line"
	@echo "make gpu-bundle  .gpu/bundle.tar.xz: what a machine with a card needs for tools/gpu_check.sh (docs/gpu.md)"
	@echo "make install     the program, recipes, the demo's model, documentation and completion (PREFIX=/usr/local, DESTDIR=)"
	@echo "make wheel       dist/tlt_rl-VERSION-….whl for pip: the program and the Python package"
	@echo "make release     dist/: source archive, wheel, SBOM (SPDX) and SHA256SUMS of the commit"
	@echo "make docs        build/site/: the documentation as a site"
	@echo "make clean       remove the build folders (.deps/ stays)"
	@echo "CI=true makes warnings errors; BROWSER=1 installs Chromium for a test"

setup:
	@setup/setup.sh $(if $(filter 1,$(BROWSER)),--browser)

clients:
	@setup/setup.sh --clients --tools

# $(call configure,preset,folder): once, and again when the flags differ; CMake itself sees changed files.
define configure
	@test -f $(2)/build.ninja && [ "$(CONFIGURE_FLAGS)" = "$$(cat $(2)/.flags)" ] || \
	  { mkdir -p $(2) && cmake --preset $(1) $(CONFIGURE_FLAGS) >$(2)/configure.log 2>&1 && \
	    echo '$(CONFIGURE_FLAGS)' >$(2)/.flags || { cat $(2)/configure.log; exit 1; }; }
endef

# build/tlt alone takes half the time of a build with all test programs.
program: setup
	$(call configure,$(PRESET),$(BUILD))
	@cmake --build $(BUILD) -j $(BUILD_JOBS) --target tlt

build: setup
	$(call configure,$(PRESET),$(BUILD))
	@cmake --build $(BUILD) -j $(BUILD_JOBS)

test: test-plain test-asan

test-plain: build clients
	@tests/run.sh $(BUILD) $(JOBS)

test-unit: build
	@tests/run.sh $(BUILD) $(JOBS) -L unit

test-asan: setup
	$(call configure,asan,build-asan)
	@cmake --build build-asan -j $(BUILD_JOBS)
	@tests/run.sh build-asan $(JOBS)

# The libraries are not instrumented: tests/tsan_suppressions.txt.
TSAN_TESTS := base runtime sandbox cluster cluster_ranks reward serve
test-tsan: setup
	$(call configure,tsan,build-tsan)
	@cmake --build build-tsan -j $(BUILD_JOBS) --target $(TSAN_TESTS:%=tlt_%_test)
	@TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan_suppressions.txt die_after_fork=0 second_deadlock_stack=1" \
	  tests/run.sh build-tsan $(JOBS) -R '^($(subst $(space),|,$(TSAN_TESTS)))$$'

fuzz: setup
	@setup/setup.sh --fuzz
	$(call configure,fuzz,build-fuzz)
	@cmake --build build-fuzz -j $(BUILD_JOBS) --target tlt_fuzz_test
	@tests/fuzz.sh build-fuzz $(FUZZ_SECONDS)

torture: program
	@tests/tools/torture.py --program $(BUILD)/tlt --seed $(SEED) --faults $(FAULTS)

hostile: program
	@tests/tools/make_hostile_files.py runs/hostile
	@tests/tools/run_hostile_files.py runs/hostile --program $(BUILD)/tlt

# The static analyzer takes as long as all other checks: it runs at home.
tidy:
	@setup/setup.sh --tidy
	$(call configure,tidy,build-tidy)
	@tests/tidy.sh build-tidy $(JOBS) . $(if $(filter true,$(CI)),'--checks=-clang-analyzer-*')

demo: program
	@$(BUILD)/tlt train recipes/demo.toml --workers 2
	@echo "This model is too small for speculation to gain much; make headline shows where it does."

demo-model: program
	@$(BUILD)/tlt sft recipes/demo_warmup_1.toml
	@$(BUILD)/tlt sft recipes/demo_warmup_2.toml
	@cp runs/demo_warmup_2/policy/model.safetensors models/demo/

headline: program
	@setup/setup.sh --picture
	@bench/headline.py --program $(BUILD)/tlt

bench: program
	@$(BUILD)/tlt bench decode --model models/demo
	@$(BUILD)/tlt bench train --model models/demo

gpu-bundle: program
	@cmake --build $(BUILD) -j $(BUILD_JOBS) --target tlt_ops_test tlt_invariant_test tlt_far
	@setup/packages/gpu_bundle.py $(BUILD) .gpu/bundle.tar.xz

install: program
	@setup/packages/stage.py $(BUILD) '$(DESTDIR)$(PREFIX)'

wheel: program
	@setup/packages/wheel.py $(BUILD) dist

release: program
	@setup/packages/release.py $(BUILD) dist

docs: program
	@setup/setup.sh --tools
	@setup/packages/docs_site.py $(BUILD) $(BUILD)/site

clean:
	rm -rf build build-asan build-tsan build-fuzz build-clang build-files build-tidy dist
