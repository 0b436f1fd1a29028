"""Takes the webhooks of Waybill's alerts, and prints those that are signed: receiver.py HOST:PORT."""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
known = set()  # keep these somewhere that outlasts the process


def verify(headers, body):
    """Says whether a message is signed with the secret, and was so within the last five minutes."""
    message, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not at.isdecimal() or abs(time.time() - int(at)) > 300:
        return False
    signed = f"{message}.{at}.".encode() + body
    want = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256))
    given = headers.get("webhook-signature", "").split()  # several while a secret is changed
    return any(hmac.compare_digest(one.encode(), want) for one in given)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length) if length <= 64 << 10 else b""
        if not verify(self.headers, body):
            self.send_error(401, "it is not signed")
            return
        if self.headers["webhook-id"] not in known:
            known.add(self.headers["webhook-id"])
            alert = json.loads(body)["data"]
            print(alert["reason"], json.dumps(alert.get("order", "")) + ":", alert["message"], flush=True)
        self.send_response(204)
        self.end_headers()


if __name__ == "__main__":
    host, port = sys.argv[1].rsplit(":", 1)
    ThreadingHTTPServer((host, int(port)), Receiver).serve_forever()
