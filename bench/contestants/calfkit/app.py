"""Turns as runs of a Calfkit agent: one worker; `run` starts several, which share the topics.

The agent (its model is a script) and its tool are nodes on Kafka: a call of the tool, its result,
the agent's steps and its reply are records on topics of their own, which Calfkit makes. It does
not take turns in the benchmark's format, so a small bridge, on_turn, reads TURNS_TOPIC, runs the
agent as any client of it would and writes RESULTS_TOPIC.

Durability: all records are written with acks=all and idempotence (Calfkit's default is acks=1,
without), to a broker that acknowledges before it has fsynced, as Kafka does by default. But
Calfkit commits a record's offset as it is received (ACK_FIRST, which its key-ordered subscribers
insist on): a hop under way when its process dies is lost, and its turn with it. That is at most
once, less than what a journal of steps gives, and the bridge is no better than the rest.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from calfkit import Agent, Client, ProvisioningConfig, Worker, agent_tool
from calfkit._vendor.pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from calfkit._vendor.pydantic_ai.models.function import AgentInfo, FunctionModel

GROUP = os.environ["GROUP_ID"]
# How many sessions, and runs, a process serves at once. They are spread over this many lanes by a
# hash and those on one lane wait for each other, so there are more than are needed.
LANES = 1024

logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


async def echo(text: str, work_ms: float) -> str:
    """Says the text again."""
    if work_ms:
        await asyncio.sleep(work_ms / 1000)
    return text


def script(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """The model: calls the tool as often as the prompt says, and is done."""
    parts = [part for message in messages for part in message.parts]
    turn = json.loads(next(p.content for p in parts if isinstance(p, UserPromptPart)))
    step = sum(isinstance(p, ToolReturnPart) for p in parts)
    if step == turn["steps"]:
        return ModelResponse(parts=[TextPart("done")])
    args = {"text": chr(ord("a") + step), "work_ms": turn["work_ms"] / turn["steps"]}
    return ModelResponse(parts=[ToolCallPart(tool.name, args)])


# The nodes' names name their topics and consumer groups: new ones for each run.
tool = agent_tool(echo, name=f"echo-{GROUP}")
agent = Agent(f"support-{GROUP}", model_client=FunctionModel(script), tools=[tool])
client = Client.connect(
    os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    acks="all",
    enable_idempotence=True,
    provisioning=ProvisioningConfig(enabled=True, num_partitions=8),
    logger=logging.getLogger("bench"),
)
gateway = client.agent(agent.name)


async def on_turn(turn: dict) -> None:
    meta = turn["metadata"]
    prompt = {"input": turn["input"], "steps": int(meta["steps"]), "work_ms": int(meta["work_ms"])}
    result = await gateway.execute(json.dumps(prompt))
    record = {"turn_id": turn["turn_id"], "session_id": turn["session_id"]}
    record |= {"status": "completed", "output": result.output}
    key = turn["session_id"].encode()
    await client.broker.publish(record, topic=os.environ["RESULTS_TOPIC"], key=key)


async def main() -> None:
    earliest = {"auto_offset_reset": "earliest"}
    worker = Worker(client, [agent, tool], max_workers=LANES, extra_subscribe_kwargs=earliest)
    await worker.start()
    # After the worker, which must run for its agent to be called. Serial for each key, a session.
    turns = client.broker.key_ordered_subscriber(
        os.environ["TURNS_TOPIC"], group_id=GROUP, max_workers=LANES, **earliest
    )
    turns(on_turn)
    await turns.start()
    while not all(subscriber.consumer.assignment() for subscriber in client.broker.subscribers):
        await asyncio.sleep(0.05)
    Path(os.environ["READY"]).touch()
    await asyncio.Event().wait()


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
asyncio.run(main())
