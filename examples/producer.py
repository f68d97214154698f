#!/usr/bin/env python3
"""Sends a turn from Python and waits for its result. Needs: pip install confluent-kafka

    python3 examples/producer.py --brokers 127.0.0.1:9092 "Where is order 7?"
"""
import argparse
import json
import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

parser = argparse.ArgumentParser(description="Sends a turn and waits for its result.")
for name, default in {"brokers": "127.0.0.1:9092", "turns": "agent.turns", "results": "agent.results",
                      "agent": "support", "session": "python-1", "timeout": "60"}.items():
    parser.add_argument(f"--{name}", default=default, help=f"default {default}")
parser.add_argument("text")
args = parser.parse_args()

# The results first, each partition from its end: no result can come before we listen. No group is joined.
consumer = Consumer({"bootstrap.servers": args.brokers, "group.id": "python-example", "enable.auto.commit": False})
topic = consumer.list_topics(args.results, timeout=10).topics[args.results]
if topic.error:
    raise KafkaException(topic.error)
partitions = [TopicPartition(args.results, number) for number in topic.partitions]
for partition in partitions:
    partition.offset = consumer.get_watermark_offsets(partition, timeout=10)[1]
consumer.assign(partitions)


def delivered(error, _):
    if error:
        raise KafkaException(error)


# An id of our own: sent again in doubt, the turn still runs once. The partitioner is Java's, so that a session is on
# one partition whoever produces.
turn = {"turn_id": str(uuid.uuid4()), "session_id": args.session, "agent": args.agent, "input": args.text}
producer = Producer({"bootstrap.servers": args.brokers, "partitioner": "murmur2_random", "enable.idempotence": True})
producer.produce(args.turns, key=args.session, value=json.dumps(turn), on_delivery=delivered)
producer.flush()

deadline = time.monotonic() + float(args.timeout)
while time.monotonic() < deadline:
    record = consumer.poll(0.5)
    if record is None or record.error() or record.value() is None:
        continue
    result = json.loads(record.value())
    if (result["session_id"], result["turn_id"]) == (turn["session_id"], turn["turn_id"]):
        print(json.dumps(result, indent=2))
        sys.exit(result["status"] != "completed")
sys.exit(f"no result of turn {turn['turn_id']} within {args.timeout} s; it runs when a worker gets to it")
