"""An agent in Python: the warehouse of the order-fulfilment workflow.

It knows Waybill's message contract and a Kafka client, and nothing else:

    pip install -r requirements.txt
    python agent.py --brokers 127.0.0.1:9092 --ledger warehouse.db

The warehouse is an SQLite file. A reservation and its idempotency key are
written in one transaction, so that a request which comes again, after a crash
for example, finds the reservation instead of making a second one. An undo puts
back what stands under the key that it names, and nothing else.
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
                "CREATE TABLE IF NOT EXISTS reservation"
                " (key TEXT PRIMARY KEY, customer_order TEXT, step TEXT, state TEXT)"
            )
            # Steps that were undone under all of their keys at once.
            self.db.execute(
                "CREATE TABLE IF NOT EXISTS undone (customer_order TEXT, step TEXT, PRIMARY KEY (customer_order, step))"
            )
            self.db.execute("CREATE TABLE IF NOT EXISTS movement (item INTEGER, at TEXT)")

    def reserve(self, request: dict[str, Any]) -> dict[str, Any]:
        order, step, key = request["order"], request["step"], request["idempotencyKey"]
        with self.db:  # one transaction: the reservation, and that it was made
            made = self.note(key, order, step, "reserved")
            if self.refused(key, order, step):
                raise Permanent("released", "this was undone; nothing is reserved for it any more")
            if made:
                self.move(-1)
        return {"reservation": key}

    def release(self, request: dict[str, Any]) -> dict[str, Any]:
        order, step = request["order"], request["step"]
        with self.db:
            # Also if there is nothing to release: what is under way somewhere
            # must not reserve after this.
            if key := request.get("stepKey"):
                self.note(key, order, step, "refused")
                keys = [key]  # what stands under other keys has undos of its own
            else:  # an older orchestrator has one undo for all keys of the step
                self.db.execute("INSERT OR IGNORE INTO undone VALUES (?, ?)", (order, step))
                of_step = "SELECT key FROM reservation WHERE customer_order = ? AND step = ?"
                keys = [key for (key,) in self.db.execute(of_step, (order, step)).fetchall()]
            released = [self.put_back(key) for key in keys]
        return {"released": any(released)}

    def put_back(self, key: str) -> bool:
        """Puts back what was reserved under a key, once, and says whether anything ever was."""
        change = "UPDATE reservation SET state = 'released' WHERE key = ? AND state = 'reserved'"
        if self.db.execute(change, (key,)).rowcount:
            self.move(+1)
        return self.state(key) == "released"

    def note(self, key: str, order: str, step: str, state: str) -> bool:
        """Notes what becomes of a key, unless that is known, and says whether it did."""
        row = (key, order, step, state)
        return self.db.execute("INSERT OR IGNORE INTO reservation VALUES (?, ?, ?, ?)", row).rowcount > 0

    def refused(self, key: str, order: str, step: str) -> bool:
        undone = "SELECT 1 FROM undone WHERE customer_order = ? AND step = ?"
        return self.state(key) != "reserved" or self.db.execute(undone, (order, step)).fetchone() is not None

    def state(self, key: str) -> str:
        return self.db.execute("SELECT state FROM reservation WHERE key = ?", (key,)).fetchone()[0]

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
        reply = {name: request[name] for name in ("order", "step", "attempt", "undo", "token") if name in request}
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
