# A few words over meson. Everything is built in build/, build-asan/ and build-tsan/.
.PHONY: all deps needs build demo test soak servers fuzz bench lint format fresh install clean
J ?= $(shell nproc)

all: build

# What the tests need, too; a build alone asks for less.
deps:
	@tools/deps test

needs:
	@tools/deps

build: build/build.ninja
	@ninja -C build -j$(J)

build/build.ninja: | needs
	@test -f $@ || meson setup build

demo: build/build.ninja
	@ninja -C build -j$(J) impel
	@build/impel drill

test: deps
	@tools/run-tests

soak: deps
	@tools/run-tests --soak

# The same on every version of the server that Debian has.
servers: deps
	@tools/servers
	@tools/run-tests --servers

# Each target for so many seconds; needs clang.
FUZZ_SECONDS ?= 600
fuzz:
	@for target in answer resp id command restore records pages; do \
		fuzz/run $$target $(FUZZ_SECONDS) || exit 1; done

bench: build
	@build/impel bench recover
	@build/impel bench steady
	@build/impel bench exec
	@build/impel bench pipe
	@build/impel bench takeover
	@build/impel bench sweep
	@build/impel bench memory
	@bench/serve.py
	@bench/serve.py --full --rounds 1
	@bench/serve.py --sizes

lint:
	@tools/lint

format:
	@tools/format

fresh:
	@tools/fresh-machine bookworm
	@tools/fresh-machine trixie

install: build
	@meson install -C build --no-rebuild
	@test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || ldconfig

clean:
	@rm -rf build build-asan build-tsan build-lint
