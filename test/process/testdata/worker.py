"""An agent that takes so many requests a second, of the message contract alone.

With --all N it takes any number at a time, and answers none before it has N. With --late it
answers what is late, too. It says what it did when it is told to stop.
"""

import argparse
import json
import signal
import time
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, Producer

flags = argparse.ArgumentParser()
flags.add_argument("--brokers")
flags.add_argument("--namespace")
flags.add_argument("--agent")
flags.add_argument("--rate", type=float)
flags.add_argument("--all", type=int)
flags.add_argument("--session")
flags.add_argument("--late", action="store_true")
args = flags.parse_args()

consumer = Consumer(
    {
        "bootstrap.servers": args.brokers,
        "group.id": f"{args.namespace}.agent.{args.agent}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": int(args.session[:-1]) * 1000,
        "heartbeat.interval.ms": int(args.session[:-1]) * 1000 // 6,
        "log_level": 4,
    }
)
producer = Producer(
    {"bootstrap.servers": args.brokers, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 0, "log_level": 4}
)
consumer.subscribe([f"{args.namespace}.requests.{args.agent}"])

running = True


def stop(*_: object) -> None:
    global running
    running = False


signal.signal(signal.SIGTERM, stop)


def late(request: dict[str, Any]) -> bool:
    return not args.late and datetime.now(UTC) >= datetime.fromisoformat(request["completeBy"])


def answer(request: dict[str, Any]) -> None:
    global done
    reply = {name: request[name] for name in ("order", "step", "attempt", "undo") if name in request}
    reply |= {"status": "completed", "output": request["idempotencyKey"]}
    producer.produce(request["replyTo"], key=request["order"], value=json.dumps(reply))
    done += 1


done = skipped = 0
held: dict[str, dict[str, Any]] = {}  # by key
slot = committed = time.monotonic()
fresh = False  # whether there is something to commit
while running:
    message = consumer.poll(0.05)
    if message is not None and not message.error():
        request = json.loads(message.value())
        fresh = True
        if late(request):
            skipped += 1
        elif args.all:
            held[request["idempotencyKey"]] = request
            if len(held) == args.all:
                for each in held.values():
                    answer(each)
        else:
            slot = max(time.monotonic() - 1 / args.rate, slot) + 1 / args.rate  # a sleep may be late
            time.sleep(max(0.0, slot - time.monotonic()))
            if late(request):
                skipped += 1
            else:
                answer(request)
    producer.poll(0)
    # What was answered is committed, and not before Kafka has the answers.
    if fresh and not (args.all and len(held) < args.all) and time.monotonic() - committed > 0.2:
        producer.flush()
        consumer.commit(asynchronous=True)
        committed, fresh = time.monotonic(), False
producer.flush()
consumer.close()
print(f"{done} answered, {skipped} late", flush=True)
