"""An orders API that uses only Python's standard library and knows nothing of idempotency.

    python3 orders.py 3000
    onlyonce proxy --upstream http://127.0.0.1:3000 --single-tenant
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

orders = []
lock = threading.Lock()


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            item = json.loads(body)["item"]
        except (ValueError, KeyError, TypeError):
            return self.answer(400, {"error": "send {\"item\": …}"})
        with lock:
            order = {"id": len(orders) + 1, "item": item}
            orders.append(order)
        self.answer(201, order)

    def do_GET(self):
        with lock:
            self.answer(200, orders)

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Orders).serve_forever()
