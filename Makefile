# One verb per job. Cargo decides what has to be built.

CARGO ?= cargo
BIN := $(or $(CARGO_TARGET_DIR),target)
PYTHON ?= python3

.PHONY: build python test demo lint bench smoke lab kill orders

# The command, the preloaded library and the C library, optimised, side by side. In release/c: the C library with its header and
# weft.pc, for programs that link it.
build:
	$(CARGO) build --release --locked -p weft-cli -p weft-shim -p weft-capi
	scripts/install-c.sh $(BIN)/release $(abspath $(BIN))/release/c

# The wheel of the Python package, with the C library in it.
python:
	$(CARGO) build --release --locked -p weft-capi
	$(PYTHON) bindings/python/build_wheel.py --library $(BIN)/release/libweft_c.so --out $(BIN)

# Unit, property and C probe tests of every crate, then programs on a volume from end to end.
test:
	CARGO=$(CARGO) scripts/test.sh
	$(MAKE) smoke orders

# The tag store's threads in orders that a scheduler chooses; ORDERS of each kind.
ORDERS ?= 1000
orders:
	RUSTFLAGS="--cfg weft_shuttle" WEFT_ORDERS=$(ORDERS) CARGO_TARGET_DIR=$(abspath $(BIN))/orders \
	  $(CARGO) test --release --locked -p weft-tags --test orders

# Unmodified programs on a volume, compared with what they do natively, and slices of the campaigns with SIGKILL.
smoke:
	$(CARGO) build --locked -p weft-cli -p weft-shim -p weft-capi
	WEFT=$(BIN)/debug/weft scripts/smoke.sh
	WEFT=$(abspath $(BIN))/debug/weft suites/kill-program.sh 5
	WEFT=$(abspath $(BIN))/debug/weft suites/kill-server.sh 2
	WEFT=$(abspath $(BIN))/debug/weft suites/kill-group.sh 6 3
	@# Where root can mount.
	[ "$$(id -u)" != 0 ] || [ ! -e /dev/fuse ] || WEFT=$(abspath $(BIN))/debug/weft suites/kill-mount.sh 2
	@# What is compared with is ext4.
	[ "$$(stat -f -c %T $${TMPDIR:-/tmp})" != ext2/ext3 ] || OPERATIONS=3000 WEFT=$(abspath $(BIN))/debug/weft suites/differential.sh 40000
	@# Both fronts at once, beside ext4, too: a mount needs the kernel's help, and other users the superuser.
	[ "$$(stat -f -c %T $${TMPDIR:-/tmp})" != ext2/ext3 ] || [ ! -e /dev/fuse ] || [ "$$(id -u)" != 0 ] || { \
	  BOTH=1 OPERATIONS=1000 WEFT=$(abspath $(BIN))/debug/weft suites/differential.sh 10000 && \
	  BOTH=1 NAMES=1 OPERATIONS=1000 WEFT=$(abspath $(BIN))/debug/weft suites/differential.sh 5000 && \
	  EACH=1000 WEFT=$(abspath $(BIN))/debug/weft suites/users.sh 3000; }

# The campaigns with SIGKILL in full.
kill: build
	WEFT=$(abspath $(BIN))/release/weft suites/kill-program.sh
	WEFT=$(abspath $(BIN))/release/weft suites/kill-server.sh
	WEFT=$(abspath $(BIN))/release/weft suites/kill-group.sh
	[ "$$(id -u)" != 0 ] || [ ! -e /dev/fuse ] || WEFT=$(abspath $(BIN))/release/weft suites/kill-mount.sh

# RocksDB on an emulated zoned volume, from format to comparison. Installs db_bench when it is missing.
demo: build
	scripts/need-db-bench.sh
	WEFT=$(BIN)/release/weft scripts/demo.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Side by side with the same disk's file system (docs/benchmarks.md). Long.
bench: build
	scripts/need-db-bench.sh
	$(CARGO) build --release --locked -p weft-bench
	WEFT=$(BIN)/release/weft $(BIN)/release/weft-bench all

# A volume on emulated NVMe drives with zones, in a virtual machine. Needs QEMU (docs/how-to/lab.md).
lab: build
	WEFT=$(BIN)/release/weft scripts/lab-smoke.sh
