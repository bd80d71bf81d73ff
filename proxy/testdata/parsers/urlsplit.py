"""Reads targets, each a line in base64, and writes the path that urllib reads in
them: in base64, or "-" if there is none."""

import base64
import sys
from urllib.parse import urlsplit

for line in sys.stdin:
    target = base64.b64decode(line).decode("latin-1")  # as http.server does
    try:
        path = base64.b64encode(urlsplit(target).path.encode("latin-1")).decode()
    except ValueError:
        path = "-"
    print(path, flush=True)
