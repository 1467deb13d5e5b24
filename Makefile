# Short names over the CMake presets. Every target first installs the Debian packages that it lacks (tools/packages.txt).
SHELL := /bin/bash
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
RELEASE := build/release
CONFIGURE := cmake --preset release
BUILD := cmake --build $(RELEASE) --parallel $(JOBS)

.PHONY: help demo demo-sft build test bench bench-memory format lint setup package assets clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

demo: ## train a small Llama-style model on real English text, minutes on two cores
	@tools/setup.sh build demo
	@test -f $(RELEASE)/build.ninja || $(CONFIGURE) -DLODE_BUILD_TESTS=OFF
	$(BUILD) --target lode
	examples/demo/run.sh

demo-sft: ## fine-tune SmolLM2 135M on a small chat set and export it (needs a network), minutes on two cores
	@tools/setup.sh build assets
	@test -f $(RELEASE)/build.ninja || $(CONFIGURE) -DLODE_BUILD_TESTS=OFF
	$(BUILD) --target lode
	examples/sft/run.sh

build: ## the binary build/bin/lode and all tests
	@tools/setup.sh build test
	$(CONFIGURE) -DLODE_BUILD_TESTS=ON -DLODE_PACKAGE=OFF
	$(BUILD)

test: build ## build everything and run all tests
	ctest --test-dir $(RELEASE) --output-on-failure --parallel $(JOBS)

bench: ## measure what lode is to reach, row by row, and write build/bench.json
	@tools/setup.sh build test bench demo
	$(CONFIGURE) -DLODE_BUILD_BENCHMARKS=ON
	$(BUILD)
	benchmarks/table.py

bench-memory: ## measure plans against runs, what saves memory and what that costs, and write build/bench-memory.json
	@tools/setup.sh build test bench demo
	$(CONFIGURE) -DLODE_BUILD_BENCHMARKS=ON
	$(BUILD)
	benchmarks/memory.py

format: ## rewrite all sources in the project's format
	@tools/setup.sh lint
	tools/sources.sh | xargs clang-format-14 -i

lint: ## layers, bans, format, and clang-tidy on changed files
	@tools/setup.sh build test lint
	tools/lint.sh

setup: ## install every package that any target needs
	@tools/setup.sh

package: ## a .deb and a tarball in build/package
	@tools/setup.sh build package
	tools/package.sh $(JOBS)

assets: ## fetch the vocabularies that some tests compare with (needs a network; tests say "not run" without)
	@tools/setup.sh assets
	tools/fetch_assets.py

clean: ## remove what was built; fetched assets stay
	rm -rf build/release build/debug build/tsan build/bin build/package
