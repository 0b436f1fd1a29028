"""An agent in Python: the warehouse of the order-fulfilment workflow.

It knows Waybill's message contract and a Kafka client, and nothing else:

    pip install -r requirements.txt
    python agent.py --brokers 127.0.0.1:9092 --ledger warehouse.db

The warehouse is an SQLite file. A reservation and its idempotency key are
written in one transaction, so that a request which comes again, after a crash
for example, finds the reservation instead of making a second one.
"""

import argparse
import json
import logging
import signal
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer

log = logging.getLogger("agent")


class Permanent(Exception):
    """A fault that no retry can heal (A5)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Warehouse:
    """The service behind the agent. Every operation may be asked for again (A6)."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path)
        with self.db:
            self.db.execute(
                "CREATE TABLE IF NOT EXISTS reservation (customer_order TEXT, step TEXT, key TEXT, released BOOLEAN,"
                " PRIMARY KEY (customer_order, step))"
            )
            self.db.execute("CREATE TABLE IF NOT EXISTS movement (item INTEGER, at TEXT)")

    def reserve(self, request: dict[str, Any]) -> dict[str, Any]:
        order, step, key = request["order"], request["step"], request["idempotencyKey"]
        with self.db:  # one transaction: the reservation, and that it was made
            found = self.find(order, step)
            if found and found["released"]:
                raise Permanent("released", "the order was undone; nothing is reserved for it any more")
            if not found:
                self.db.execute("INSERT INTO reservation VALUES (?, ?, ?, FALSE)", (order, step, key))
                self.move(-1)
        return {"reservation": found["key"] if found else key}

    def release(self, request: dict[str, Any]) -> dict[str, Any]:
        order, step = request["order"], request["step"]
        with self.db:
            found = self.find(order, step)
            if found and not found["released"]:
                self.move(+1)
            # Also if there is nothing to release: what is under way somewhere
            # must not reserve after this.
            self.db.execute(
                "INSERT INTO reservation VALUES (?, ?, NULL, TRUE) ON CONFLICT DO UPDATE SET released = TRUE",
                (order, step),
            )
        return {"released": bool(found)}

    def find(self, order: str, step: str) -> dict[str, Any] | None:
        row = self.db.execute(
            "SELECT key, released FROM reservation WHERE customer_order = ? AND step = ?", (order, step)
        ).fetchone()
        return {"key": row[0], "released": row[1]} if row else None

    def move(self, items: int) -> None:
        self.db.execute("INSERT INTO movement VALUES (?, ?)", (items, datetime.now(UTC).isoformat()))


class Agent:
    """Takes requests from one queue, one at a time, and replies to them."""

    def __init__(
        self,
        name: str,
        operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]],
        brokers: str,
        namespace: str = "waybill",
        config: dict[str, str] | None = None,
    ) -> None:
        self.operations = operations
        self.running = True
        self.consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": f"{namespace}.agent.{name}",  # all instances share the queue (A1)
                "isolation.level": "read_committed",  # what was aborted was never asked
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,  # when another instance takes over from a dead one
            }
        )
        self.producer = Producer(
            {
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # Kafka's default. Another one costs a detour, no more
                "linger.ms": 0,
                **(config or {}),
            }
        )
        self.consumer.subscribe([f"{namespace}.requests.{name}"])

    def run(self) -> None:
        """Serves until stop is called."""
        try:
            while self.running:
                message = self.consumer.poll(0.5)
                if message is None:
                    continue
                if message.error():
                    log.warning("Kafka: %s", message.error())  # the client goes on by itself
                    continue
                self.handle(message)
        finally:
            self.consumer.close()

    def stop(self, *_: object) -> None:
        self.running = False

    def handle(self, message: Message) -> None:
        request = json.loads(message.value() or b"{}")
        if not late(request):
            reply = self.answer(request)
            if not late(request):  # past its complete-by an agent is silent (A4)
                self.send(request["replyTo"], request["order"], reply)
        # Only now: should we die before, the request comes again, and the
        # warehouse knows what was done for it.
        try:
            self.consumer.commit(message=message, asynchronous=False)
        except KafkaException as fault:  # another instance has the queue by now, and gets the request again
            log.warning("the offset is not committed: %s", fault)

    def send(self, topic: str, order: str, reply: dict[str, Any]) -> None:
        """Returns once Kafka has the reply, and ends the agent if it does not take it."""
        outcome: list[Any] = []
        value = json.dumps(reply)
        self.producer.produce(topic, key=order, value=value, on_delivery=lambda error, _: outcome.append(error))
        self.producer.flush()
        if outcome[0] is not None:
            raise KafkaException(outcome[0])

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = {name: request[name] for name in ("order", "step", "attempt", "undo") if name in request}
        operation = self.operations.get(request["operation"])
        try:
            if operation is None:
                raise Permanent("unknown-operation", f"this agent does not serve {request['operation']!r}")
            return reply | {"status": "completed", "output": operation(request)}
        except Permanent as fault:
            error = {"code": fault.code, "message": str(fault), "permanent": True}
        except Exception as fault:  # it may heal: Waybill asks again, if the workflow says so
            log.exception("%s of order %s", request["operation"], request["order"])
            error = {"code": "error", "message": str(fault)}
        return reply | {"status": "failed", "error": error}


def late(request: dict[str, Any]) -> bool:
    return datetime.now(UTC) >= datetime.fromisoformat(request["completeBy"])


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--brokers", default="127.0.0.1:9092")
    flags.add_argument("--namespace", default="waybill")
    flags.add_argument("--ledger", default="warehouse.db", help="the SQLite file of the warehouse")
    flags.add_argument("-X", metavar="NAME=VALUE", action="append", default=[], help="a setting of the Kafka producer")
    args = flags.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)

    warehouse = Warehouse(args.ledger)
    agent = Agent(
        "inventory",
        {"reserve": warehouse.reserve, "release": warehouse.release},
        args.brokers,
        args.namespace,
        dict(setting.split("=", 1) for setting in args.X),
    )
    signal.signal(signal.SIGTERM, agent.stop)
    signal.signal(signal.SIGINT, agent.stop)
    log.info("the warehouse is open")
    agent.run()


if __name__ == "__main__":
    main()
