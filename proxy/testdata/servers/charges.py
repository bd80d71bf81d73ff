"""A payment server as many are: it routes by PATH_INFO, or by what urlsplit reads
in it, and lets headers say another method or path."""

import sys
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


def app(environ, start_response):
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    target = environ.get("HTTP_X_ORIGINAL_URL") or environ.get("HTTP_X_REWRITE_URL") or environ["PATH_INFO"]
    prefix = environ.get("HTTP_SCRIPT_NAME", "")  # as gunicorn believes it
    target = target.removeprefix(prefix)
    method = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE") or environ["REQUEST_METHOD"]
    charged = method == "POST" and "/payments" in (target, target.rstrip("/"), urlsplit(target).path)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"charged" if charged else b"nothing"]


make_server("127.0.0.1", int(sys.argv[1]), app, handler_class=Quiet).serve_forever()
