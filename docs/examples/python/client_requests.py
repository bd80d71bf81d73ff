"""client.py with requests instead of the standard library's client.

    python3 client_requests.py http://127.0.0.1:8080/payments '{"amount": 10}'
"""

import requests

from client import main


def post(url, body, key, timeout=10):
    """Sends a request once, and returns the status, the headers and the body of the response."""
    headers = {"Idempotency-Key": key, "Content-Type": "application/json", "Accept-Encoding": "identity"}
    # A redirect may make the POST a GET. The exceptions of requests are OSErrors.
    response = requests.post(url, body, headers=headers, timeout=timeout, allow_redirects=False)
    if response.raw.length_remaining:
        raise OSError("the response is truncated")  # which urllib3 reports from version 2 on
    return response.status_code, response.headers, response.content


if __name__ == "__main__":
    main(post)
