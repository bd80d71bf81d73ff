"""Sends payments with idempotency keys, and retries each until there is a response. It uses only
Python's standard library.

    python3 client.py http://127.0.0.1:8080/payments '{"amount": 10}'
"""

import email.utils
import http.client
import random
import sys
import time
import urllib.error
import urllib.request
import uuid


def send(url, body, key, post, attempts=10, budget=60):
    """Returns the status and the body of the response, or raises the last attempt's OSError."""
    end = time.monotonic() + budget
    for attempt in range(1, attempts + 1):
        headers, failure = {}, None
        try:
            status, headers, text = post(url, body, key)
            if not is_retryable(status, headers):
                return status, text
        except OSError as error:  # a broken connection, a timeout, a truncated response
            failure = error
        wait = pause(headers, attempt)
        if attempt == attempts or time.monotonic() + wait > end:
            break
        time.sleep(wait)
    if failure:
        raise failure
    return status, text


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None  # otherwise, a redirect may make the POST a GET


def post(url, body, key, timeout=10):
    """Sends a request once, and returns the status, the headers and the body of the response."""
    request = urllib.request.Request(url, body, {"Idempotency-Key": key, "Content-Type": "application/json"})
    try:
        try:
            response = urllib.request.build_opener(NoRedirects).open(request, timeout=timeout)
        except urllib.error.HTTPError as error:  # a response with a status of 300 or more
            response = error
        with response:
            return response.status, response.headers, response.read()
    except http.client.HTTPException as error:  # a truncated response is one
        raise ConnectionError("the response broke off") from error


def is_retryable(status, headers):
    if headers.get("Idempotency-Replayed") == "true":
        return False  # every retry would get this response
    # http.client takes an informational response, such as 103, for the response.
    return status < 200 or status in (425, 429, 502, 503, 504) or status == 409 and "Retry-After" in headers


def pause(headers, attempt):
    """Returns how many seconds to wait before the next attempt."""
    asked = headers.get("Retry-After", "")
    date = parse(asked)
    if asked.isdecimal():
        seconds = float(asked)
    elif date is not None:
        now = parse(headers.get("Date", ""))  # by the server's own clock
        seconds = date - (time.time() if now is None else now)
    else:
        return random.uniform(0, min(5, 0.1 * 2**attempt))
    return max(0, seconds) * random.uniform(1, 1.1)


def parse(date):
    """Returns the time of an HTTP date, or None."""
    fields = email.utils.parsedate_tz(date)
    try:
        return email.utils.mktime_tz(fields) if fields else None
    except (ValueError, OverflowError):  # there is no such day
        return None


def main(post):
    url, *payments = sys.argv[1:]
    for payment in payments:
        key = str(uuid.uuid4())  # store it with the payment if the payment must survive a crash
        status, text = send(url, payment.encode(), key, post)
        print(status, text.decode())


if __name__ == "__main__":
    main(post)
