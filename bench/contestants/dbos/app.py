"""Turns as DBOS workflows: one executor; `run` starts several, which share the topic and the queue.

DBOS.kafka_consumer would keep no order (ordering="none") or run one turn a Kafka partition at a
time ("partition"). The order wanted here, one turn a session at a time and sessions side by side,
is that of a partitioned queue; so this reads Kafka itself, as DBOS does: it enqueues a batch in
one transaction, under ids made of topic, partition and offset, and then commits the offsets.
"""

import asyncio
import json
import os
import signal
import threading
from pathlib import Path

import sqlalchemy
from confluent_kafka import Consumer, Producer
from dbos import DBOS, DBOSClient, DBOSConfig

NAME, QUEUE = "bench-turns", "turns"
KAFKA = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
DATABASE = os.environ["DBOS_DATABASE"]
EXECUTOR = os.environ["DBOS_EXECUTOR"]

config: DBOSConfig = {
    "name": NAME,
    "system_database_url": DATABASE,
    "executor_id": EXECUTOR,
    "log_level": "WARNING",
    # The threads that talk to Postgres (workflows themselves are coroutines): more than a few only
    # contend for the interpreter's lock. Each needs a connection, as do the queue and the listener.
    "max_executor_threads": 16,
    "sys_db_pool_size": 20,
}
DBOS(config=config)

producer = Producer(KAFKA | {"acks": "all", "enable.idempotence": True})


async def publish(topic: str, key: str, record: dict) -> None:
    """Returns once Kafka has acknowledged the record."""
    loop = asyncio.get_running_loop()
    acked = loop.create_future()

    def delivered(error, _message):
        if error:
            loop.call_soon_threadsafe(acked.set_exception, RuntimeError(str(error)))
        else:
            loop.call_soon_threadsafe(acked.set_result, None)

    producer.produce(topic, key=key, value=json.dumps(record), on_delivery=delivered)
    await acked


@DBOS.step()
async def echo(text: str, work_ms: float) -> str:
    if work_ms:
        await asyncio.sleep(work_ms / 1000)
    return text


@DBOS.workflow(name="turn")
async def run_turn(value: str) -> None:
    turn = json.loads(value)
    steps, work_ms = int(turn["metadata"]["steps"]), int(turn["metadata"]["work_ms"])
    for step in range(steps):
        await echo(chr(ord("a") + step), work_ms / steps)
    # The last thing a workflow does needs no checkpoint of its own: whether it is a step or not,
    # a crash between Kafka's acknowledgement and Postgres's publishes once more.
    record = {"turn_id": turn["turn_id"], "session_id": turn["session_id"]}
    record |= {"status": "completed", "output": "done"}
    await publish(os.environ["RESULTS_TOPIC"], turn["session_id"], record)


def poll_producer() -> None:
    while True:
        producer.poll(1)


def consume() -> None:
    client = DBOSClient(system_database_url=DATABASE, application_name=NAME)
    engine = sqlalchemy.create_engine(DATABASE)
    group = {"group.id": os.environ["GROUP_ID"], "auto.offset.reset": "earliest"}
    consumer = Consumer(KAFKA | group | {"enable.auto.commit": False})
    ready = Path(f"ready-{EXECUTOR}")
    consumer.subscribe([os.environ["TURNS_TOPIC"]], on_assign=lambda *_: ready.touch())
    while True:
        batch = [m for m in consumer.consume(50, timeout=0.02) if not m.error()]
        if not batch:
            continue
        with engine.begin() as transaction:
            for m in batch:
                options = {
                    "workflow_name": "turn",
                    "queue_name": QUEUE,
                    "queue_partition_key": m.key().decode(),
                    "workflow_id": f"{m.topic()}-{m.partition()}-{m.offset():012d}",
                }
                client.enqueue_in_transaction(transaction, options, m.value().decode())
        consumer.commit(asynchronous=True)


def consume_or_die() -> None:
    try:
        consume()
    except BaseException as error:
        print(f"dbos: the consumer failed: {error!r}", flush=True)
        os._exit(1)


# Before the threads, which inherit it. There is nothing to wind down: all state is in Postgres.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
DBOS.launch()
# One turn of a session at a time. How often it is polled (by default each second) bounds how soon
# a session's next turn starts.
DBOS.register_queue(QUEUE, partition_concurrency=1, polling_interval_sec=0.05)
threading.Thread(target=poll_producer, daemon=True).start()
threading.Thread(target=consume_or_die, daemon=True).start()
signal.sigwait({signal.SIGTERM})
os._exit(0)
