# `make demo` shows it, `make test` proves it.

CARGO ?= cargo

.DELETE_ON_ERROR:
.PHONY: demo test chaos chaos-short lint e2e-model function-calling bench bench-quick bench-recovery clean

## An embedded broker, a worker, sample turns, a timeline; ends by itself.
demo:
	$(CARGO) build --locked
	target/debug/turnmill dev --exit-when-done

## Everything: formatting, lints, unit, documentation and broker tests. Starts and stops its own Kafka.
test: lint
	scripts/test
	scripts/instructions

## Ten minutes of killed, stopped and added workers and of broker restarts, in both delivery modes; then everything is
## compared with everything. TURNMILL_CHAOS_SEED=N does the same things again.
chaos:
	$(CARGO) test --locked --test chaos -- --long

## The same in less than two minutes; `make test` runs it too.
chaos-short:
	$(CARGO) test --locked --test chaos -- --short

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

## Every function definition of the public function-calling leaderboard is registered, and its example calls are checked.
function-calling:
	scripts/function-calling

## A small model that runs here, behind llama.cpp's server, and the whole pipeline: some minutes to build it the first time.
e2e-model:
	scripts/e2e-model

## Everything, beside other systems: half an hour. See bench/README.md.
bench:
	scripts/bench full

## Turns per second beside a bare consume-produce loop, on a real broker, as ratios.
bench-quick:
	scripts/bench quick

## What a restore takes after a crash, with 10,000 and with 1,000,000 events in the log.
bench-recovery:
	scripts/bench recovery

clean:
	scripts/kafka down
	KAFKA_HOME_DIR=target/kafka-bench scripts/kafka down
	KAFKA_HOME_DIR=target/kafka-chaos scripts/kafka down
	KAFKA_SECURE=yes scripts/kafka down
	$(CARGO) clean
